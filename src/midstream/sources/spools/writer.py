"""The one writer of a spool: it appends, merges small segments into large ones, deletes what all readers have read."""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from midstream.checkpoint.checksum import checksum
from midstream.checkpoint.seals import BrokenSealError, seal, unseal
from midstream.checkpoint.storage import Storage
from midstream.errors import MidstreamError, PlanError
from midstream.sources.spools import segments as layout
from midstream.sources.spools.columns import Column, arrow_schema, ddl
from midstream.sources.spools.segments import Mark, Segment, Spec

MERGE = 32  # this many small segments in a row become one: few files, and each record is rarely rewritten
MERGED_BYTES = 32 << 20


class SpoolWriter:
    """Appends records to a spool, durably.

    Promised: when `append` returns, its records and the producers' progress are on disk, both or none; one process
    writes at a time; nothing is deleted that a reader has not committed.
    Not promised: that two threads may call it at once.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        columns: Sequence[Column],
        *,
        max_bytes: int = 10 << 30,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.directory = layout.local_directory(directory)
        self.max_bytes = max_bytes
        self._storage = Storage(self.directory)
        os.makedirs(os.path.join(self.directory, layout.READERS), exist_ok=True)
        self._lock = _locked(self.directory)
        try:
            self.spec = _spec(self._storage, tuple(columns))
            self.schema = arrow_schema(self.spec.columns)
            self._segments = self._cleaned()
            self.producers = self._known_producers()  # {producer: next sequence number}, all on disk
        except BaseException:
            self.close()
            raise
        self._bytes = sum(segment.size for segment in self._segments)
        self._retention = Retention(clock)

    @property
    def end(self) -> int:
        """The number of the next record."""
        return self._segments[-1].end if self._segments else 0

    @property
    def used(self) -> int:
        """Bytes on disk, dead letters included."""
        try:
            letters = os.stat(os.path.join(self.directory, layout.DEAD_LETTERS)).st_size
        except FileNotFoundError:
            letters = 0
        return self._bytes + letters

    def fits(self, size: int) -> bool:
        """Tell whether this many more bytes stay within the bound."""
        return self.used + size <= self.max_bytes

    def append(self, rows: pa.Table, progress: Mapping[str, int]) -> None:
        """Write records and the producers' next sequence numbers, synced, as one step."""
        if rows.num_rows:
            self._segments.append(self._write(rows, self.end, 0, progress))
            self._bytes += self._segments[-1].size
        self.producers.update(progress)
        if progress and not rows.num_rows:
            self._save_producers()
        self._merge()

    def release(self) -> int:
        """Delete the segments that no reader needs any more, and return the number of bytes freed.

        The newest segment stays: it holds the number of the next record.
        """
        done = self._retention.done(self._marks())
        gone = [segment for segment in self._segments[:-1] if segment.end <= done]
        if gone and self.producers:
            self._save_producers()
        for segment in gone:
            self._storage.delete(segment.name)
        del self._segments[: len(gone)]
        freed = sum(segment.size for segment in gone)
        self._bytes -= freed
        return freed

    def close(self) -> None:
        """Let another process write."""
        os.close(self._lock)

    def _write(self, rows: pa.Table, first: int, level: int, progress: Mapping[str, int]) -> Segment:
        notes = layout.noted(progress)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, self.schema.with_metadata(notes)) as file:
            file.write_table(rows.combine_chunks().replace_schema_metadata(notes), max_chunksize=1 << 16)
        content = sink.getvalue()
        segment = Segment(first, rows.num_rows, level, checksum(content), content.size)
        temporary = segment.name + layout.TEMPORARY
        try:
            self._storage.write_new(temporary, content)
            os.rename(self._storage.path(temporary), self._storage.path(segment.name))
            layout.sync_directory(self.directory)
        except BaseException as error:
            self._storage.delete(temporary)
            self._storage.delete(segment.name)  # it was not acknowledged: its records will come again
            raise (error.__cause__ if isinstance(error.__cause__, OSError) else error) from None
        return segment

    def _merge(self) -> None:
        """Merge the newest segments while enough of one level follow each other."""
        limit = min(MERGED_BYTES, self.max_bytes // 8)
        while True:
            last = self._segments[-MERGE:]
            size = sum(segment.size for segment in last)
            alike = len(last) == MERGE and len({segment.level for segment in last}) == 1
            if not alike or size > limit or not self.fits(size):
                return
            notes: dict[str, int] = {}
            for segment in last:
                notes |= layout.notes(self.directory, segment)
            batches = list(layout.read(self.directory, last[0].first, last[-1].end))
            rows = pa.Table.from_batches(batches, self.schema)
            merged = self._write(rows, last[0].first, last[0].level + 1, notes)
            self._segments[-MERGE:] = [merged]
            for segment in last:
                self._storage.delete(segment.name)
            self._bytes += merged.size - size

    def _cleaned(self) -> list[Segment]:
        """List the segments, and delete what a crash left: torn files, and those that were merged already."""
        _, merged = layout.scan(self.directory)
        for segment in merged:
            self._storage.delete(segment.name)
        for name in self._storage.list("."):
            if name.endswith(layout.TEMPORARY):
                self._storage.delete(name)
        return layout.listing(self.directory)

    def _known_producers(self) -> dict[str, int]:
        known: dict[str, int] = {}
        if self._storage.exists(layout.PRODUCERS):
            try:
                known = unseal(self._storage.read(layout.PRODUCERS), dict[str, int])
            except BrokenSealError as error:
                raise MidstreamError(
                    f"{self._storage.path(layout.PRODUCERS)} is damaged: {error}. Restore the file from a copy; "
                    "without one it is unknown what producers have sent: let the job read this spool to its end, "
                    "and begin one elsewhere"
                ) from None
        for segment in self._segments:
            for producer, following in layout.notes(self.directory, segment).items():
                known[producer] = max(following, known.get(producer, 0))
        return known

    def _save_producers(self) -> None:
        self._storage.write(layout.PRODUCERS, seal(self.producers))

    def _marks(self) -> dict[str, Mark]:
        marks = {}
        for name in self._storage.list(layout.READERS):
            if not name.endswith(".json"):
                continue
            try:
                marks[name] = unseal(self._storage.read(f"{layout.READERS}/{name}"), Mark)
            except FileNotFoundError:
                continue  # removed meanwhile, to forget the reader
            except BrokenSealError:
                marks[name] = Mark(0, 0.0)  # its mark cannot be read, so everything stays
        return marks


class Retention:
    """Decides which records no reader needs again; pure but for the clock it is given.

    Promised: a record counts as done when every reader has committed it, and was seen to have done so `keep` ago.
    Not promised: memory of earlier processes. After a restart of the writer the time starts again.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[str, deque[tuple[float, int]]] = {}  # reader -> (when seen, committed), oldest first

    def done(self, marks: Mapping[str, Mark]) -> int:
        """Note what the readers have committed, and return the record before which all is done; 0 without readers."""
        now = self._clock()
        done = []
        for reader, mark in marks.items():
            seen = self._seen.setdefault(reader, deque([(now, 0)]))
            if mark.committed != seen[-1][1]:
                seen.append((now, mark.committed))
            while len(seen) > 1 and seen[1][0] <= now - mark.keep:
                seen.popleft()
            done.append(min(committed for _, committed in seen))  # a job may have gone back to a savepoint
        return min(done, default=0)


def _locked(directory: str) -> int:
    """Take the lock of a spool, which ends with the process."""
    lock = os.open(os.path.join(directory, layout.LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise MidstreamError(
            f"another process writes to the spool {directory}; stop it first, or use another directory"
        ) from None
    return lock


def _spec(storage: Storage, columns: tuple[Column, ...]) -> Spec:
    """Read what the spool is, or create it."""
    if not storage.exists(layout.SPEC):
        spec = Spec(uuid.uuid4().hex, columns)
        storage.write(layout.SPEC, seal(spec))
        return spec
    spec = layout.read_spec(storage.root)
    if spec.columns != columns:
        raise PlanError(
            f"the spool {storage.root} has the columns {ddl(spec.columns)}, not {ddl(columns)}. Use its own schema, "
            "or write to another directory"
        )
    return spec
