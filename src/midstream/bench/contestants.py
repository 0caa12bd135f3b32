"""Ways to keep a count and a sum per key; the benchmark runs each over the same rows.

Each takes a `Trial` and returns an `TrialResult`: times of the epochs, and the final result with its rows.
It does not check itself.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import midstream as ms
from midstream.bench.rows import SUMS, Rows, sums
from midstream.bench.running import Durations, run_batches, run_flow, run_query
from midstream.errors import MidstreamError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

_SCHEMA = "key long, n long, total long"
_ARROW_ROWS = "100000"  # per batch between JVM and Python: what Midstream uses too


@dataclass(frozen=True, slots=True)
class Trial:
    """What a contestant is to do, and where."""

    spark: SparkSession
    rows: Rows
    per_epoch: int
    epochs: int
    cores: int
    directory: str

    def stream(self) -> DataFrame:
        """The rows to process."""
        return self.rows.stream(self.spark, self.per_epoch)

    def path(self, name: str) -> str:
        """A path in the directory of this trial."""
        return os.path.join(self.directory, name)


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What a contestant has done."""

    times: list[Durations]  # per epoch
    results: DataFrame  # (key, n, total)
    first: int  # the results are of rows `first` to `end`
    end: int


def ceiling(trial: Trial) -> TrialResult:
    """Shuffle by key and pass every row through Python, keeping nothing: no Python operator can be faster.

    One more epoch after the timed ones goes the same way and is then summed up, to see that no row is lost.
    """
    kept = trial.path("kept")

    def through_python(batch: DataFrame) -> DataFrame:
        session = batch.sparkSession  # a copy of the outer one, set as Midstream sets it
        session.conf.set("spark.sql.adaptive.enabled", "false")
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", _ARROW_ROWS)
        slot = F.expr(f"cast(pmod(xxhash64(key), {trial.cores}L) as int)")
        return batch.repartitionById(trial.cores, slot).mapInArrow(_identity, batch.schema)

    times = run_batches(
        trial.stream(),
        lambda batch: through_python(batch).write.format("noop").mode("overwrite").save(),
        trial.epochs,
        trial.path("checkpoint"),
        afterwards=lambda batch: sums(through_python(batch)).write.parquet(kept),
    )
    first = trial.epochs * trial.per_epoch
    return TrialResult(times, trial.spark.read.parquet(kept), first, first + trial.per_epoch)


def _identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def native(trial: Trial) -> TrialResult:
    """Spark's own aggregation, in the JVM: RocksDB as its guide advises, see `midstream.bench.workbench`."""
    stream = trial.stream().groupBy("key").agg(*map(F.expr, SUMS))
    writer = stream.writeStream.format("noop").outputMode("update")
    times = run_query(trial.spark, writer, trial.epochs, trial.path("checkpoint"))
    state = _spark_state(trial).select("key.key", "value.*").toDF("key", "n", "total")
    return TrialResult(times, state, 0, trial.epochs * trial.per_epoch)


def transform_with_state(trial: Trial) -> TrialResult:
    """PySpark's `transformWithState`, row by row, with RocksDB set as for `native`."""
    require_transform_with_state()
    stream = trial.stream().groupBy("key").transformWithState(SumsProcessor(), _SCHEMA, "Update", "None")
    writer = stream.writeStream.format("noop").outputMode("update")
    times = run_query(trial.spark, writer, trial.epochs, trial.path("checkpoint"))
    state = _spark_state(trial, stateVarName="sums").selectExpr("key.key", "value.n", "value.total")
    return TrialResult(times, state, 0, trial.epochs * trial.per_epoch)


def aggregate_in_runs(trial: Trial) -> TrialResult:
    """A declared aggregate, its state in sorted runs."""
    return _ours(trial, declared, store="runs")


def function_in_runs(trial: Trial) -> TrialResult:
    """A keyed function, its state in sorted runs."""
    return _ours(trial, per_key, store="runs")


class SumsProcessor(StatefulProcessor):
    """Count and sum per key, written for PySpark's `transformWithState`."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._sums = handle.getValueState("sums", "n long, total long")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Any]:
        """Add the rows of a key."""
        n, total = self._sums.get() or (0, 0)
        for row in rows:
            n += 1
            total += row.price
        self._sums.update((n, total))
        yield Row(key=key[0], n=n, total=total)

    def close(self) -> None:
        """Leave nothing open."""


def aggregate(trial: Trial) -> TrialResult:
    """Midstream's declared aggregate."""
    return _ours(trial, declared)


def function(trial: Trial) -> TrialResult:
    """Midstream's function per key."""
    return _ours(trial, per_key)


class Sums(ms.KeyedFunction):
    """Count and sum per key, written for Midstream."""

    n = ms.value("long", default=0)
    total = ms.value("long", default=0)

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Iterable[tuple[Any, ...]]:
        """Add the rows of a key."""
        self.n += len(rows)
        self.total += sum(row.price for row in rows)
        yield key, self.n, self.total


def declared(rows: ms.Stream, slots: int = 0) -> ms.Stream:
    """Sum rows (key, price) with a declared aggregate, under the id `sums`; 0 slots: one for each core."""
    return rows.key_by("key").aggregate("sums", slots=slots, n=ms.count(), total=ms.sum("price"))


def per_key(rows: ms.Stream) -> ms.Stream:
    """Sum rows (key, price) with a keyed function, under the id `sums`."""
    return rows.key_by("key").process("sums", Sums(), schema=_SCHEMA)


def saved_sums(spark: SparkSession, savepoint: str) -> DataFrame:
    """Read what the operator `sums` holds out of a savepoint."""
    return spark.read.parquet(os.path.join(savepoint, "state", "sums", "record")).select("key", "n", "total")


def _ours(trial: Trial, operator: Callable[[ms.Stream], ms.Stream], **options: Any) -> TrialResult:
    flow = ms.Flow("bench")
    operator(flow.source("rows", trial.stream())).sink("out", ms.sinks.noop())
    run = run_flow(flow, trial.epochs, trial.directory, **options)
    return TrialResult(run.times, saved_sums(trial.spark, run.savepoint), 0, run.committed * trial.per_epoch)


def _spark_state(trial: Trial, **options: str) -> DataFrame:
    """Read the state that Spark keeps, as of the last timed epoch: there may be a later one."""
    reader = trial.spark.read.format("statestore").options(**options)
    return reader.option("batchId", trial.epochs - 1).load(trial.path("checkpoint"))


def require_transform_with_state() -> None:
    """Refuse to go on without what PySpark's `transformWithState` imports: its query would die at start."""
    needed = {"protobuf": "google.protobuf", "grpcio": "grpc"}  # package -> module
    missing = [package for package, module in needed.items() if not _is_there(module)]
    if missing:
        raise MidstreamError(
            f"PySpark's transformWithState needs {' and '.join(missing)}. Install it with "
            "\"pip install 'midstream[bench]'\", or leave the contestant transform_with_state out"
        )


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is missing
        return False


CONTESTANTS: dict[str, Callable[[Trial], TrialResult]] = {
    "ceiling": ceiling,
    "native": native,
    "transform_with_state": transform_with_state,
    "aggregate": aggregate,
    "function": function,
    "aggregate_in_runs": aggregate_in_runs,
    "function_in_runs": function_in_runs,
}
