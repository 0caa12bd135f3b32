"""The contract of a kind of operator: one class says what it means for validation and for Spark.

A kind belongs to one node of the plan; `kinds.py` has the list. What keeps state has a `KeyedKind`, see `keyed.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from midstream.operators.resolved import Keyed, Resolved
from midstream.plan import plan as p

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from midstream.operators.keyed_run import KeyedRun

Node = TypeVar("Node", bound=Any)
EVENT_TIME, LATE, FAILED_ROWS = "event time", "late", "failed"  # what is observed of rows in passing


@dataclass(frozen=True, slots=True)
class Resolving:
    """What is known of all operators before the one that is resolved."""

    spark: SparkSession
    found: Resolved
    inputs: tuple[StructType, ...]

    def event_time(self, *ids: str) -> str | None:
        """Return the event-time column that some operators have in common."""
        times = {self.found.event_times[id] for id in ids}
        return times.pop() if len(times) == 1 else None


@dataclass(frozen=True, slots=True)
class Output:
    """The output of an operator."""

    schema: StructType
    event_time: str | None = None  # the column that has it, if it is one of the schema
    keyed: Keyed | None = None  # of one that keeps state


class Frames(Protocol):
    """The frames of one run of an epoch, as far as an operator needs them."""

    resolved: Resolved
    keyed: dict[str, KeyedRun]
    clock: int  # of the epoch

    @property
    def spark(self) -> SparkSession:
        """The session of the batch."""
        ...

    def frame(self, id: str) -> DataFrame:
        """Return the output of an operator."""
        ...

    def table(self, id: str) -> str:
        """Return the output of an operator as something to select from."""
        ...

    def everything(self, id: str) -> DataFrame:
        """Return everything that an operator's task emits, its rows and what is put aside, kept until the run ends."""
        ...

    def source(self, operator: p.Source) -> tuple[DataFrame, Sequence[str], str]:
        """Return the rows that include those of a source, its columns as SQL, and which rows are its own, "": all."""
        ...

    def observe(self, what: str, id: str, rows: DataFrame, expression: str) -> DataFrame:
        """Observe an aggregate of rows; after the run it is known, by what it is and by the operator."""
        ...

    def directories(self, home: str) -> tuple[str, str]:
        """Return where the logs of a keyed operator go in this run, and the rows that it puts aside."""
        ...


class Kind(ABC, Generic[Node]):
    """What one kind of operator means."""

    counts_late: bool = False  # its task reports late rows

    @abstractmethod
    def resolve(self, operator: Node, rows: Resolving) -> Output:
        """Validate the operator over its inputs; raise a `PlanError` that says what to do."""

    def frame(self, operator: Node, frames: Frames) -> DataFrame:
        """Return its output in one run of an epoch; by default what `query` says."""
        query = self.query(operator, frames)
        if query is None:
            raise AssertionError(f"{operator.id!r} has no output")
        return frames.spark.sql(query)

    def query(self, operator: Node, frames: Frames) -> str | None:
        """Return its output as text, where it can be: one text costs the driver less than two frames."""
        return None

    def everything(self, operator: Node, frames: Frames) -> DataFrame:
        """Return everything its task emits, where that is more than its output: late rows, rows that were put aside."""
        return self.frame(operator, frames)

    def observed(self, operator: Node, frames: Frames) -> Any:
        """Work out what it lets be observed of its rows, for where Spark has left that out of the run."""
        raise AssertionError(f"nothing is observed of {operator.id!r}")

    def reads_input(self, operator: Node, plan: p.Plan) -> bool:
        """Tell whether it reads the output of its input; some read what another operator puts aside."""
        return True
