"""Running a flow over lists: every list is one epoch; a crash or a failing task is a value among them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.durations import Duration, micros
from midstream.errors import MidstreamError
from midstream.events import After, Before, Event, Progress, Rerun, Step
from midstream.flow.flow import Flow
from midstream.flow.streams import Stream
from midstream.flow.triggers import available_now
from midstream.job.job import Job
from midstream.operators.schemas import arrow_schema, parse_schema
from midstream.plan import plan as p
from midstream.plan.code import load
from midstream.sinks.memory import Memory
from midstream.state.values import micros_of, moment_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


@dataclass(frozen=True, slots=True)
class Crash:
    """The driver dies in the epoch of the next list: before or after a step of the protocol; then it is restarted."""

    at: Step = Step.COMMIT
    when: str = "before"  # or "after"


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """A task of the next list's epoch fails once."""


@dataclass(frozen=True, slots=True)
class Batches:
    """The input of one source: a schema, and one list of rows per epoch, with faults between them."""

    schema: str
    values: tuple[Sequence[tuple[Any, ...]] | Crash | TaskFailure, ...]

    def lists(self) -> list[Sequence[tuple[Any, ...]]]:
        """Return the lists of rows alone."""
        return [value for value in self.values if not isinstance(value, (Crash, TaskFailure))]

    def faults(self) -> dict[int, list[Crash | TaskFailure]]:
        """Return the faults by epoch."""
        found: dict[int, list[Crash | TaskFailure]] = {}
        epoch = 0
        for value in self.values:
            if isinstance(value, (Crash, TaskFailure)):
                found.setdefault(epoch, []).append(value)
            else:
                epoch += 1
        return found


def batches(schema: str, *values: Sequence[tuple[Any, ...]] | Crash | TaskFailure) -> Batches:
    """Describe the input of a source: each list of tuples is an epoch."""
    return Batches(schema, values)


class ManualClock:
    """A clock that stands still until it is advanced, or that advances by `step` with every epoch.

    >>> clock = ManualClock("2026-01-01T00:00:00", step="1 minute")
    >>> clock(), clock()
    (1767225600000000, 1767225660000000)
    """

    def __init__(self, start: str | datetime = "2026-01-01T00:00:00", step: Duration = 0) -> None:
        moment = datetime.fromisoformat(start) if isinstance(start, str) else start
        self._now = micros_of(moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc))
        self._step = micros(step)

    @property
    def now(self) -> datetime:
        """The time of the next epoch."""
        return moment_of(self._now)

    def advance(self, by: Duration) -> None:
        """Let time pass."""
        self._now += micros(by)

    def __call__(self) -> int:
        """Return the time for an epoch."""
        now = self._now
        self._now += self._step
        return now


@dataclass(slots=True)
class Result:
    """What a run left."""

    outputs: dict[str, dict[int, list[Row]]]  # sink -> epoch -> rows
    events: list[Event] = field(default_factory=list)
    crashes: int = 0
    task_failures: int = 0
    state: dict[str, dict[str, list[Row]]] = field(default_factory=dict)  # operator -> table -> rows, if asked for

    def rows(self, sink: str) -> list[Row]:
        """Return all rows of a memory sink, epoch by epoch."""
        return [row for _, rows in sorted(self.outputs[sink].items()) for row in rows]

    def epochs(self) -> list[Progress]:
        """Return the report of every epoch that was run."""
        return [event for event in self.events if isinstance(event, Progress)]

    def reruns(self) -> list[Rerun]:
        """Return the epochs that had to be run again."""
        return [event for event in self.events if isinstance(event, Rerun)]


class CrashedError(MidstreamError):
    """The crash that a test asked for."""


