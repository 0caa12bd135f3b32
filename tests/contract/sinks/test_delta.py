"""What the Delta sink promises beyond the contract that all sinks share."""

from __future__ import annotations

import datetime as dt
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import cloudpickle
import pytest
from deltalake import DeltaTable, write_deltalake

from midstream import sinks
from midstream.errors import SinkError

if TYPE_CHECKING:
    from tests.contract.conftest import Engine

Start = Callable[..., "Engine"]


def test_other_writers_may_use_the_table(start: Start, tmp_path: Path) -> None:
    engine = start(sinks.delta(tmp_path / "t"))
    staged = [engine.stage(epoch, [(epoch, "ours")]) for epoch in range(2)]
    engine.publish(staged[0])
    write_deltalake(tmp_path / "t", DeltaTable(tmp_path / "t").to_pyarrow_table(), mode="append")
    DeltaTable(tmp_path / "t").optimize.compact()
    for each in (staged[1], staged[1]):
        engine.publish(each)
    assert Counter(DeltaTable(tmp_path / "t").to_pyarrow_table()["id"].to_pylist()) == {0: 2, 1: 1}


def test_two_jobs_and_two_sinks_do_not_hide_each_other(start: Start, tmp_path: Path) -> None:
    for _ in range(2):
        engine = start(sinks.delta(tmp_path / "t"))
        engine.publish(engine.stage(0, [(0, "a")]))
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 2


def test_rows_that_do_not_fit_are_refused_before_the_commit(start: Start, tmp_path: Path) -> None:
    engine = start(sinks.delta(tmp_path / "t"))
    engine.publish(engine.stage(0, [(0, "a")]))
    with pytest.raises(SinkError, match="column 'more' is long in the rows and missing in the table"):
        engine.stage(1, [(1, "b", 2)], "id long, text string, more long")
    with pytest.raises(SinkError, match="column 'id' is string in the rows and long in the table"):
        engine.stage(1, [("1", "b")], "id string, text string")
    with pytest.raises(SinkError, match="does not fit a Delta table"):
        engine.stage(1, [(dt.timedelta(1),)], "span interval day to second")


def test_columns_may_be_added(start: Start, tmp_path: Path) -> None:
    engine = start(sinks.delta(tmp_path / "t", merge_schema=True, partition_by=["id"]))
    engine.publish(engine.stage(0, [(0, "a")]))
    engine.publish(engine.stage(1, [(1, [2])], "id long, more array<long>"))
    found = DeltaTable(tmp_path / "t").to_pyarrow_table().sort_by("id").select(["id", "text", "more"])
    assert found.to_pylist() == [
        {"id": 0, "text": "a", "more": None},
        {"id": 1, "text": None, "more": [2]},
    ]
    assert DeltaTable(tmp_path / "t").metadata().partition_columns == ["id"]


def test_a_lost_spool_is_reported_and_nothing_is_half_published(start: Start, tmp_path: Path) -> None:
    engine = start(sinks.delta(tmp_path / "t"))
    staged = engine.stage(0, [(id, "a") for id in range(100)])
    (Path(staged.location) / staged.files[-1]).rename(tmp_path / "elsewhere")
    with pytest.raises(SinkError, match=f"{staged.files[-1]}"):
        engine.publish(staged)
    (tmp_path / "elsewhere").rename(Path(staged.location) / staged.files[-1])
    engine.publish(staged)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 100


def test_secrets_are_neither_shown_nor_pickled() -> None:
    sink = sinks.delta("s3://b/t", storage_options={"AWS_SECRET_ACCESS_KEY": "hush", "AWS_REGION": "eu"})
    assert sink.describe() == "delta('s3://b/t', storage_options={'AWS_REGION': 'eu'})"
    assert b"hush" not in cloudpickle.dumps(sink)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(SinkError, match=r"pip install 'midstream\[delta\]'"):
        sinks.delta("t")
