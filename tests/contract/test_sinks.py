"""The contract of sinks, one class for all: stage -> commit record -> publish, repeatable."""

from __future__ import annotations

import csv
import datetime as dt
import glob
import json
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import psycopg
import pyarrow.dataset
import pytest
from deltalake import DeltaTable
from psycopg.sql import SQL, Identifier
from pyspark.sql import DataFrame

from midstream import sinks
from midstream.checkpoint.records import Delivered
from midstream.sinks import Sink
from midstream.sinks.contract import LostRowsError, OtherHistoryError
from midstream.sinks.memory import Memory
from tests.contract.conftest import committed

if TYPE_CHECKING:
    from tests.contract.conftest import Engine

Rows = Counter[str]  # rows as text: some hold lists
UTC = dt.timezone.utc


def multiset(rows: Sequence[Sequence[Any]]) -> Rows:
    """Count rows, with all timestamps in UTC."""

    def plain(value: Any) -> Any:
        if isinstance(value, dt.datetime):
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).replace(tzinfo=None)
        return list(value) if isinstance(value, tuple) else value

    return Counter(repr([plain(value) for value in row]) for row in rows)


class Target:
    """How to make a sink, and how a reader sees what it shows. As it stands, all of the contract applies."""

    keeps_rows = True
    keeps_types = True
    repeats = False  # True: promises "at least once" only, so rows are compared as sets

    def __init__(self, directory: Path, postgres: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self.postgres = postgres
        self.capsys = capsys

    def make(self) -> Sink:
        raise NotImplementedError

    def read(self) -> Sequence[Sequence[Any]]:
        raise NotImplementedError

    def visible(self) -> Rows:
        found = multiset(self.read())
        return Counter(set(found)) if self.repeats else found

    def expected(self, *rows: tuple[Any, ...]) -> Rows:
        return multiset(rows) if self.keeps_rows else Counter()


class MemoryTarget(Target):
    def make(self) -> Sink:
        self.sink = sinks.memory()
        return self.sink

    def read(self) -> Sequence[Sequence[Any]]:
        return [tuple(row.values()) for row in self.sink.table().to_pylist()]


class ConsoleTarget(Target):
    """A screen: at least once, as text."""

    keeps_types = False
    repeats = True
    printed = ""

    def make(self) -> Sink:
        return sinks.console()

    def read(self) -> Sequence[Sequence[Any]]:
        self.printed += self.capsys.readouterr().out
        cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in self.printed.splitlines() if "│" in line]
        return [(int(id), None if text == "null" else text) for id, text in cells]


class ForeachBatchTarget(Target):
    """A function that is idempotent by epoch, as its documentation asks."""

    def make(self) -> Sink:
        self.seen: dict[int, list[tuple[Any, ...]]] = {}
        seen = self.seen

        def keep(df: DataFrame, epoch: int) -> None:
            seen[epoch] = [tuple(row.values()) for row in df.toArrow().to_pylist()]

        return sinks.foreach_batch(keep)

    def read(self) -> Sequence[Sequence[Any]]:
        return [row for rows in self.seen.values() for row in rows]


class NoopTarget(Target):
    """Shows nothing, whatever happens."""

    keeps_rows = False
    keeps_types = False

    def make(self) -> Sink:
        return sinks.noop()

    def read(self) -> Sequence[Sequence[Any]]:
        return [(path,) for path in self.directory.rglob("*")]


class ParquetTarget(Target):
    def make(self) -> Sink:
        return sinks.files(self.directory / "table")

    def read(self) -> Sequence[Sequence[Any]]:
        table = pyarrow.dataset.dataset(self.directory / "table", partitioning="hive").to_table()
        names = [name for name in table.column_names if name != "epoch"]
        return [tuple(row.values()) for row in table.select(names).to_pylist()]


class JsonTarget(Target):
    keeps_types = False

    def make(self) -> Sink:
        return sinks.files(self.directory / "table", format="json", compression="gzip", ignoreNullFields=False)

    def read(self) -> Sequence[Sequence[Any]]:
        import gzip

        files = glob.glob(f"{self.directory}/table/*/*")
        return [tuple(json.loads(line).values()) for file in files for line in gzip.open(file, "rt")]


class CsvTarget(Target):
    keeps_types = False

    def make(self) -> Sink:
        return sinks.files(self.directory / "table", format="csv", header=True, nullValue="null", escape='"')

    def read(self) -> Sequence[Sequence[Any]]:
        found = []
        for file in glob.glob(f"{self.directory}/table/*/*"):
            with open(file, newline="") as lines:
                rows = list(csv.reader(lines))
            assert rows[0] == ["id", "text"]
            assert len(rows) > 1
            found += [(int(id), None if text == "null" else text) for id, text in rows[1:]]
        return found


class DeltaTarget(Target):
    def make(self) -> Sink:
        return sinks.delta(self.directory / "table")

    def read(self) -> Sequence[Sequence[Any]]:
        if not DeltaTable.is_deltatable(str(self.directory / "table")):
            return []
        table = DeltaTable(self.directory / "table").to_pyarrow_table()
        return [tuple(row.values()) for row in table.to_pylist()]


