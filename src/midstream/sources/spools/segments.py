"""The spool on disk: numbered records in immutable Arrow files, and how any range of them is read again.

```
spool.json                            format, id and columns; written once
000000000000001200-400-1-<sum>.arrow  records 1200 to 1599, in a file that was merged once, and its checksum
readers/<name>.json                   what a reading job has committed, and how far back it may go
producers.json                        next sequence number of each producer, as of the deleted segments
dead-letters.jsonl                    what was refused, and why
lock                                  held by the one process that writes
```

A segment gets its name only once it is synced: a torn file of a crash ends in `.tmp`, and is never read. One process
writes, merges and deletes segments; readers only write their own file below `readers`.

Nothing is used before its checksum was compared: Arrow reads a segment in which a bit has changed as other records, or
crashes the process. The JSON files are sealed, and so is what a segment notes of producers, which a writer reads when
it starts, since reading all segments whole would take too long.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import msgspec
import pyarrow as pa

from midstream.checkpoint.checksum import checksum
from midstream.checkpoint.seals import BrokenSealError, format_of, seal, unseal
from midstream.checkpoint.storage import Storage
from midstream.errors import MidstreamError, PlanError
from midstream.sources.spools.columns import Column

SPEC = "spool.json"
READERS = "readers"
PRODUCERS = "producers.json"
DEAD_LETTERS = "dead-letters.jsonl"
LOCK = "lock"
TEMPORARY = ".tmp"
FORMAT = 2  # 1 had no checksums

_NAME = re.compile(r"(\d{18})-(\d+)-(\d+)-([0-9a-f]{16})\.arrow")
_NOTES = b"midstream.producers"
_TRIES = 50  # a directory that is read while segments are merged may show neither the old nor the new ones
_PAUSE = 0.02


class Spec(msgspec.Struct, frozen=True):
    """What a spool is: written once, when it is made."""

    id: str  # offsets of one spool mean nothing in another
    columns: tuple[Column, ...]
    format: int = FORMAT


class Mark(msgspec.Struct, frozen=True):
    """How far a reading job has come."""

    committed: int  # records before this one are done
    keep: float  # seconds for which they stay after that


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A file of records, described by its name."""

    first: int
    count: int
    level: int  # how often its records were merged into a larger file
    checksum: int
    size: int = 0  # bytes

    @property
    def end(self) -> int:
        """The record after its last."""
        return self.first + self.count

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.first:018}-{self.count}-{self.level}-{self.checksum:016x}.arrow"


def read_spec(directory: str) -> Spec:
    """Read what a spool is; `PlanError` if the directory is not one."""
    path = os.path.join(directory, SPEC)
    try:
        with open(path, "rb") as file:
            content = file.read()
        found = format_of(content, unsaid=1)
        spec = unseal(content, Spec) if found in (None, FORMAT) else None
    except (FileNotFoundError, NotADirectoryError):
        raise PlanError(
            f"{directory} is not a spool: it has no {SPEC}. Make one with `midstream ingest --to {directory}`"
        ) from None
    except BrokenSealError as error:
        raise PlanError(f"{path} is damaged: {error}. Restore the file, or begin a spool elsewhere") from None
    if spec is None:
        raise PlanError(
            f"{directory} has spool format {found}; this version of Midstream reads {FORMAT}. Let the version that "
            "wrote it read it to its end, and begin a spool elsewhere"
        )
    return spec


def scan(directory: str) -> tuple[list[Segment], list[Segment]]:
    """List the segments in order, and separately those whose records are in a merged one too."""
    found = []
    for entry in os.scandir(directory):
        match = _NAME.fullmatch(entry.name)
        if match:
            try:
                size = entry.stat().st_size
                found.append(Segment(int(match[1]), int(match[2]), int(match[3]), int(match[4], 16), size))
            except FileNotFoundError:
                continue  # merged or deleted meanwhile
    found.sort(key=lambda segment: (segment.first, -segment.count, -segment.level))
    chosen: list[Segment] = []
    for segment in found:
        if not chosen or segment.end > chosen[-1].end:
            chosen.append(segment)
    return chosen, [segment for segment in found if segment not in chosen]


