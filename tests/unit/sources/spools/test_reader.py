"""The spool as a source, without Spark: offsets are record numbers, and any epoch can be read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from midstream.errors import MidstreamError, PlanError
from midstream.sources.spools import columns, segments
from midstream.sources.spools.reader import FORMAT, SpoolSource
from midstream.sources.spools.writer import SpoolWriter
from tests.support.spools import N, reader, rows


def test_epochs_are_bounded_and_shared_among_tasks(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, N)
    writer.append(rows(*range(100)), {})
    source = reader(tmp_path, max_rows=60)
    start = source.initialOffset()
    source.prepareForTriggerAvailableNow()
    writer.append(rows(100), {})
    middle = source.latestOffset(start, source.getDefaultReadLimit())
    end = source.latestOffset(middle, source.getDefaultReadLimit())
    assert [offset["record"] for offset in (start, middle, end, source.reportLatestOffset())] == [0, 60, 100, 101]
    assert source.latestOffset(end, source.getDefaultReadLimit()) == end
    parts = source.partitions(start, {**end, "record": 50_000})
    assert [(part.start, part.end) for part in parts] == [(0, 25_000), (25_000, 50_000)]  # type: ignore[attr-defined]
    (part,) = source.partitions(middle, end)
    assert sum(batch.num_rows for batch in source.read(part)) == 40
    assert source.partitions(end, end) == []
    with pytest.raises(MidstreamError, match="not the spool"):
        source.partitions({"spool": "x", "record": 0}, end)


def test_a_spool_without_records_is_read_from_its_beginning(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, N)
    source = reader(tmp_path)
    start = source.initialOffset()
    assert start == source.latestOffset(start, ReadAllAvailable()) == source.reportLatestOffset()
    assert start["record"] == 0
    assert source.partitions(start, start) == []
    writer.append(rows(7), {})
    assert source.latestOffset(start, ReadAllAvailable())["record"] == 1


def test_a_new_reader_begins_with_the_oldest_record_that_is_there(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, N)
    for n in range(3):
        writer.append(rows(n), {})
    done = reader(tmp_path)
    done.commit({"record": 2})
    assert writer.release() > 0
    assert reader(tmp_path).initialOffset()["record"] == 2


def test_every_record_of_an_epoch_is_in_one_task(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, N)
    writer.append(rows(*range(70_001)), {})
    for tasks in (1, 2, 3, 100):
        source = reader(tmp_path, tasks=tasks)
        start, end = source.initialOffset(), source.reportLatestOffset()
        parts = source.partitions(start, end)
        assert 1 <= len(parts) <= tasks
        found = [n for part in parts for batch in source.read(part) for n in batch.column(0).to_pylist()]
        assert found == list(range(70_001))


def test_what_is_asked_for_is_read_up_to_there_is_committed(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, N)
    writer.append(rows(*range(10)), {})
    source = reader(tmp_path, keep=5.0)
    mark = tmp_path / segments.READERS / "job.json"
    start = source.initialOffset()
    assert json.loads(mark.read_text())["record"] == {"committed": 0, "keep": 5.0}
    middle = source.latestOffset(start, ReadMaxRows(4))
    assert json.loads(mark.read_text())["record"]["committed"] == 0, "the epoch may fail"
    source.latestOffset(middle, ReadMaxRows(4))
    assert json.loads(mark.read_text())["record"]["committed"] == 4


def test_an_epoch_has_all_there_is_unless_it_is_bounded(tmp_path: Path) -> None:
    SpoolWriter(tmp_path, N).close()
    assert isinstance(reader(tmp_path).getDefaultReadLimit(), ReadAllAvailable)
    limit = reader(tmp_path, max_rows=3).getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    assert limit.max_rows == 3


def test_records_that_are_gone_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_PAUSE", 0)
    writer = SpoolWriter(tmp_path, N)
    for n in range(3):
        writer.append(rows(n), {})
    source = reader(tmp_path)
    start, end = source.initialOffset(), source.reportLatestOffset()
    source.commit({"record": 2})
    assert writer.release() > 0
    (part,) = source.partitions(start, end)
    with pytest.raises(MidstreamError, match=r"records 0 to 2 are not in the spool .*, which has 2 to 2"):
        list(source.read(part))


def test_spark_is_told_the_columns_and_options_of_the_spool(tmp_path: Path) -> None:
    SpoolWriter(tmp_path, columns.parse("n long, `a b` decimal(10,2)")).close()
    options = {"directory": str(tmp_path), "reader": "job", "max_rows": "7", "keep": "0.5", "tasks": "2"}
    source = SpoolSource(options)
    assert (source.name(), source.schema()) == (FORMAT, "`n` bigint, `a b` decimal(10,2)")
    limit = source.streamReader(None).getDefaultReadLimit()  # type: ignore[arg-type]
    assert limit.max_rows == 7  # type: ignore[attr-defined]
    with pytest.raises(PlanError, match="is not a spool"):
        SpoolSource(options | {"directory": str(tmp_path / "elsewhere")}).schema()
