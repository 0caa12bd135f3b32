"""Group commit: blocks of many connections become one segment, one sync, and then all of them are acknowledged."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from midstream.errors import SchemaError
from midstream.ingest.records import Format, Parsed, RefusedRecord
from midstream.sources.spools.segments import DEAD_LETTERS, sync_directory
from midstream.sources.spools.writer import SpoolWriter

LINGER = 0.002  # seconds that a group waits for more: less syncing, fewer files
GROUP_BYTES = 16 << 20
LARGE_BYTES = 1 << 20
RELEASE_EVERY = 0.25
MAX_PRODUCERS = 100_000
_OVERHEAD = 8192  # bytes of a segment that are not rows, about
_LETTER_BYTES = 4096  # of a refused record that its dead letter quotes


@dataclass(frozen=True, slots=True)
class Block:
    """Records as one connection sent them; with a producer, the sequence number of the first."""

    data: bytes
    source: str
    producer: str | None = None
    sequence: int = 0


class Stored(NamedTuple):
    """On disk, all but what was refused; duplicates were there before."""

    accepted: int
    duplicates: int
    refused: list[RefusedRecord]

    @property
    def records(self) -> int:
        """How many records are done."""
        return self.accepted + self.duplicates + len(self.refused)


class Full(NamedTuple):
    """Nothing was kept: the spool is at its bound."""


class Gap(NamedTuple):
    """Nothing was kept: the producer has left out records."""

    following: int  # the sequence number that is expected


class Malformed(NamedTuple):
    """Nothing was kept: the block has no records."""

    reason: str


Outcome = Stored | Full | Gap | Malformed
T = TypeVar("T")


@dataclass(slots=True)
class _Group:
    """What the next segment will hold."""

    rows: list[pa.Table] = field(default_factory=list)
    progress: dict[str, int] = field(default_factory=dict)  # {producer: next sequence number}
    letters: list[bytes] = field(default_factory=list)
    size: int = _OVERHEAD


class _Waiting(NamedTuple):
    """A block that waits for its group."""

    block: Block
    content: Parsed | Malformed | None  # none: still to be read
    outcome: asyncio.Future[Outcome]


class Committer:
    """Owns the writer of a spool, and the only thread that touches it.

    Promised: `submit` returns `Stored` only once the records are synced; a producer's record is stored once, however
    often it is sent; what is not stored can be sent again.
    Not promised: once for records without a producer, or in the dead letters.
    """

    def __init__(self, writer: SpoolWriter, format: Format) -> None:
        self.records = self.refused = 0  # since the start
        self.full = False
        self._writer, self._format = writer, format
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="midstream-commit")
        self._apart = ThreadPoolExecutor(1, thread_name_prefix="midstream-large")
        self._waiting: list[_Waiting] = []
        self._work = asyncio.Event()
        self._room = asyncio.Event()

    @property
    def used(self) -> int:
        """Bytes on disk."""
        return self._writer.used

    @property
    def max_bytes(self) -> int:
        """The bound."""
        return self._writer.max_bytes

    def following(self, producer: str) -> int:
        """The sequence number that a producer should send next."""
        return self._writer.producers.get(producer, 0)

    def knows(self, producer: str) -> bool:
        """Tell whether a producer can be served: it is known, or there is room for one more."""
        return producer in self._writer.producers or len(self._writer.producers) < MAX_PRODUCERS

    async def submit(self, block: Block) -> Outcome:
        """Submit a block to the next group, and wait until it is written."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        # A large block takes seconds to parse, so it is parsed separately, one at a time, and small ones overtake it.
        is_large = len(block.data) > LARGE_BYTES
        content = await loop.run_in_executor(self._apart, self._read, block) if is_large else None
        self._waiting.append(_Waiting(block, content, future))
        self._work.set()
        return await future

    async def room(self) -> None:
        """Wait until it is worth trying again after `Full`."""
        self._room.clear()
        await self._room.wait()

    async def run(self) -> None:
        """Commit groups until cancelled; an error of the disk ends it."""
        while True:
            await self._work.wait()
            await asyncio.sleep(LINGER)
            group = self._next_group()
            outcomes = await self._in_thread(self._commit, group)
            for waiting, outcome in zip(group, outcomes, strict=True):
                if not waiting.outcome.done():  # its connection may be gone
                    waiting.outcome.set_result(outcome)

    async def release(self) -> None:
        """Free what no reader needs any more, again and again until cancelled."""
        while True:
            freed = await self._in_thread(self._writer.release)
            if freed or self.used < self.max_bytes:
                self.full = False
                self._room.set()
            await asyncio.sleep(RELEASE_EVERY)

    def close(self) -> None:
        """End the thread after its current work, and release the spool."""
        self._apart.shutdown(wait=True, cancel_futures=True)
        self._thread.shutdown(wait=True)
        self._writer.close()

    def _next_group(self) -> list[_Waiting]:
        size = taken = 0
        while taken < len(self._waiting) and (taken == 0 or size < min(GROUP_BYTES, self.max_bytes // 8)):
            size += len(self._waiting[taken].block.data)
            taken += 1
        group, self._waiting = self._waiting[:taken], self._waiting[taken:]
        if not self._waiting:
            self._work.clear()
        return group

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    def _commit(self, blocks: Sequence[_Waiting]) -> list[Outcome]:
        """Write a group: dead letters first, since a refusal that is acknowledged must be on disk."""
        group = _Group()
        outcomes = [
            self._take(waiting.block, waiting.content or self._read(waiting.block), group) for waiting in blocks
        ]
        try:
            if group.letters:
                append_letters(self._writer.directory, group.letters)
            if group.rows or group.progress:
                rows = pa.concat_tables(group.rows) if group.rows else self._writer.schema.empty_table()
                self._writer.append(rows, group.progress)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            outcomes = [Full() if isinstance(outcome, Stored) else outcome for outcome in outcomes]
        self.full = self.full or any(isinstance(outcome, Full) for outcome in outcomes)
        stored = [outcome for outcome in outcomes if isinstance(outcome, Stored)]
        self.records += sum(outcome.accepted for outcome in stored)
        self.refused += sum(len(outcome.refused) for outcome in stored)
        return outcomes

    def _read(self, block: Block) -> Parsed | Malformed:
        """Turn a block into rows; in any thread."""
        try:
            return self._format.parse(self._format.split(block.data))
        except Exception as error:  # whatever a producer sends must not end the server
            return Malformed(str(error) if isinstance(error, SchemaError) else f"cannot be read: {error!r}")

    def _take(self, block: Block, content: Parsed | Malformed, group: _Group) -> Outcome:
        """Add a block to a group, unless it does not fit; nothing is written yet."""
        if isinstance(content, Malformed):
            group.letters.append(letter(block, RefusedRecord(0, content.reason, b""), len(block.data)))
            return content
        records, duplicates = content.rows.num_rows + len(content.refused), 0
        if block.producer is not None:
            following = group.progress.get(block.producer, self.following(block.producer))
            if block.sequence > following:
                return Gap(following)
            duplicates = min(following - block.sequence, records)
        refused = [one for one in content.refused if one.place >= duplicates]
        rows = content.rows.slice(duplicates - (len(content.refused) - len(refused)))
        letters = [letter(block, one, len(one.content)) for one in refused]
        size = rows.nbytes + sum(map(len, letters))
        if size > self.max_bytes // 2:
            return Malformed(f"{len(block.data)} bytes at once do not fit in a spool of {self.max_bytes}")
        if not self._writer.fits(group.size + size):
            return Full()
        group.size += size
        group.letters += letters
        if rows.num_rows:
            group.rows.append(rows)
        if block.producer is not None and records > duplicates:
            group.progress[block.producer] = block.sequence + records
        return Stored(rows.num_rows, duplicates, refused)


def letter(block: Block, refused: RefusedRecord, size: int) -> bytes:
    """Write a refusal as a line of JSON."""
    content = {
        "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "source": block.source,
        "producer": block.producer,
        "record": block.sequence + refused.place,
        "reason": refused.reason,
        "bytes": size,
        "content": refused.content[:_LETTER_BYTES].decode(errors="replace"),
    }
    return msgspec.json.encode(content) + b"\n"


def append_letters(directory: str, letters: Sequence[bytes]) -> None:
    """Add to the dead letters, synced; the file may be moved away at any time."""
    path = os.path.join(directory, DEAD_LETTERS)
    is_new = not os.path.exists(path)
    with open(path, "ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # a crash has torn the last one
                file.write(b"\n")
        file.write(b"".join(letters))
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync_directory(directory)
