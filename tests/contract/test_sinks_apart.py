"""What single sinks promise beyond the contract that all share."""

from __future__ import annotations

import datetime as dt
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import duckdb
import pandas as pd
import pyarrow.fs as pafs
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from midstream import sinks
from midstream.checkpoint.records import Delivered
from midstream.errors import SinkError
from midstream.plan import code
from midstream.sinks import directories
from midstream.sinks.contract import OtherHistoryError

if TYPE_CHECKING:
    from tests.contract.conftest import Engine

Start = Callable[..., "Engine"]


class TestMemory:
    def test_rows_are_what_collect_gives(self, start: Start, spark: SparkSession) -> None:
        df = spark.sql(
            "SELECT 1 AS id, timestamp'2024-05-01 12:00:00Z' AS at, array(1, null) AS list, X'00' AS raw, "
            "map('a', 1.5D) AS map, named_struct('x', 1, 'y', array('z')) AS struct, interval '1' day AS span"
        )
        sink = sinks.memory()
        engine = start(sink)
        engine.publish(sink.stage(df, engine.staging(3)))
        assert sink.rows() == sink.rows(epoch=3) == df.collect()
        assert isinstance(sink.rows()[0].struct, Row)
        assert sink.epochs() == [3]
        assert sink.rows(epoch=4) == []

    def test_epochs_of_several_schemas_are_one_table(self, start: Start) -> None:
        sink = sinks.memory()
        engine = start(sink)
        engine.publish(engine.stage(0, [(1,)], "a long"))
        engine.publish(engine.stage(1, [(2, "x")], "a long, b string"))
        assert sink.table().to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]

    def test_another_job_finds_it_empty_and_the_same_job_what_it_left(self, start: Start) -> None:
        sink = sinks.memory(f"shared {uuid.uuid4().hex}")
        engine = start(sink)
        engine.publish(engine.stage(0, [(1, "a")]))
        assert sinks.memory(sink._name).rows() == [Row(id=1, text="a")]
        start(sinks.memory(sink._name), job=engine.job)
        assert sink.epochs() == [0]
        start(sinks.memory(sink._name))
        assert sink.epochs() == []

    def test_rows_are_not_pickled(self, start: Start) -> None:
        engine = start(sinks.memory())
        before = len(cloudpickle.dumps(engine.sink))
        engine.publish(engine.stage(0, [(1, "a needle")]))
        pickled = cloudpickle.dumps(engine.sink)
        assert len(pickled) == before
        assert b"needle" not in pickled


class TestConsole:
    def test_it_prints_a_table(self, start: Start, capsys: pytest.CaptureFixture[str]) -> None:
        engine = start(sinks.console(rows=2))
        engine.publish(engine.stage(7, [(1, "[red]a[/red]"), (20, "x" * 100), (300, None)]))
        assert capsys.readouterr().out.splitlines() == [
            "out · epoch 7 · 3 rows, 2 shown",
            "┏━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┓",
            "┃ id ┃ text                                                         ┃",
            "┡━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┩",
            "│  1 │ [red]a[/red]                                                 │",
            "│ 20 │ " + "x" * 59 + "… │",
            "└────┴──────────────────────────────────────────────────────────────┘",
        ]

    def test_no_rows_make_no_sense(self) -> None:
        with pytest.raises(SinkError, match="1 row or more"):
            sinks.console(rows=0)


