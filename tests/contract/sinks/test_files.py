"""What a directory of files promises beyond the contract that all sinks share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import duckdb
import pandas as pd
import pyarrow.fs as pafs
import pytest
from pyspark.sql import SparkSession

from midstream import sinks
from midstream.checkpoint.records import Delivered
from midstream.errors import SinkError
from midstream.sinks import directories
from midstream.sinks.contract import OtherHistoryError

if TYPE_CHECKING:
    from tests.contract.conftest import Engine

Start = Callable[..., "Engine"]


def test_readers_see_committed_epochs_and_their_numbers(start: Start, spark: SparkSession, tmp_path: Path) -> None:
    engine = start(sinks.files(tmp_path / "out"))
    for epoch in (1, 2):
        engine.publish(engine.stage(epoch, [(epoch, "a"), (epoch, "b")]))
    engine.stage(3, [(3, "c")])
    expected = [(1, "a", 1), (1, "b", 1), (2, "a", 2), (2, "b", 2)]
    assert sorted(map(tuple, spark.read.parquet(str(tmp_path / "out")).collect())) == expected
    table = pd.read_parquet(tmp_path / "out").astype({"epoch": int})
    assert sorted(table.itertuples(index=False, name=None)) == expected
    pattern = f"{tmp_path}/out/epoch=*/*.parquet"
    query = f"SELECT id, text, epoch FROM read_parquet('{pattern}', hive_partitioning=true)"
    assert sorted(duckdb.sql(query).fetchall()) == expected
    visible = {path.name.split("-")[0] for path in (tmp_path / "out").glob("epoch=*/*")}
    assert visible == {"part"}


def test_a_directory_has_one_owner(start: Start, spark: SparkSession, tmp_path: Path) -> None:
    engine = start(sinks.files(tmp_path / "out"))
    start(sinks.files(tmp_path / "out"), job=engine.job)
    with pytest.raises(SinkError, match=rf"belongs to sink 'out' of job {engine.job}.*directory of its own"):
        start(sinks.files(tmp_path / "out"))
    with pytest.raises(SinkError, match="belongs to sink 'out'"):
        engine.sink.open(spark, "other", engine.job)


def test_files_of_others_are_not_mixed_in(start: Start, tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").touch()
    with pytest.raises(SinkError, match=r"it holds 'part-0.parquet', which no Midstream job wrote"):
        start(sinks.files(tmp_path))


def test_a_directory_that_cannot_be_made_is_reported(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SinkError, match=r"cannot write to .*/file/out.*Check the path"):
        start(sinks.files(tmp_path / "file" / "out"))


def test_a_column_named_epoch_is_refused(start: Start, tmp_path: Path) -> None:
    engine = start(sinks.files(tmp_path / "out"))
    with pytest.raises(SinkError, match=r"cannot write column 'Epoch'.*Rename"):
        engine.stage(0, [(1,)], "Epoch long")


def test_what_crashed_runs_left_is_swept_with_the_next_epoch(start: Start, tmp_path: Path) -> None:
    engine = start(sinks.files(tmp_path / "out"))
    engine.stage(0, [(0, "lost run")])
    later = engine.stage(2, [(2, "not yet committed")])
    staged = engine.stage(1, [(1, "a")])
    engine.publish(staged)
    engine.sink.clean(staged)
    assert [path.name for path in (tmp_path / "out/.midstream/out").iterdir()] == [Path(later.location).name]


@pytest.mark.parametrize("header", [True, False])
def test_csv_leaves_no_file_without_rows(start: Start, tmp_path: Path, header: bool) -> None:
    engine = start(sinks.files(tmp_path / "out", format="csv", header=header, compression="gzip", nullValue="-"))
    assert engine.stage(0, []).files == ()
    assert len(engine.stage(1, [(None,)], "only string").files) == 1


def test_rows_may_be_partitioned(start: Start, spark: SparkSession, tmp_path: Path) -> None:
    engine = start(sinks.files(tmp_path / "out", partition_by=["text"]))
    engine.publish(engine.stage(0, [(1, "a"), (2, "b"), (3, None)]))
    found = spark.read.parquet(str(tmp_path / "out")).select("epoch", "id", "text")
    assert sorted(map(tuple, found.collect())) == [(0, 1, "a"), (0, 2, "b"), (0, 3, None)]


def test_an_object_store_is_published_by_copies(
    start: Start, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Store(pafs.SubTreeFileSystem):  # to the sink not a local one, hence one without renames
        pass

    monkeypatch.setattr(directories, "resolve", lambda location: (Store("/", pafs.LocalFileSystem()), location[1:]))
    engine = start(sinks.files(tmp_path / "out", partition_by=["text"]))
    staged = engine.stage(0, [(1, "a"), (2, "b")])
    for _ in range(2):
        engine.publish(staged)
    engine.sink.clean(staged)
    engine.publish(staged)
    assert spark.read.parquet(str(tmp_path / "out")).count() == 2
    assert list((tmp_path / "out/.midstream/out").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "orc"}, "use one of parquet, json, csv"),
        ({"format": "json", "compression": "snappy"}, "use one of none"),
        ({"partition_by": ["_day"]}, "rename the column"),
    ],
)
def test_what_cannot_work_is_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SinkError, match=message):
        sinks.files("out", **options)


def test_secrets_are_neither_shown_nor_pickled() -> None:
    sink = sinks.files("s3a://bucket/out", **{"fs.s3a.secret.key": "hush", "maxRecordsPerFile": 10})
    assert sink.describe() == "files('s3a://bucket/out', format='parquet', options={'maxRecordsPerFile': '10'})"
    assert b"hush" not in cloudpickle.dumps(sink)


@pytest.mark.parametrize("note", [None, b"", b"{", b'{"epoch": 0, "commit": "older"}', b'{"epoch": "x"}'])
def test_a_note_that_is_lost_damaged_or_old_costs_nothing(start: Start, tmp_path: Path, note: bytes | None) -> None:
    engine = start(sinks.files(tmp_path / "t"))
    for epoch in range(3):
        staged = engine.stage(epoch, [(epoch, "x")])
        engine.publish(staged)
    written = tmp_path / "t" / ".midstream" / "published.json"
    written.unlink() if note is None else written.write_bytes(note)
    engine.crash()
    assert engine.sink.published("out", engine.job) == Delivered(2, "")
    engine.publish(staged)
    assert engine.sink.published("out", engine.job) == Delivered(2, staged.commit)
    with pytest.raises(OtherHistoryError, match="restored from a copy"):
        engine.publish(engine.stage(2, [(2, "another")]))
    engine.publish(engine.stage(3, [(3, "x")]))
    assert len(list((tmp_path / "t").glob("epoch=*/*.parquet"))) == 4