class PostgresTarget(Target):
    upsert: Sequence[str] = ()

    def make(self) -> Sink:
        self.table = f"t{uuid.uuid4().hex}"
        return sinks.postgres(self.postgres, self.table, upsert=self.upsert)

    def read(self) -> Sequence[Sequence[Any]]:
        with psycopg.connect(self.postgres) as connection:
            if connection.execute("SELECT to_regclass(%s)", [self.table]).fetchone() == (None,):
                return []
            return connection.execute(SQL("SELECT * FROM {}").format(Identifier(self.table))).fetchall()


class UpsertTarget(PostgresTarget):
    """An upsert with keys that never come twice is an insert."""

    upsert = ("id",)


TARGETS = [
    MemoryTarget,
    ConsoleTarget,
    ForeachBatchTarget,
    NoopTarget,
    ParquetTarget,
    JsonTarget,
    CsvTarget,
    DeltaTarget,
    PostgresTarget,
    UpsertTarget,
]

ONE, TWO, THREE, FOUR = (1, "one"), (2, "zwei, „drei“ 🙂"), (3, None), (4, 'a "quoted" \\ word')


@pytest.fixture(params=TARGETS, ids=lambda target: target.__name__.removesuffix("Target").lower())
def target(request: pytest.FixtureRequest, tmp_path: Path, postgres: str, capsys: pytest.CaptureFixture[str]) -> Target:
    directory = tmp_path / "target"
    directory.mkdir()
    return request.param(directory, postgres, capsys)


@pytest.fixture
def engine(start: Callable[[Sink], Engine], target: Target) -> Engine:
    return start(target.make())