class TestForeachBatch:
    def test_the_function_sees_the_same_rows_each_time_and_no_empty_epoch(self, start: Start) -> None:
        calls: list[tuple[int, list[Row]]] = []
        engine = start(sinks.foreach_batch(lambda df, epoch: calls.append((epoch, sorted(df.collect())))))
        engine.directory = engine.directory / "a [b] {c} *d?"  # Spark takes paths for patterns
        engine.publish(engine.stage(0, []))
        staged = engine.sink.stage(engine.frame([(1, "a"), (2, "b")]).withColumn("r", F.rand()), engine.staging(1))
        engine.publish(staged)
        engine.publish(staged)
        assert [epoch for epoch, _ in calls] == [1, 1]
        assert len(calls[0][1]) == 2
        assert calls[0] == calls[1]

    def test_another_process_can_load_the_function(self, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(df: DataFrame, epoch: int) -> None:
            raise ValueError(f"no epoch {epoch} please")

        engine = start(sinks.foreach_batch(fail))
        monkeypatch.setattr(code, "_live", {})
        engine.crash()
        staged = engine.stage(5, [(1, "a")])
        with pytest.raises(
            SinkError, match=r"fail failed on epoch 5: ValueError: no epoch 5 please.*called with it again"
        ):
            engine.publish(staged)

    def test_it_is_described_by_its_code(self) -> None:
        one, two, three = (sinks.foreach_batch(lambda df, epoch, n=n: n) for n in (1, 1, 2))
        assert one.describe() == two.describe() != three.describe()

    def test_it_takes_types_that_only_spark_reads(self, start: Start, spark: SparkSession) -> None:
        seen: list[Row] = []
        engine = start(sinks.foreach_batch(lambda df, epoch: seen.extend(df.selectExpr("v:a::int AS a").collect())))
        df = spark.sql("""SELECT parse_json('{"a": 1}') AS v""")
        engine.publish(engine.sink.stage(df, engine.staging(0)))
        assert seen == [Row(a=1)]
        engine = start(sinks.memory())
        with pytest.raises(SinkError, match=r"cannot take column 'v': its type holds variant. Cast it"):
            engine.sink.stage(df, engine.staging(0))


class TestNoop:
    def test_all_rows_are_computed(self, start: Start, spark: SparkSession) -> None:
        engine = start(sinks.noop())
        df = spark.range(100).selectExpr("if(id = 99, raise_error('row 99'), id) AS id")
        with pytest.raises(PySparkException, match="row 99"):
            engine.sink.stage(df, engine.staging(0))


class TestFiles:
    def test_readers_see_committed_epochs_and_their_numbers(
        self, start: Start, spark: SparkSession, tmp_path: Path
    ) -> None:
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

    def test_a_directory_has_one_owner(self, start: Start, spark: SparkSession, tmp_path: Path) -> None:
        engine = start(sinks.files(tmp_path / "out"))
        start(sinks.files(tmp_path / "out"), job=engine.job)
        with pytest.raises(SinkError, match=rf"belongs to sink 'out' of job {engine.job}.*directory of its own"):
            start(sinks.files(tmp_path / "out"))
        with pytest.raises(SinkError, match="belongs to sink 'out'"):
            engine.sink.open(spark, "other", engine.job)

    def test_files_of_others_are_not_mixed_in(self, start: Start, tmp_path: Path) -> None:
        (tmp_path / "part-0.parquet").touch()
        with pytest.raises(SinkError, match=r"it holds 'part-0.parquet', which no Midstream job wrote"):
            start(sinks.files(tmp_path))

    def test_a_directory_that_cannot_be_made_is_reported(self, start: Start, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(SinkError, match=r"cannot write to .*/file/out.*Check the path"):
            start(sinks.files(tmp_path / "file" / "out"))

    def test_a_column_named_epoch_is_refused(self, start: Start, tmp_path: Path) -> None:
        engine = start(sinks.files(tmp_path / "out"))
        with pytest.raises(SinkError, match=r"cannot write column 'Epoch'.*Rename"):
            engine.stage(0, [(1,)], "Epoch long")

    def test_what_crashed_runs_left_is_swept_with_the_next_epoch(self, start: Start, tmp_path: Path) -> None:
        engine = start(sinks.files(tmp_path / "out"))
        engine.stage(0, [(0, "lost run")])
        later = engine.stage(2, [(2, "not yet committed")])
        staged = engine.stage(1, [(1, "a")])
        engine.publish(staged)
        engine.sink.clean(staged)
        assert [path.name for path in (tmp_path / "out/.midstream/out").iterdir()] == [Path(later.location).name]

    @pytest.mark.parametrize("header", [True, False])
    def test_csv_leaves_no_file_without_rows(self, start: Start, tmp_path: Path, header: bool) -> None:
        engine = start(sinks.files(tmp_path / "out", format="csv", header=header, compression="gzip", nullValue="-"))
        assert engine.stage(0, []).files == ()
        assert len(engine.stage(1, [(None,)], "only string").files) == 1

    def test_rows_may_be_partitioned(self, start: Start, spark: SparkSession, tmp_path: Path) -> None:
        engine = start(sinks.files(tmp_path / "out", partition_by=["text"]))
        engine.publish(engine.stage(0, [(1, "a"), (2, "b"), (3, None)]))
        found = spark.read.parquet(str(tmp_path / "out")).select("epoch", "id", "text")
        assert sorted(map(tuple, found.collect())) == [(0, 1, "a"), (0, 2, "b"), (0, 3, None)]

    def test_an_object_store_is_published_by_copies(
        self, start: Start, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    def test_what_cannot_work_is_refused_at_once(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(SinkError, match=message):
            sinks.files("out", **options)

    def test_secrets_are_neither_shown_nor_pickled(self) -> None:
        sink = sinks.files("s3a://bucket/out", **{"fs.s3a.secret.key": "hush", "maxRecordsPerFile": 10})
        assert sink.describe() == "files('s3a://bucket/out', format='parquet', options={'maxRecordsPerFile': '10'})"
        assert b"hush" not in cloudpickle.dumps(sink)


class TestFilesNote:
    """What a directory of files knows of its newest epoch, whatever has become of the note."""

    @pytest.mark.parametrize("note", [None, b"", b"{", b'{"epoch": 0, "commit": "older"}', b'{"epoch": "x"}'])
    def test_a_note_that_is_lost_damaged_or_old_costs_nothing(
        self, start: Start, tmp_path: Path, note: bytes | None
    ) -> None:
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
        with pytest.raises(OtherHistoryError, match="another"):
            engine.publish(engine.stage(2, [(2, "another")]))
        engine.publish(engine.stage(3, [(3, "x")]))
        assert len(list((tmp_path / "t").glob("epoch=*/*.parquet"))) == 4


class TestDelta:
    def test_other_writers_may_use_the_table(self, start: Start, tmp_path: Path) -> None:
        engine = start(sinks.delta(tmp_path / "t"))
        staged = [engine.stage(epoch, [(epoch, "ours")]) for epoch in range(2)]
        engine.publish(staged[0])
        write_deltalake(tmp_path / "t", DeltaTable(tmp_path / "t").to_pyarrow_table(), mode="append")
        DeltaTable(tmp_path / "t").optimize.compact()
        for each in (staged[1], staged[1]):
            engine.publish(each)
        assert Counter(DeltaTable(tmp_path / "t").to_pyarrow_table()["id"].to_pylist()) == {0: 2, 1: 1}

    def test_two_jobs_and_two_sinks_do_not_hide_each_other(self, start: Start, tmp_path: Path) -> None:
        for _ in range(2):
            engine = start(sinks.delta(tmp_path / "t"))
            engine.publish(engine.stage(0, [(0, "a")]))
        assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 2

    def test_rows_that_do_not_fit_are_refused_before_the_commit(self, start: Start, tmp_path: Path) -> None:
        engine = start(sinks.delta(tmp_path / "t"))
        engine.publish(engine.stage(0, [(0, "a")]))
        with pytest.raises(SinkError, match="column 'more' is long in the rows and missing in the table"):
            engine.stage(1, [(1, "b", 2)], "id long, text string, more long")
        with pytest.raises(SinkError, match="column 'id' is string in the rows and long in the table"):
            engine.stage(1, [("1", "b")], "id string, text string")
        with pytest.raises(SinkError, match="does not fit a Delta table"):
            engine.stage(1, [(dt.timedelta(1),)], "span interval day to second")

    def test_columns_may_be_added(self, start: Start, tmp_path: Path) -> None:
        engine = start(sinks.delta(tmp_path / "t", merge_schema=True, partition_by=["id"]))
        engine.publish(engine.stage(0, [(0, "a")]))
        engine.publish(engine.stage(1, [(1, [2])], "id long, more array<long>"))
        found = DeltaTable(tmp_path / "t").to_pyarrow_table().sort_by("id").select(["id", "text", "more"])
        assert found.to_pylist() == [
            {"id": 0, "text": "a", "more": None},
            {"id": 1, "text": None, "more": [2]},
        ]
        assert DeltaTable(tmp_path / "t").metadata().partition_columns == ["id"]

    def test_a_lost_spool_is_reported_and_nothing_is_half_published(self, start: Start, tmp_path: Path) -> None:
        engine = start(sinks.delta(tmp_path / "t"))
        staged = engine.stage(0, [(id, "a") for id in range(100)])
        (Path(staged.location) / staged.files[-1]).rename(tmp_path / "elsewhere")
        with pytest.raises(SinkError, match=f"{staged.files[-1]}"):
            engine.publish(staged)
        (tmp_path / "elsewhere").rename(Path(staged.location) / staged.files[-1])
        engine.publish(staged)
        assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 100

    def test_secrets_are_neither_shown_nor_pickled(self) -> None:
        sink = sinks.delta("s3://b/t", storage_options={"AWS_SECRET_ACCESS_KEY": "hush", "AWS_REGION": "eu"})
        assert sink.describe() == "delta('s3://b/t', storage_options={'AWS_REGION': 'eu'})"
        assert b"hush" not in cloudpickle.dumps(sink)


@pytest.mark.parametrize(
    ("package", "make", "extra"),
    [
        ("deltalake", lambda: sinks.delta("t"), "delta"),
        ("psycopg", lambda: sinks.postgres("dbname=d", "t"), "postgres"),
    ],
)
def test_a_missing_package_is_named(
    package: str, make: Callable[[], object], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SinkError, match=rf"pip install 'midstream\[{extra}\]'"):
        make()


def test_a_full_or_forbidden_checkpoint_is_reported(start: Start, tmp_path: Path) -> None:
    engine = start(sinks.memory())
    (tmp_path / "checkpoint").touch()
    with pytest.raises(SinkError, match=r"staged files in .* cannot be written: .*Check the space and the rights"):
        engine.stage(0, [(1, "a")])
