"""The one writer of a spool: what it has appended is durable, merged and kept for as long as a reader wants it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

from midstream.errors import MidstreamError, PlanError
from midstream.sources.spools import columns, segments
from midstream.sources.spools import writer as spool_writer
from midstream.sources.spools.segments import Mark
from midstream.sources.spools.writer import Retention, SpoolWriter
from tests.support.spools import N, names, read, reader, rows


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_small_segments_become_few_large_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_writer, "MERGE", 6)
    writer = SpoolWriter(tmp_path, N)
    for n in range(spool_writer.MERGE**2 + 5):
        writer.append(rows(n), {f"p{n % 7}": n})
    assert [segment.level for segment in segments.listing(str(tmp_path))] == [2, 0, 0, 0, 0, 0]
    assert read(tmp_path, 0, writer.end) == list(range(writer.end))
    known = writer.producers
    writer.close()
    assert SpoolWriter(tmp_path, N).producers == known


def test_a_segment_that_could_not_be_synced_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SpoolWriter(tmp_path, N)

    def full(directory: str) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(segments, "sync_directory", full)
        with pytest.raises(OSError, match="no space left"):
            writer.append(rows(1, 2, 3), {})
    assert names(tmp_path) == [], "else a reader would see records that were not acknowledged, and then others"
    writer.append(rows(4), {})
    assert read(tmp_path, 0, 1) == [4]


def test_a_spool_has_one_writer_and_one_schema(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, N)
    with pytest.raises(MidstreamError, match="another process writes"):
        SpoolWriter(tmp_path, N)
    writer.close()
    with pytest.raises(PlanError, match="has the columns `n` bigint, not `m` string"):
        SpoolWriter(tmp_path, columns.parse("m string"))
    SpoolWriter(tmp_path, N).close()


def test_a_writer_that_could_not_begin_lets_others(tmp_path: Path) -> None:
    SpoolWriter(tmp_path, N).close()
    (tmp_path / segments.PRODUCERS).write_bytes(b"{")
    for _ in range(2):
        with pytest.raises(MidstreamError, match=r"producers\.json is damaged: .* Restore the file from a copy"):
            SpoolWriter(tmp_path, N)
    (tmp_path / segments.PRODUCERS).unlink()
    SpoolWriter(tmp_path, N).close()


def test_the_bound_counts_segments_and_dead_letters(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, N, max_bytes=100_000)
    assert (writer.used, writer.end) == (0, 0)
    assert [writer.fits(size) for size in (0, 100_000, 100_001)] == [True, True, False]
    writer.append(rows(*range(10)), {})
    (tmp_path / segments.DEAD_LETTERS).write_bytes(b"x" * 5_000)
    (segment,) = tmp_path.glob("*.arrow")
    assert writer.used == segment.stat().st_size + 5_000
    assert writer.fits(100_000 - writer.used)
    assert not writer.fits(100_000 - writer.used + 1)


def test_what_would_not_fit_beside_its_parts_is_not_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_writer, "MERGE", 3)
    writer = SpoolWriter(tmp_path, N, max_bytes=1 << 20)
    for n in range(2):
        writer.append(rows(n), {})
    writer.max_bytes = writer.used * 2
    writer.append(rows(2), {})
    assert len(names(tmp_path)) == 3
    assert read(tmp_path, 0, 3) == [0, 1, 2]


def test_a_record_has_one_number_for_ever_over_restarts(tmp_path: Path) -> None:
    written = [os.urandom(1)[0] for _ in range(12)]
    for start in range(0, 12, 4):
        writer = SpoolWriter(tmp_path, N)
        assert writer.end == start
        writer.append(rows(*written[start : start + 1]), {})
        writer.append(rows(*written[start + 1 : start + 4]), {})
        writer.close()
    assert [read(tmp_path, n, n + 1) for n in range(12)] == [[n] for n in written]


def test_columns_may_be_null_and_are_those_of_the_spool(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, columns.parse("n long, s string"))
    writer.append(pa.table({"n": pa.array([None], pa.int64()), "s": ["ä"]}), {})
    (batch,) = segments.read(str(tmp_path), 0, 1)
    assert batch.to_pylist() == [{"n": None, "s": "ä"}]
    assert batch.schema == writer.schema


# --- retention ------------------------------------------------------------------------------------------------------


def test_what_every_reader_has_committed_goes_after_its_time_and_no_earlier() -> None:
    clock = Clock()
    retention = Retention(clock)
    assert retention.done({}) == 0
    assert retention.done({"a": Mark(10, 60), "b": Mark(7, 0)}) == 0
    clock.now = 59
    assert retention.done({"a": Mark(20, 60), "b": Mark(30, 0)}) == 0
    clock.now = 60
    assert retention.done({"a": Mark(20, 60), "b": Mark(30, 0)}) == 10
    clock.now = 119
    assert retention.done({"a": Mark(5, 60), "b": Mark(30, 0)}) == 5, "a job may go back to a savepoint"
    clock.now = 300
    assert retention.done({"a": Mark(5, 60), "b": Mark(30, 0)}) == 5
    assert retention.done({"b": Mark(30, 0)}) == 30, "a reader that is forgotten holds nothing"


def test_the_newest_segment_stays_and_so_do_the_producers(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, N)
    assert writer.release() == 0
    for n in range(3):
        writer.append(rows(n), {f"p{n}": n + 1})
    assert writer.release() == 0, "nobody has read them"
    source = reader(tmp_path)
    offset = source.latestOffset(source.initialOffset(), source.getDefaultReadLimit())
    source.commit(offset)
    broken = tmp_path / segments.READERS / "broken.json"
    broken.write_text("{")
    assert writer.release() == 0, "a reader that cannot tell what it has read holds all"
    broken.unlink()
    before = writer.used
    assert writer.release() == before - writer.used > 0
    (left,) = names(tmp_path)
    assert left.startswith("000000000000000002-1-0-")
    writer.close()
    writer = SpoolWriter(tmp_path, N)
    assert writer.end == 3
    assert writer.producers == {"p0": 1, "p1": 2, "p2": 3}


def test_progress_without_rows_is_durable_too(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, N)
    writer.append(rows(), {"p": 4})
    writer.close()
    assert SpoolWriter(tmp_path, N).producers == {"p": 4}
