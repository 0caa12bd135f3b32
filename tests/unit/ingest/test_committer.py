"""Group commit: what becomes of blocks that are written together, and of what is refused in them."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from pathlib import Path

import pytest

from midstream.ingest import committer as committing
from midstream.ingest import records
from midstream.ingest.committer import Block, Committer, Full, Gap, Malformed, Outcome, Stored, append_letters, letter
from midstream.ingest.records import RefusedRecord
from midstream.sources.spools import segments
from midstream.sources.spools.writer import SpoolWriter
from tests.support.spools import N, names, reader
from tests.support.spools import read as read_range


def read(directory: Path) -> list[int]:
    there = segments.listing(str(directory))
    return read_range(directory, 0, there[-1].end)


def committed(writer: SpoolWriter, *blocks: Block) -> list[Outcome]:
    """What becomes of blocks that are submitted together."""

    async def run() -> list[Outcome]:
        committer = Committer(writer, records.of("json", N, 100))
        running = asyncio.ensure_future(committer.run())
        outcomes = asyncio.gather(*map(committer.submit, blocks))
        try:
            await asyncio.wait([running, outcomes], return_when=asyncio.FIRST_COMPLETED)
            return outcomes.result() if outcomes.done() else running.result()  # type: ignore[return-value]
        finally:
            outcomes.cancel()
            running.cancel()
            await asyncio.gather(running, outcomes, return_exceptions=True)
            committer.close()

    return asyncio.run(run())


def test_blocks_that_come_together_become_one_segment(tmp_path: Path) -> None:
    one, two, again = b'{"n":1}\n', b'{"n":2}\nnonsense\n', b'{"n":2}\nnonsense\n{"n":3}\n'
    first, second, third, gap = committed(
        SpoolWriter(tmp_path, N), Block(one, "a"), Block(two, "b", "p"), Block(again, "c", "p"), Block(one, "d", "q", 5)
    )
    assert (first, third, gap) == (Stored(1, 0, []), Stored(1, 2, []), Gap(0))
    assert isinstance(second, Stored)
    assert (second.accepted, second.records, len(second.refused)) == (1, 2, 1)
    (segment,) = names(tmp_path)
    assert segment.startswith("000000000000000000-3-0-")
    assert read(tmp_path) == [1, 2, 3]
    assert SpoolWriter(tmp_path, N).producers == {"p": 3}


def test_a_full_disk_pushes_back_and_a_broken_one_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(number: int) -> None:
        def fsync(file: int) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr("midstream.checkpoint.storage.os.fsync", fsync)

    writer = SpoolWriter(tmp_path, N)
    fail(errno.ENOSPC)
    assert committed(writer, Block(b'{"n":1}', "a", "p")) == [Full()]
    assert names(tmp_path) == []
    monkeypatch.undo()
    writer = SpoolWriter(tmp_path, N)
    assert writer.producers == {}
    fail(errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        committed(writer, Block(b'{"n":1}', "a"))


def test_what_never_fits_is_refused_instead_of_waiting_for_ever(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, N, max_bytes=10_000)
    (outcome,) = committed(writer, Block(b'{"n":1}\n' * 1000, "a"))
    assert isinstance(outcome, Malformed)
    assert "do not fit in a spool of 10000" in outcome.reason


def test_a_torn_dead_letter_does_not_spoil_the_next(tmp_path: Path) -> None:
    append_letters(str(tmp_path), [b'{"a":1}\n', b'{"to'])
    append_letters(str(tmp_path), [b'{"b":2}\n'])
    assert (tmp_path / segments.DEAD_LETTERS).read_bytes() == b'{"a":1}\n{"to\n{"b":2}\n'


def test_a_refusal_is_on_record_with_where_it_came_from_and_why(tmp_path: Path) -> None:
    (outcome,) = committed(SpoolWriter(tmp_path, N), Block(b'{"n":1}\nnonsense\n', "10.0.0.1:5", "p", 0))
    assert isinstance(outcome, Stored)
    (found,) = map(json.loads, (tmp_path / segments.DEAD_LETTERS).read_text().splitlines())
    time, reason = found.pop("time"), found.pop("reason")
    assert found == {"source": "10.0.0.1:5", "producer": "p", "record": 1, "bytes": 8, "content": "nonsense"}
    assert time.endswith("+00:00")
    assert reason == outcome.refused[0].reason != ""


def test_a_letter_quotes_the_beginning_of_what_it_is_about() -> None:
    content = b"\xff" + b"x" * 10_000
    found = json.loads(letter(Block(b"", "a", None, 7), RefusedRecord(3, "too long", content), len(content)))
    assert (found["record"], found["bytes"], found["producer"]) == (10, 10_001, None)
    assert found["content"] == "\ufffd" + "x" * 4095


def test_a_producer_that_sends_again_is_stored_once_and_its_refusals_are_not_told_again(tmp_path: Path) -> None:
    first = Block(b'{"n":0}\nnonsense\n{"n":2}\n', "a", "p", 0)
    overlapping = Block(b'nonsense\n{"n":2}\nmore nonsense\n{"n":4}\n', "a", "p", 1)
    one, other = committed(SpoolWriter(tmp_path, N), first, overlapping)
    assert isinstance(one, Stored)
    assert isinstance(other, Stored)
    assert (one.accepted, one.duplicates, [refused.place for refused in one.refused]) == (2, 0, [1])
    assert (other.accepted, other.duplicates, [refused.place for refused in other.refused]) == (1, 2, [2])
    assert (one.records, other.records) == (3, 4)
    assert read(tmp_path) == [0, 2, 4]
    assert len((tmp_path / segments.DEAD_LETTERS).read_text().splitlines()) == 2


def test_all_of_it_again_leaves_no_segment(tmp_path: Path) -> None:
    block = Block(b'{"n":1}\n', "a", "p", 0)
    committed(SpoolWriter(tmp_path, N), block)
    before = names(tmp_path)
    assert committed(SpoolWriter(tmp_path, N), block) == [Stored(0, 1, [])]
    assert names(tmp_path) == before


def test_a_block_without_records_is_stored_and_changes_nothing(tmp_path: Path) -> None:
    assert committed(SpoolWriter(tmp_path, N), Block(b"", "a"), Block(b"\n \r\n", "a", "p")) == [Stored(0, 0, [])] * 2
    assert names(tmp_path) == []
    assert SpoolWriter(tmp_path, N).producers == {}


def test_a_large_block_is_read_apart_and_stored_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "LARGE_BYTES", 10)
    large = Block(b"".join(b'{"n":%d}\n' % n for n in range(5)), "a")
    assert committed(SpoolWriter(tmp_path, N), large, Block(b'{"n":9}', "b")) == [Stored(5, 0, []), Stored(1, 0, [])]
    assert sorted(read(tmp_path)) == [0, 1, 2, 3, 4, 9]


def test_only_so_many_producers_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "MAX_PRODUCERS", 2)
    writer = SpoolWriter(tmp_path, N)
    writer.append(writer.schema.empty_table(), {"p": 3})

    async def look() -> list[bool]:
        committer = Committer(writer, records.of("json", N, 100))
        try:
            writer.producers["q"] = 1
            assert (committer.following("p"), committer.following("new")) == (3, 0)
            return [committer.knows(name) for name in ("p", "q", "new")]
        finally:
            committer.close()

    assert asyncio.run(look()) == [True, True, False]


def test_a_spool_at_its_bound_takes_nothing_until_a_reader_has_committed(tmp_path: Path) -> None:
    async def run() -> list[Outcome]:
        committer = Committer(SpoolWriter(tmp_path, N, max_bytes=30_000), records.of("json", N, 100))
        duties = [asyncio.ensure_future(committer.run())]
        found: list[Outcome] = []
        try:
            while not found or isinstance(found[-1], Stored):
                found.append(await committer.submit(Block(b'{"n":1}\n' * 300, "a")))
            assert committer.full
            job = reader(tmp_path)
            job.commit(job.reportLatestOffset())
            duties.append(asyncio.ensure_future(committer.release()))
            await asyncio.wait_for(committer.room(), 30)
            assert not committer.full
            found.append(await committer.submit(Block(b'{"n":2}\n', "a")))
            assert committer.used <= committer.max_bytes
            return found
        finally:
            for duty in duties:
                duty.cancel()
            await asyncio.gather(*duties, return_exceptions=True)
            committer.close()

    *stored, full, again = asyncio.run(run())
    assert len(stored) > 1
    assert (full, again) == (Full(), Stored(1, 0, []))
