"""Directories of staged files: written by Spark's executors, listed, made durable and removed by the driver.

A location is a local path or a URI. Spark and pyarrow read both, and spell some of them differently.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow.fs as pafs
from pyspark.sql import DataFrame

from midstream.checkpoint.storage import Storage, file_system
from midstream.errors import SinkError
from midstream.sinks.contract import LostRowsError

# No _SUCCESS and no checksum files: nothing reads them, and for each file and directory that Hadoop creates
# on a local disk it forks a `chmod` (1 000 rows in 2 partitions: 84 ms and 12 forks by default, 53 ms and 5
# like this).
_QUIET = {
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}


def absolute(location: str | os.PathLike[str]) -> str:
    """Make a local path absolute, so that it means the same after a restart elsewhere; leave URIs alone."""
    text = os.fspath(location)
    if text.startswith("file:"):
        text = "/" + text.removeprefix("file:").lstrip("/")
    return text if "://" in text else os.path.abspath(text)


def join(location: str, *names: str) -> str:
    """Name something inside a location."""
    return "/".join([location.rstrip("/"), *names])


def resolve(location: str) -> tuple[pafs.FileSystem, str]:
    """Return the pyarrow file system of a location, and the path in it."""
    location = absolute(location)
    if "://" not in location:
        return pafs.LocalFileSystem(), location
    return file_system(location)


def spark_path(location: str) -> str:
    """Spell a location for Spark, whose default file system need not be the local one."""
    return Storage.at(location).for_spark()


def spark_pattern(location: str) -> str:
    """Spell a location for Spark's readers, which take paths for glob patterns."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", spark_path(location))


def write(
    df: DataFrame,
    location: str,
    format: str,
    options: Mapping[str, str],
    partition_by: Sequence[str] = (),
) -> list[str]:
    """Write rows with one Spark job into a new directory; return the files, in partition order.

    Spark's committer moves only files of successful task attempts into the directory, so that retries and
    speculative twins leave nothing there; a delayed one writes below `_temporary`, which all readers ignore.
    """
    filesystem, path = resolve(location)
    writer = df.write.format(format).options(**{**_QUIET, **options})
    if isinstance(filesystem, pafs.LocalFileSystem):
        with _reported("written", location):
            os.makedirs(os.path.join(path, "_temporary", "0"))  # what Spark's committer makes, without forks
        writer = writer.mode("append")
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    timestamps, readable = "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"
    if df.sparkSession.conf.get(timestamps) != readable:
        # In Spark's default format other readers misread times after 2262. It is no option of the writer, only
        # of the session; that of a batch belongs to the query.
        df.sparkSession.conf.set(timestamps, readable)
    writer.save(spark_path(location))
    return list_files(location)


def list_files(location: str) -> list[str]:
    """List the visible files below a location, relative to it; a location that does not exist has none."""
    filesystem, path = resolve(location)
    with _reported("listed", location):
        found = filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True, recursive=True))
    names = (os.path.relpath(info.path, path) for info in found if info.type == pafs.FileType.File)
    return sorted(name for name in names if not any(part[0] in "._" for part in name.split("/")))


def drop(location: str, files: Sequence[str]) -> None:
    """Delete single files below a location."""
    filesystem, path = resolve(location)
    with _reported("removed", location):
        for name in files:
            filesystem.delete_file(f"{path}/{name}")


def make_durable(location: str, files: Sequence[str]) -> None:
    """Sync files and their directories on a local disk; other file systems have done so."""
    filesystem, path = resolve(location)
    if not isinstance(filesystem, pafs.LocalFileSystem):
        return
    paths = [os.path.join(path, name) for name in files]
    directories = {os.path.dirname(file) for file in paths} | {path, os.path.dirname(path)}
    with _reported("written", location):
        for each in [*paths, *sorted(directories, reverse=True)]:
            descriptor = os.open(each, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def refuse_lost(location: str, files: Sequence[str], sink: str, epoch: int) -> None:
    """Refuse to go on where staged files are gone: nothing else has their rows."""
    with _reported("listed", location):
        lost = sorted(set(files) - set(list_files(location)))
    if lost:
        raise LostRowsError(
            f"sink {sink!r}: rows of epoch {epoch} were staged in {location} and committed, but not published, and "
            f"{lost[0]} is gone from there. Restore it from a copy and start the job again, or start it with "
            "on_lost_output='accept' to go on without these rows"
        )


def remove(location: str) -> None:
    """Remove a staged directory; one that is not there is removed already."""
    filesystem, path = resolve(location)
    with _reported("removed", location):
        if filesystem.get_file_info(path).type != pafs.FileType.NotFound:
            filesystem.delete_dir(path)


@contextmanager
def _reported(done: str, location: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SinkError(
            f"staged files in {location} cannot be {done}: {error}. Check the space and the rights there, "
            "and start the job again: nothing is lost"
        ) from error