def run(
    spark: SparkSession,
    build: Callable[..., None],
    *,
    checkpoint: str | None = None,
    clock: Callable[[], int] | None = None,
    end_of_input: bool = False,
    state: bool = False,
    options: dict[str, Any] | None = None,
    **inputs: Batches,
) -> Result:
    """Run a flow over lists to the end of its input, through the faults in the lists.

    Args:
        spark: a classic session; `local[2,4]` is a good master.
        build: called with a `Flow` and a stream per input; must end in `memory` sinks to get rows back.
        checkpoint: a directory to use; by default a temporary one, deleted afterwards.
        clock: a `ManualClock`, by default one that advances a second per epoch.
        end_of_input: end with an epoch in which every timer fires.
        state: also return the state of every keyed operator, as tables (through a savepoint).
        options: more options for `Flow.start`.
        inputs: by source id.
    """
    directory = tempfile.mkdtemp(prefix="midstream-test-")
    try:
        runner = _Runner(spark, build, inputs, directory, checkpoint or os.path.join(directory, "checkpoint"))
        return runner.run(clock or ManualClock(step="1 second"), end_of_input, state, options or {})
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def source(spark: SparkSession, directory: str, schema: str, lists: Sequence[Sequence[tuple[Any, ...]]]) -> DataFrame:
    """Make a replayable stream of lists: a directory with one file per list, read one per epoch."""
    os.makedirs(directory, exist_ok=True)
    arrow = arrow_schema(parse_schema(schema, "the test's input"))
    for number, rows in enumerate(lists):
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(arrow)
        arrays = [pa.array(column, f.type) for column, f in zip(columns, arrow, strict=True)]
        path = os.path.join(directory, f"{number:06}.parquet")
        if not os.path.exists(path):
            hidden = os.path.join(directory, f".{number:06}")  # a running stream must not see it before it is complete
            pq.write_table(pa.table(arrays, schema=arrow), hidden)
            os.utime(hidden, (1_000_000 + number, 1_000_000 + number))  # Spark takes files in the order of their times
            os.rename(hidden, path)
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(directory)


class _Runner:
    def __init__(
        self,
        spark: SparkSession,
        build: Callable[..., None],
        inputs: dict[str, Batches],
        directory: str,
        checkpoint: str,
    ) -> None:
        self._spark, self._build, self._inputs = spark, build, inputs
        self._directory, self._checkpoint = directory, checkpoint
        self._result = Result({})
        self._marker = os.path.join(directory, "fail-once")
        self._pending: dict[int, list[Crash | TaskFailure]] = {}
        for given in inputs.values():
            for epoch, faults in given.faults().items():
                self._pending.setdefault(epoch, []).extend(faults)

    def run(self, clock: Callable[[], int], end_of_input: bool, state: bool, options: dict[str, Any]) -> Result:
        while True:
            flow = self._flow()
            job: Job | None = None
            try:
                job = flow.start(
                    self._checkpoint,
                    trigger=available_now(end_of_input=end_of_input),
                    clock=clock,
                    listener=self._listen,
                    cache=os.path.join(self._directory, "cache"),
                    **options,
                )
                job.await_termination()
                self._collect(flow)
                if state:
                    self._read_state(job)
                if any(self._pending.values()) or os.path.exists(self._marker):
                    raise AssertionError(f"faults that never fired: {self._pending or 'a task failure'}")
                return self._result
            except CrashedError:
                self._result.crashes += 1
                self._collect(flow)

    def _flow(self) -> Flow:
        flow = Flow("test")
        streams: dict[str, Stream] = {}
        for id, given in self._inputs.items():
            frame = source(self._spark, os.path.join(self._directory, "input", id), given.schema, given.lists())
            if any(isinstance(value, TaskFailure) for value in given.values):
                frame = frame.mapInArrow(_FailOnce(self._marker), frame.schema)
            streams[id] = flow.source(id, frame)
        self._build(flow, **streams)
        return flow

    def _listen(self, event: Event) -> None:
        self._result.events.append(event)
        if not isinstance(event, (Before, After)):
            return
        waiting = self._pending.get(event.epoch, [])
        for fault in list(waiting):
            if isinstance(fault, TaskFailure) and event == Before(Step.RUN, event.epoch):
                waiting.remove(fault)
                with open(self._marker, "w"):
                    self._result.task_failures += 1
            elif isinstance(fault, Crash):
                point = After if fault.when == "after" else Before
                if event == point(fault.at, event.epoch):
                    waiting.remove(fault)
                    raise CrashedError(
                        f"crash {fault.when} {fault.at.value} of epoch {event.epoch}, as the test asked for"
                    )

    def _collect(self, flow: Flow) -> None:
        for operator in flow.plan().of(p.Sink):
            sink = load(operator.code)
            if isinstance(sink, Memory):
                self._result.outputs.setdefault(operator.id, {}).update(
                    {epoch: sink.rows(epoch) for epoch in sink.epochs()}
                )

    def _read_state(self, job: Job) -> None:
        path = os.path.join(self._directory, "savepoint")
        job.savepoint(path)
        for operator in job.plan.of(p.KeyedOperator):
            root = os.path.join(path, "state", operator.id)
            self._result.state[operator.id] = {
                table: self._spark.read.parquet(os.path.join(root, table)).collect()
                for table in sorted(os.listdir(root))
            }


@dataclass(frozen=True)
class _FailOnce:
    """Passes batches on, and fails in the one task that finds and removes the marker."""

    marker: str

    def __call__(self, incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            os.unlink(self.marker)
        except FileNotFoundError:
            yield from incoming
            return
        raise RuntimeError("a task failure, as the test asked for")