def listing(directory: str) -> list[Segment]:
    """List the segments in order, without gaps; an error if records between them are gone."""
    gap = (0, 0)
    for _ in range(_TRIES):
        segments, _ = scan(directory)
        gaps = [(a.end, b.first) for a, b in pairwise(segments) if a.end != b.first]
        if not gaps:
            return segments
        gap = gaps[0]
        time.sleep(_PAUSE)
    raise MidstreamError(
        f"the spool {directory} has lost records {gap[0]} to {gap[1] - 1}: their file was deleted or moved. Restore "
        "it, or begin a new spool and a new checkpoint"
    )


def read(directory: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Read records `start` to `end - 1`, also while segments are merged.

    Promised: the same range gives the same records in the same order, or an error.
    """
    tries = 0
    while start < end:
        segments = [segment for segment in listing(directory) if segment.end > start]
        try:
            if not segments or segments[0].first > start or segments[-1].end < end:
                raise FileNotFoundError
            for segment in segments:
                if segment.first >= end:
                    break
                last = min(end, segment.end)
                yield from _rows(directory, segment, start - segment.first, last - segment.first)
                start, tries = last, 0
        except FileNotFoundError:
            tries += 1
            if tries >= _TRIES:
                raise _gone(directory, start, end) from None
            time.sleep(_PAUSE)


def noted(progress: Mapping[str, int]) -> dict[bytes, bytes]:
    """Return the metadata of a segment's schema: the producers' next sequence numbers after it."""
    return {_NOTES: seal(progress)}


def notes(directory: str, segment: Segment) -> dict[str, int]:
    """Read what a segment notes of producers, without reading all of it."""
    try:
        with pa.ipc.open_file(pa.memory_map(os.path.join(directory, segment.name))) as file:
            found = (file.schema.metadata or {}).get(_NOTES, b"")
        return unseal(found, dict[str, int])
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError, BrokenSealError) as error:
        raise _damaged(directory, segment, f"what it notes of producers cannot be read ({error})") from None


def sync_directory(directory: str) -> None:
    """Make the names in a directory durable."""
    Storage(directory).sync(".")


def local_directory(directory: str | os.PathLike[str]) -> str:
    """Return the absolute path of a spool; a URI is refused."""
    storage = Storage.at(directory)
    if not storage.is_local:
        raise PlanError(f"a spool must be in a directory that can be synced, not at {storage.root}; give a local path")
    return storage.root


def _rows(directory: str, segment: Segment, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Return rows of a segment, counted from its first."""
    state = os.stat(os.path.join(directory, segment.name))
    _verify(directory, segment, state.st_ino, state.st_mtime_ns)
    file = pa.ipc.open_file(_content(directory, segment))
    at = 0
    for index in range(file.num_record_batches):
        batch = file.get_batch(index)
        first, last = max(start - at, 0), min(end - at, batch.num_rows)
        if first < last:
            yield batch.slice(first, last - first).replace_schema_metadata(None)
        at += batch.num_rows
    if at != segment.count:
        raise _damaged(directory, segment, f"{at} records instead of {segment.count}")


@lru_cache(maxsize=4096)  # many small epochs read one large segment; failures are not cached
def _verify(directory: str, segment: Segment, inode: int, changed: int) -> None:
    """Compare the checksum of a file, once while it stays the same file."""
    if checksum(_content(directory, segment)) != segment.checksum:
        raise _damaged(directory, segment, "its content does not match the checksum in its name")


def _content(directory: str, segment: Segment) -> pa.Buffer:
    with pa.memory_map(os.path.join(directory, segment.name)) as file:
        return file.read_buffer()


def _damaged(directory: str, segment: Segment, what: str) -> MidstreamError:
    return MidstreamError(
        f"the segment {os.path.join(directory, segment.name)} is damaged: {what}. Restore the file from a copy; "
        f"without one records {segment.first} to {segment.end - 1} are lost: begin a new spool and a new checkpoint"
    )


def _gone(directory: str, start: int, end: int) -> MidstreamError:
    segments = listing(directory)
    there = f"{segments[0].first} to {segments[-1].end - 1}" if segments else "none"
    return MidstreamError(
        f"records {start} to {end - 1} are not in the spool {directory}, which has {there}. Records that a job "
        "committed are deleted after `keep`: start from a newer savepoint, or set a longer spool(..., keep=...)"
    )
