"""A directory of Parquet, JSON or CSV files, one sub-directory per epoch."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from midstream.checkpoint.records import Delivered, Staged
from midstream.errors import SinkError
from midstream.plan.column_names import clash
from midstream.sinks import directories
from midstream.sinks.contract import (
    LostRowsError,
    Sink,
    Staging,
    call,
    hide_secrets,
    refuse_other_history,
    reveal_secrets,
)

FORMATS = ("parquet", "json", "csv")
_HIDDEN = ".midstream"  # readers ignore names that begin with a dot
_PUBLISHED = "published.json"
_TEXT_CODECS = ("none", "uncompressed", "gzip", "bzip2")  # which pyarrow reads as Spark writes them


class Files(Sink):
    """Writes each committed epoch as `path/epoch=<number>/`, made visible by one rename.

    Readers that know Hive-style partitions (Spark, DuckDB, pyarrow, pandas, Polars) see whole committed
    epochs only, with the epoch's number as column `epoch`; rows of epochs still to come wait in
    `path/.midstream/`. For a reader that takes a pattern, use `path/epoch=*/*.parquet`. An epoch without
    rows leaves nothing. Epochs may be deleted or compacted by others, once a later one is there. The newest
    epoch and the id of its commit are in `path/.midstream/published.json`.

    Promised: on file systems with an atomic rename of directories (local disks, NFS, HDFS) a reader sees an
    epoch wholly or not at all, and once. Not promised: the same on object stores, where a rename is a copy
    and a reader may see a part of the newest epoch for a moment (in the end it is there once); that two jobs
    which start at the same instant on an unused directory are kept apart; a CSV row whose one column is null
    (Spark writes nothing for it: set the option `nullValue`).
    """

    guarantee = "each committed epoch exactly once, visible as a whole (on object stores: once, file by file)"
    remembers = True

    def __init__(
        self, path: str | os.PathLike[str], format: str, partition_by: Sequence[str], options: dict[str, str]
    ) -> None:
        """Write to the directory `path`; `options` are those of Spark's writer for the format."""
        if format not in FORMATS:
            raise SinkError(f"files(format={format!r}) is not known: use one of {', '.join(FORMATS)}")
        hidden = [name for name in partition_by if name[0] in "._"]
        if hidden:
            raise SinkError(
                f"files(partition_by=[{hidden[0]!r}]) would make directories that readers ignore, as their "
                "names begin with a dot or an underscore: rename the column in a transform before the sink"
            )
        self._path = directories.absolute(path)
        self._format = format
        self._partition_by = tuple(partition_by)
        self._options = hide_secrets(options)
        self._newest: Delivered | None = None  # that this process knows of
        codec = self._option("compression", self._option("codec", "none"))
        if format != "parquet" and codec not in _TEXT_CODECS:
            raise SinkError(
                f"files(format={format!r}, compression={codec!r}) is not supported: use one of "
                f"{', '.join(_TEXT_CODECS)}, or format='parquet'"
            )

    def open(self, spark: SparkSession, sink: str, job: str) -> None:
        """Take possession of the directory; refuse one of another job or sink, or with files of others."""
        owner, self._newest = {"job": job, "sink": sink}, None
        filesystem, path = directories.resolve(self._path)
        marker = f"{path}/{_HIDDEN}/owner.json"
        try:
            if filesystem.get_file_info(marker).type == pafs.FileType.File:
                found = json.loads(filesystem.open_input_file(marker).read())
                if found != owner:
                    raise SinkError(
                        f"sink {sink!r} cannot write to {self._path}: the directory belongs to sink "
                        f"{found.get('sink')!r} of job {found.get('job')}, and this is job {job}. Give the "
                        "sink a directory of its own, or delete this one if its rows are no longer wanted"
                    )
                return
            self._refuse_strangers(sink)
            filesystem.create_dir(f"{path}/{_HIDDEN}", recursive=True)
            draft = f"{marker}.{uuid.uuid4().hex}"
            with filesystem.open_output_stream(draft) as out:
                out.write(json.dumps(owner).encode())
            hidden = directories.join(self._path, _HIDDEN)
            directories.make_durable(hidden, [os.path.basename(draft)])  # an empty one would belong to no job
            filesystem.move(draft, marker)
            directories.make_durable(hidden, ())
        except (OSError, ValueError) as error:
            raise SinkError(
                f"sink {sink!r} cannot write to {self._path}: {error}. Check the path and the rights there"
            ) from error

    def stage(self, df: DataFrame, staging: Staging) -> Staged:
        """Write the files into a hidden directory inside the target."""
        if name := clash(df.columns, ["epoch"]):
            raise SinkError(
                f"sink {staging.sink!r} cannot write column {name!r}: in {self._path} the epoch's number "
                "is the column 'epoch', from the directory's name. Rename yours in a transform"
            )
        location = self._location(staging)
        options = reveal_secrets(self._options)
        files = directories.write(df, location, self._format, options, self._partition_by)
        empty = [name for name in files if self._is_empty(location, name)]
        directories.drop(location, empty)
        files = [name for name in files if name not in empty]
        directories.make_durable(location, files)
        return Staged(staging.sink, staging.job, staging.epoch, location, tuple(files))

    def publish(self, staged: Staged, spark: SparkSession) -> None:
        """Rename the hidden directory to `epoch=<number>`, unless that is done already."""
        filesystem, path = directories.resolve(self._path)
        target = f"{path}/epoch={staged.epoch}"
        if not staged.files:
            return
        try:
            if self._is_published(staged):
                return
            location = directories.join(self._path, f"epoch={staged.epoch}")
            there = set(directories.list_files(location))
            if not isinstance(filesystem, pafs.LocalFileSystem | pafs.HadoopFileSystem):
                if there <= set(staged.files):  # else it is of another history; a part of it may be copied
                    directories.refuse_lost(staged.location, staged.files, staged.sink, staged.epoch)
                    self._copy(staged, target)
                    there = set(staged.files)
            elif not there:
                directories.refuse_lost(staged.location, staged.files, staged.sink, staged.epoch)
                filesystem.move(directories.resolve(staged.location)[1], target)
                directories.make_durable(location, ())
                there = set(staged.files)
            if there != set(staged.files):  # a publication that was cut off has left just these, by their names
                refuse_other_history(staged.sink, self._path, Delivered(staged.epoch, "another run"), staged)
            self._remember(Delivered(staged.epoch, staged.commit))
        except OSError as error:
            raise SinkError(
                f"sink {staged.sink!r} cannot publish epoch {staged.epoch} to {target}: {error}. The rows "
                f"are kept in {staged.location}: remove the cause and start the job again"
            ) from error

    def published(self, sink: str, job: str) -> Delivered | None:
        """Return the newest epoch that was published to the directory.

        The note is not synced, so a crash of the machine may set it back by some epochs; the directories of epochs are
        synced, so the newer of both counts.
        """
        filesystem, path = directories.resolve(self._path)
        try:
            found = filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True))
            note = self._note()
        except OSError as error:
            raise SinkError(
                f"sink {sink!r}: {self._path} cannot be read: {error}. Check the path and the rights"
            ) from error
        numbers = [info.base_name.removeprefix("epoch=") for info in found if info.base_name.startswith("epoch=")]
        there = [Delivered(int(number), "") for number in numbers if number.isdigit()]
        self._newest = max([*there, *([note] if note is not None else [])], key=lambda each: each.epoch, default=None)
        if note is not None and self._newest is not None and note.epoch == self._newest.epoch:
            self._newest = note
        return self._newest

    def _note(self) -> Delivered | None:
        """Read the note of the newest epoch; None if it cannot be read."""
        filesystem, path = directories.resolve(self._path)
        note = f"{path}/{_HIDDEN}/{_PUBLISHED}"
        if filesystem.get_file_info(note).type != pafs.FileType.File:
            return None
        with filesystem.open_input_file(note) as file:
            text = file.read()
        try:
            known = json.loads(text)
            return Delivered(int(known["epoch"]), str(known["commit"]))
        except (ValueError, KeyError, TypeError):
            return None

    def _is_published(self, staged: Staged) -> bool:
        filesystem, path = directories.resolve(self._path)
        before, found = self._newest, self._note()
        if found is None and before is not None:
            if filesystem.get_file_info(f"{path}/epoch={before.epoch}").type == pafs.FileType.NotFound:
                self._newest = None
                raise LostRowsError(
                    f"sink {staged.sink!r}: the directory {self._path} was deleted, emptied or exchanged while the job "
                    f"ran: it had epoch {before.epoch}. Restore it from a copy and start the job again, or start it "
                    "with on_lost_output='accept' to go on without what it had"
                )
            found = before
        if found is None or found.epoch < staged.epoch:
            return False
        if found.epoch == staged.epoch and not found.commit:
            return False  # the files in it say whose it is
        refuse_other_history(staged.sink, self._path, found, staged)
        return True

    def _remember(self, newest: Delivered) -> None:
        """Note what is published; if a crash loses the note, the names of the files still say it."""
        filesystem, path = directories.resolve(self._path)
        note = f"{path}/{_HIDDEN}/{_PUBLISHED}"
        draft = note if not isinstance(filesystem, pafs.LocalFileSystem) else f"{note}.{uuid.uuid4().hex}"
        with filesystem.open_output_stream(draft) as out:
            out.write(json.dumps({"epoch": newest.epoch, "commit": newest.commit}).encode())
        if draft != note:
            os.replace(draft, note)
        self._newest = newest

    def clean(self, what: Staging | Staged) -> None:
        """Remove what the run staged; after a publish also all other runs of this and earlier epochs."""
        if isinstance(what, Staging):
            directories.remove(self._location(what))
            return
        filesystem, parent = directories.resolve(self._staged_below(what.sink))
        for info in filesystem.get_file_info(pafs.FileSelector(parent, allow_not_found=True)):
            epoch, _, _ = info.base_name.partition("-")
            if epoch.isdigit() and int(epoch) <= what.epoch:
                directories.remove(directories.join(self._staged_below(what.sink), info.base_name))

    def describe(self) -> str:
        """Name directory, format and options."""
        return call("files", self._path, format=self._format, partition_by=self._partition_by, options=self._options)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the configuration only."""
        return {**self.__dict__, "_newest": None}

    def _staged_below(self, sink: str) -> str:
        return directories.join(self._path, _HIDDEN, quote(sink, safe=""))

    def _location(self, staging: Staging) -> str:
        return directories.join(self._staged_below(staging.sink), f"{staging.epoch}-{staging.run}")

    def _option(self, name: str, default: str) -> str:
        """Look an option up as Spark does, whatever its case."""
        found = [value for key, value in reveal_secrets(self._options).items() if key.lower() == name.lower()]
        return found[-1].lower() if found else default

    def _refuse_strangers(self, sink: str) -> None:
        filesystem, path = directories.resolve(self._path)
        found = filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True))
        strangers = sorted(info.base_name for info in found if info.base_name[0] not in "._")
        if strangers:
            raise SinkError(
                f"sink {sink!r} cannot write to {self._path}: it holds {strangers[0]!r}, which no Midstream "
                "job wrote. Give the sink a directory of its own, or empty this one"
            )

    def _is_empty(self, location: str, name: str) -> bool:
        filesystem, path = directories.resolve(location)
        if self._format == "parquet":
            return bool(pq.read_metadata(f"{path}/{name}", filesystem=filesystem).num_rows == 0)
        with filesystem.open_input_stream(f"{path}/{name}", compression="detect") as stream:
            text = stream.read(1 << 20)
        if self._format == "csv" and self._option("header", "false") == "true":
            _, end_of_header, rows = text.partition(b"\n")
            return not text or bool(end_of_header and not rows)
        return not text

    def _copy(self, staged: Staged, target: str) -> None:
        """Publish where directories cannot be renamed, file by file; a repetition copies the same files again."""
        filesystem, source = directories.resolve(staged.location)
        for name in staged.files:
            file = f"{target}/{name}"
            filesystem.create_dir(os.path.dirname(file), recursive=True)
            pafs.copy_files(f"{source}/{name}", file, source_filesystem=filesystem, destination_filesystem=filesystem)