class TestContract:
    """What every sink keeps to."""

    def test_rows_are_invisible_until_they_are_published(self, engine: Engine, target: Target) -> None:
        staged = engine.stage(0, [ONE, TWO, THREE, FOUR])
        assert target.visible() == Counter()
        engine.publish(staged)
        assert target.visible() == target.expected(ONE, TWO, THREE, FOUR)

    def test_of_two_runs_of_an_epoch_the_committed_one_is_seen(self, engine: Engine, target: Target) -> None:
        engine.stage(0, [ONE, TWO])
        second = engine.stage(0, [TWO, THREE])
        engine.publish(second)
        engine.sink.clean(second)
        assert target.visible() == target.expected(TWO, THREE)

    def test_a_repeated_publish_changes_nothing(self, engine: Engine, target: Target) -> None:
        staged = engine.stage(0, [ONE, ONE, TWO])
        engine.publish(staged)
        engine.publish(staged)
        shown = [ONE, TWO] if target.repeats or isinstance(target, UpsertTarget) else [ONE, ONE, TWO]
        assert target.visible() == target.expected(*shown)

    def test_a_crash_before_or_after_the_publish_changes_nothing(self, engine: Engine, target: Target) -> None:
        staged = engine.stage(0, [ONE, THREE])
        engine.crash()
        engine.publish(staged)
        engine.crash()
        engine.publish(staged)
        assert target.visible() == target.expected(ONE, THREE)
        engine.publish(engine.stage(1, [TWO]))
        assert target.visible() == target.expected(ONE, TWO, THREE)

    def test_an_older_epoch_published_again_is_refused_where_the_sink_remembers(
        self, engine: Engine, target: Target
    ) -> None:
        epochs = [engine.stage(epoch, [row]) for epoch, row in enumerate([ONE, TWO, THREE])]
        for staged in epochs:
            engine.publish(staged)
        if engine.sink.remembers:  # the engine publishes nothing again but the newest: the checkpoint is another
            for staged in epochs[:2]:
                with pytest.raises(OtherHistoryError, match=rf"epoch {staged.epoch} .*has epoch 2 of commit"):
                    engine.publish(staged)
                engine.crash()
        assert target.visible() == target.expected(ONE, TWO, THREE)

    def test_the_same_epoch_of_another_commit_is_refused_where_the_sink_remembers(
        self, engine: Engine, target: Target
    ) -> None:
        before, now = engine.stage(0, [ONE]), engine.stage(0, [TWO])
        engine.publish(before)
        if engine.sink.remembers or isinstance(engine.sink, Memory):
            for _ in range(2):
                with pytest.raises(OtherHistoryError, match=f"{now.commit}.* has epoch 0 of commit {before.commit}"):
                    engine.publish(now)
                engine.crash()
            assert target.visible() == target.expected(ONE)

    def test_a_sink_that_remembers_knows_its_newest_epoch(self, engine: Engine) -> None:
        if not engine.sink.remembers:
            return
        assert engine.sink.published("out", engine.job) is None
        for epoch in (3, 7):
            staged = engine.stage(epoch, [ONE])
            assert engine.sink.published("out", engine.job) != Delivered(epoch, staged.commit)
            engine.publish(staged)
            assert engine.sink.published("out", engine.job) == Delivered(epoch, staged.commit)
        engine.crash()
        assert engine.sink.published("out", engine.job) == Delivered(7, staged.commit)
        assert engine.sink.published("out", "another job") in (None, Delivered(7, staged.commit))

    def test_rows_that_vanish_before_they_are_published_are_missed(self, engine: Engine, target: Target) -> None:
        engine.publish(engine.stage(0, [ONE]))
        for whole in (False, True):
            staged = engine.stage(1, [(id, "x") for id in range(20)])
            if not staged.files:
                return
            if whole:
                shutil.rmtree(staged.location)
            else:
                (Path(staged.location) / staged.files[0]).unlink()
            for _ in range(2):
                with pytest.raises(LostRowsError, match=r"rows of epoch 1 .*part-.* is gone"):
                    engine.publish(staged)
                if not isinstance(engine.sink, Memory):  # which ends with its process
                    engine.crash()
            assert target.visible() == target.expected(ONE)

    def test_an_epoch_without_rows_shows_nothing(self, engine: Engine, target: Target) -> None:
        empty = engine.stage(0, [])
        assert empty.files == ()
        engine.publish(empty)
        engine.publish(engine.stage(1, [ONE]))
        before = sorted(target.directory.glob("table/epoch*"))
        engine.publish(engine.stage(2, []))
        engine.publish(empty)
        assert target.visible() == target.expected(ONE)
        assert sorted(target.directory.glob("table/epoch*")) == before

    def test_a_partition_without_rows_does_no_harm(self, engine: Engine, target: Target) -> None:
        half_empty = engine.frame([]).union(engine.frame([ONE]))
        staged = committed(engine.sink.stage(half_empty, engine.staging(0)))
        assert len(staged.files) == target.keeps_rows
        engine.publish(staged)
        assert target.visible() == target.expected(ONE)

    def test_clean_removes_what_was_staged(self, engine: Engine, target: Target, tmp_path: Path) -> None:
        given_up = engine.staging(0)
        engine.sink.stage(engine.frame([TWO]), given_up)
        staged = engine.stage(0, [ONE])
        engine.publish(staged)
        for _ in range(2):
            engine.sink.clean(given_up)
            engine.sink.clean(staged)
        left = [path.name for path in tmp_path.rglob("*") if path.is_file() and "part-" in path.name]
        assert len(left) == len(list(target.directory.rglob("part-*")))
        assert not list(tmp_path.rglob("*_temporary*"))
        assert not list(target.directory.glob("table/.midstream/out/*"))
        if engine.sink.remembers:  # a crash after clean, before Spark's commit; of others the journal knows
            engine.publish(staged)
            engine.crash()
            engine.publish(staged)
        assert target.visible() == target.expected(ONE)

    def test_a_crash_in_the_middle_of_clean_does_no_harm(self, engine: Engine, target: Target) -> None:
        staged = engine.stage(0, [(id, "x") for id in range(20)])
        engine.publish(staged)
        shown = target.visible()
        if staged.files and Path(staged.location).exists():
            (Path(staged.location) / staged.files[0]).unlink()
        engine.crash()
        if engine.sink.remembers:
            engine.publish(staged)
        engine.sink.clean(staged)
        assert target.visible() == shown
        assert not Path(staged.location).exists() or not staged.files

    def test_types_survive(self, engine: Engine, target: Target) -> None:
        early, late = dt.datetime(1850, 1, 1, 12), dt.datetime(2999, 12, 31, 23, 59, 59, 999999)
        columns: dict[str, list[Any]] = {
            "id long": [1, 2, 3],
            "text string": ["é", "", None],
            "at timestamp": [early.replace(tzinfo=UTC), late.replace(tzinfo=UTC), None],
            "local timestamp_ntz": [late, early, None],
            "day date": [late.date(), early.date(), None],
            "price decimal(38, 10)": [Decimal("-12345678901234567890.0123456789"), Decimal("0E-10"), None],
            "flag boolean": [True, False, None],
            "small byte": [-128, 127, None],
            "ratio double": [0.1, float("-inf"), None],
            "bytes binary": [b"\x00\xff\\", b"", None],
            "numbers array<int>": [[1, None, -3], [], None],
            "words array<string>": [["", None, 'a,"b\\c"', "{NULL}", "NULL", "é🙂"], [], None],
            "days array<date>": [[], [early.date(), None], None],
        }
        schema, rows = ", ".join(columns), list(zip(*columns.values(), strict=True))
        if not target.keeps_types:
            schema, rows = "id long, text string", [row[:2] for row in rows]
            rows = [row for row in rows if row[1] != ""]  # a screen or a CSV file cannot tell "" from other things
        staged = engine.stage(0, rows, schema)
        engine.publish(staged)
        assert target.visible() == target.expected(*rows)

    def test_the_description_is_stable_and_says_what_is_guaranteed(self, engine: Engine, target: Target) -> None:
        text = engine.sink.describe()
        assert text == repr(engine.sink) == cloudpickle.loads(cloudpickle.dumps(engine.sink)).describe()
        assert "committed epoch" in engine.sink.guarantee
        engine.publish(engine.stage(0, [ONE]))
        assert engine.sink.describe() == text
