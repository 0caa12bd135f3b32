"""The durable store: files below one directory, on any file system that `pyarrow.fs` reaches, and every path in it.

On a local file system what is written is synced, file and directory, before it counts. Elsewhere an object is
whole when its upload has ended, and not there before.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from midstream.errors import CheckpointError

_SPARK_SCHEMES = {"s3": "s3a", "gcs": "gs"}
_TRIES = 8  # of a request, before an object store counts as failed: with growing pauses, half a minute of refusals


@dataclass(frozen=True, slots=True)
class Storage:
    """A directory of the durable store. Paths given to its methods are relative to it."""

    root: str  # an absolute local path, or a URI

    @classmethod
    def at(cls, location: str | os.PathLike[str]) -> Storage:
        """Open a directory given as a path or a URI."""
        text = os.fspath(location)
        if text.startswith("file:"):
            text = "/" + text[len("file:") :].lstrip("/")
        return cls(_plain(text).rstrip("/") if "://" in text else os.path.abspath(text))

    @property
    def is_local(self) -> bool:
        """Whether files can be opened by path."""
        return "://" not in self.root

    def path(self, *parts: str) -> str:
        """Return the full path or URI of a file."""
        return "/".join((self.root, *parts))

    def for_spark(self, *parts: str) -> str:
        """Return the address under which Spark knows a file."""
        if self.is_local:
            return "file://" + self.path(*parts)
        scheme, rest = self.path(*parts).split("://", 1)
        return f"{_SPARK_SCHEMES.get(scheme, scheme)}://{rest}"

    def write(self, path: str, content: Any) -> None:
        """Write a file whole: readers see all of it or nothing, and what was there before is replaced."""
        if not self.is_local:
            fs, base = self._remote()
            with self._asking(path), fs.open_output_stream(f"{base}/{path}") as out:
                out.write(content)
            return
        target = self.path(path)
        temporary = f"{target}.{os.urandom(4).hex()}.tmp"
        try:
            self.write_new(os.path.relpath(temporary, self.root), content)
            os.replace(temporary, target)
        except OSError:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise
        _sync(os.path.dirname(target))

    def write_new(self, path: str, content: Any) -> None:
        """Write a file under a name that nobody else uses; it counts once something names it."""
        if not self.is_local:
            self.write(path, content)
            return
        target = self.path(path)
        for _ in range(2):
            try:
                with open(target, "wb", buffering=0) as out:
                    view = memoryview(content).cast("B")
                    while view:
                        view = view[out.write(view) :]
                    os.fsync(out.fileno())
                return
            except FileNotFoundError:
                os.makedirs(os.path.dirname(target), exist_ok=True)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise CheckpointError(
                        f"the disk is full: {target} could not be written. Free some space there and start the job "
                        "again with the same checkpoint; nothing that was committed is lost"
                    ) from error
                raise
        raise CheckpointError(f"the directory of {target} vanishes while it is written")

    def sync(self, *directories: str) -> None:
        """Make the names in directories durable, where the store is a local disk."""
        if self.is_local:
            for directory in directories:
                _sync(self.path(directory))

    def read(self, path: str) -> bytes:
        """Read a whole file."""
        if self.is_local:
            with open(self.path(path), "rb") as file:
                return file.read()
        fs, base = self._remote()
        with self._asking(path), fs.open_input_stream(f"{base}/{path}") as stream:
            return bytes(stream.read())

    def exists(self, path: str) -> bool:
        """Tell whether a file or directory exists."""
        if self.is_local:
            return os.path.exists(self.path(path))
        fs, base = self._remote()
        with self._asking(path):
            return bool(fs.get_file_info(f"{base}/{path}").type != pafs.FileType.NotFound)

    def list(self, path: str) -> list[str]:
        """List the names in a directory, sorted; a directory that does not exist has none."""
        if self.is_local:
            try:
                return sorted(os.listdir(self.path(path)))
            except FileNotFoundError:
                return []
        fs, base = self._remote()
        selector = pafs.FileSelector(f"{base}/{path}", allow_not_found=True)
        with self._asking(path):
            return sorted(info.base_name for info in fs.get_file_info(selector))

    def delete(self, path: str) -> None:
        """Delete a file or a directory with all that is in it; one that does not exist is deleted already."""
        if self.is_local:
            target = self.path(path)
            if os.path.isdir(target) and not os.path.islink(target):
                shutil.rmtree(target, ignore_errors=True)
            else:
                try:
                    os.unlink(target)
                except FileNotFoundError:
                    return
            return
        fs, base = self._remote()
        with self._asking(path):
            info = fs.get_file_info(f"{base}/{path}")
            if info.type == pafs.FileType.Directory:
                fs.delete_dir(f"{base}/{path}")
            elif info.type == pafs.FileType.File:
                fs.delete_file(f"{base}/{path}")

    def buffer(self, path: str) -> pa.Buffer:
        """Read a file as an Arrow buffer, without a copy where the file is local."""
        if self.is_local:
            with pa.memory_map(self.path(path)) as file:
                return file.read_buffer()
        return pa.py_buffer(self.read(path))

    def upload(self, local: str, path: str) -> None:
        """Store a local file; the local one is gone afterwards."""
        if self.is_local:
            target = self.path(path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.move(local, target)  # a copy, if they lie on two file systems
            _sync(target)
            _sync(os.path.dirname(target))
            return
        fs, base = self._remote()
        with self._asking(path):
            pafs.copy_files(local, f"{base}/{path}", destination_filesystem=fs)
        os.unlink(local)

    def download(self, path: str, local: str) -> None:
        """Copy a stored file to a local path."""
        if self.is_local:
            shutil.copyfile(self.path(path), local)
            return
        fs, base = self._remote()
        with self._asking(path):
            pafs.copy_files(f"{base}/{path}", local, source_filesystem=fs)

    def link(self, path: str, target: Storage) -> None:
        """Put the files of a directory, which never change, also below another storage; on a disk they are linked."""
        if self.is_local:
            if os.path.isdir(self.path(path)):
                shutil.copytree(self.path(path), target.path(path), copy_function=os.link)
            return
        fs, base = self._remote()
        other, below = target._remote()
        if self.exists(path):
            with self._asking(path):
                pafs.copy_files(f"{base}/{path}", f"{below}/{path}", source_filesystem=fs, destination_filesystem=other)

    @contextmanager
    def _asking(self, path: str) -> Iterator[None]:
        """Say what a store has refused, and what to do; that a file is not there is an answer."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise CheckpointError(
                f"the store of {self.path(path)} has failed: {error}. Check its address, the rights there and its "
                "health, and start the job again with the same checkpoint; nothing that was committed is lost"
            ) from error

    def _remote(self) -> tuple[pafs.FileSystem, str]:
        return file_system(self.root)


def file_system(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the pyarrow file system of a URI, and the path in it."""
    uri = _plain(uri)
    parts = urlsplit(uri)
    if parts.scheme == "s3":
        return _s3(parts.netloc, os.getpid()), parts.netloc + parts.path
    found, path = pafs.FileSystem.from_uri(uri)
    return found, path


def _plain(uri: str) -> str:
    """Spell a URI as pyarrow does: Hadoop's names of S3 are its own."""
    return re.sub("^s3[an]://", "s3://", uri)


@lru_cache(maxsize=16)
def _s3(bucket: str, process: int) -> pafs.FileSystem:
    """Connect to the store of a bucket, once in a process: to make a client takes longer than to use it.

    The environment says where it is and who asks: `AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID` and so on.
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return pafs.S3FileSystem(
        endpoint_override=endpoint,
        region=None if endpoint else pafs.resolve_s3_region(bucket),
        allow_delayed_open=True,  # what is small is one request instead of three, and leaves no half upload behind
        background_writes=True,  # without, a part that fails leaves an object of the parts before it
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=_TRIES),
    )


def _sync(path: str) -> None:
    """Bring a file or directory to the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
