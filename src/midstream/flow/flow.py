"""The flow: a named set of streams between sources and sinks, which `start` runs as a job."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING, Any

from midstream.errors import PlanError
from midstream.flow.streams import Stream, Windowed
from midstream.flow.triggers import Trigger, every
from midstream.plan import plan as p
from midstream.plan.plan import AnyOperator, Plan
from midstream.sources.given import given, session_at_hand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from midstream.job.job import Job


class Flow:
    """A named set of streams; `start` runs it as a job.

    Promised: nothing runs before `start`, and `start` refuses a flow that cannot work, and says why.

    >>> flow = Flow("empty")
    >>> flow.plan().name
    'empty'
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.sources: dict[str, DataFrame] = {}
        self._operators: list[AnyOperator] = []

    @classmethod
    def of(cls, plan: Plan) -> Flow:
        """A flow that begins with the operators of a plan; it cannot be started, since it makes no sources."""
        flow = cls(plan.name)
        flow._operators = list(plan.operators)
        return flow

    def stream(self, id: str) -> Stream:
        """The output of an operator that the flow has already: `flow.stream("counts")`."""
        plan = self.plan()
        plan[id]
        windows = p.windows_of(plan, id)
        if windows is None:
            return Stream(self, id)
        return Windowed(self, id, windows.inputs[0])

    @property
    def session(self) -> SparkSession:
        """The session of the sources."""
        return next((frame.sparkSession for frame in self.sources.values()), None) or session_at_hand()

    def source(self, id: str, source: DataFrame | Callable[..., DataFrame]) -> Stream:
        """Add a source: a streaming DataFrame without stateful operators, or a function of the session returning one.

        With a function a running job can make the source again: `ms.add_source` takes nothing else. If it has
        a parameter `max_rows`, `ms.tune(max_rows_per_epoch=...)` sets it.
        """
        operator, frame = given(id, source)
        self.add(operator)
        self.sources[id] = frame
        return Stream(self, id)

    def union(self, id: str, *streams: Stream) -> Stream:
        """Merge streams of one schema."""
        self.add(p.Union(id=id, inputs=tuple(stream.id for stream in streams)))
        return Stream(self, id)

    def plan(self) -> Plan:
        """Return the flow in its frozen form."""
        return Plan(name=self.name, operators=tuple(self._operators))

    def start(
        self,
        checkpoint: str | PathLike[str],
        *,
        trigger: Trigger | None = None,
        on_drift: str = "fail",
        savepoint: str | PathLike[str] | None = None,
        groups: int | None = None,
        **options: Any,
    ) -> Job:
        """Start the flow as a job, or continue the job of this checkpoint.

        Args:
            checkpoint: directory of the job: a path, or a URI that both Spark and `pyarrow.fs` know.
            trigger: `every("1 second")` (the default) or `available_now()`.
            on_drift: what to do if the flow differs from the one that the checkpoint ran last: "fail" shows the
                difference, "keep" goes on with the old plan, "apply" goes on with this one, as a modification:
                it is in `job.modifications`, is rolled back if its first epoch fails, and can be undone.
            savepoint: start a new checkpoint from this savepoint.
            groups: number of key-groups, fixed for the job's life (128).
            options: see `midstream.job.start.Options`.
        """
        from midstream.job.start import Options, start

        return start(
            self, checkpoint, trigger=trigger or every("1 second"), on_drift=on_drift, savepoint=savepoint,
            groups=groups, options=Options(**options),
        )  # fmt: skip

    def add(self, *operators: AnyOperator) -> None:
        """Add operators as values: for streams, and for code that builds something streams do not have."""
        for operator in operators:
            if any(known.id == operator.id for known in self._operators):
                raise PlanError(
                    f"the id {operator.id!r} is used twice in flow {self.name!r}; give each operator its own"
                )
            self._operators.append(operator)
