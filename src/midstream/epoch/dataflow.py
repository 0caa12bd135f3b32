"""The DataFrames of one epoch: the plan, built over one micro-batch.

What an operator's frame is, its kind says. Here is what they share: outputs that are read twice are kept, sources are
cut out of the batch, and what is observed on the way is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from midstream.checkpoint.layout import backlog_directory, log_directory
from midstream.operators.keyed_run import KeyedRun
from midstream.operators.kinds import keyed_kind_of, kind_of
from midstream.operators.resolved import Resolved
from midstream.operators.shuffle import slots_frame
from midstream.plan import plan as p
from midstream.sources import union
from midstream.sources.union import parts_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SEEN = "seen"  # what an observation has seen


@dataclass(slots=True)
class Dataflow:
    """Builds the frames of one run of an epoch; `close` gives back what it persisted."""

    resolved: Resolved
    batch: DataFrame
    epoch: int
    run: str
    keyed: dict[str, KeyedRun]
    tags: dict[str, int]  # source -> its tag in the batch
    clock: int = 0  # of the epoch
    execution: Callable[[], Any] = lambda: None  # what Spark has planned for the batch, if it has
    observations: dict[tuple[str, str], Observation] = field(default_factory=dict)  # (what, operator) ->
    _frames: dict[str, DataFrame] = field(default_factory=dict)
    _everything: dict[str, DataFrame] = field(default_factory=dict)
    _persisted: list[DataFrame] = field(default_factory=list)
    _parts: dict[int, DataFrame] = field(default_factory=dict)  # tag -> rows, where the batch is taken apart

    @property
    def spark(self) -> SparkSession:
        """The session of the batch, which is not the outer one."""
        return self.batch.sparkSession

    def prepare(self) -> None:
        """See that no source is read twice, though the batch is a scan of all of them: take it apart, or keep it."""
        read = [self.tags[source.id] for source in self.resolved.plan.of(p.Source)]
        execution = None if self.batch.is_cached else self.execution()
        parts = parts_of(self.batch, execution, read) if execution is not None else None
        if parts is None and len(read) > 1:
            self.batch = self.kept(self.batch)
        self._parts = parts or {}

    def close(self) -> None:
        """Release what was persisted for the epoch."""
        for frame in self._persisted:
            frame.unpersist()
        self._persisted.clear()

    def kept(self, frame: DataFrame) -> DataFrame:
        """Keep rows that are read more than once, until `close`."""
        frame = frame.persist()
        self._persisted.append(frame)
        return frame

    def run_alone(self, id: str) -> None:
        """Run all slots of a keyed operator, to no sink."""
        operator = self.resolved.plan[id]
        rows = slots_frame(keyed_kind_of(operator), operator, self, markers=True)
        rows.write.format("noop").mode("overwrite").save()

    def observed(self, what: str) -> dict[str, Observation]:
        """Return what was observed of rows on their way, by operator."""
        return {id: found for (kind, id), found in self.observations.items() if kind == what}

    # --- what kinds of operators ask for ---

    def frame(self, id: str) -> DataFrame:
        """Return the output of an operator."""
        if id not in self._frames:
            operator = self.resolved.plan[id]
            frame = kind_of(operator).frame(operator, self)
            self._frames[id] = frame if self._is_read_once(id) else self.kept(frame)
        return self._frames[id]

    def everything(self, id: str) -> DataFrame:
        """Return all that the task of an operator gives, kept: several read it, and its task runs once."""
        if id not in self._everything:
            operator = self.resolved.plan[id]
            self._everything[id] = self.kept(kind_of(operator).everything(operator, self))
        return self._everything[id]

    def table(self, id: str) -> str:
        """Return the output of an operator as something to select from."""
        operator = self.resolved.plan[id]
        query = kind_of(operator).query(operator, self) if self._is_read_once(id) else None
        if query is not None:
            return f"({query})"
        frame = self.frame(id)
        view = f"_midstream_{list(self._frames).index(id)}"
        frame.createOrReplaceTempView(view)
        return view

    def source(self, operator: p.Source) -> tuple[DataFrame, Sequence[str], str]:
        """Return the rows that a source is among, its columns as SQL, and the condition that a row is one of them."""
        tag = self.tags[operator.id]
        columns = union.columns(tag, self.resolved.schemas[operator.id])
        if tag in self._parts:
            return self._parts[tag], columns, ""
        return self.batch, columns, union.is_of(tag)

    def observe(self, what: str, id: str, rows: DataFrame, expression: str) -> DataFrame:
        """Let an aggregate of rows be known after the run."""
        self.observations[what, id] = Observation()
        return rows.observe(self.observations[what, id], F.expr(expression).alias(SEEN))

    def directories(self, home: str) -> tuple[str, str]:
        """Return where the logs of a keyed operator go in this run, and the rows that it puts aside."""
        return log_directory(home, self.epoch, self.run), backlog_directory(home, self.epoch, self.run)

    def _is_read_once(self, id: str) -> bool:
        """Whether at most one operator reads an output."""
        plan = self.resolved.plan
        return sum(kind_of(reader).reads_input(reader, plan) for reader in plan.consumers(id)) < 2
