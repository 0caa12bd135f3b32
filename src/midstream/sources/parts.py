"""Which partitions of a batch are of which source: seen from Spark's plan of it, so that no row is read to find out.

A batch is the union of all sources, and Spark gives it as rows that are yet to be read. To take one source out of it by
its tag reads all of them, so that it would have to be kept where several are wanted. But each child of the union is
made of one source, with its tag as a constant, and its partitions stand together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass
from pyspark.sql import DataFrame

from midstream.sources.tagged import TAG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBER, _PRUNING = "scala.runtime.RichInt", "org.apache.spark.rdd.PartitionPruningRDD"
_AROUND = ("SQLExecutionRDD", "MapPartitionsRDD")  # one partition for one, in the same order


def plan_of(spark: SparkSession, query: str) -> Any | None:
    """Spark's plan of the batch that a query is at, given its name; `None` if it does not run."""
    for running in spark.streams.active:
        if running.name == query:
            return running._jsq.streamingQuery().lastExecution().executedPlan()
    return None


def parts_of(batch: DataFrame, plan: Any, tags: Iterable[int]) -> dict[int, DataFrame] | None:
    """Take a batch apart: the partitions of sources, by their tags.

    Promised: a part has all partitions of its source, and none of another; `None` where the plan has a form that does
    not say which these are.
    """
    logical = batch._jdf.queryExecution().logical()
    if _name(logical) != "LogicalRDD":
        return None
    rows, children = logical.rdd(), [_inner(plan)]
    parents = [rows]
    if _name(children[0]) == "UnionExec":
        union = rows
        while _name(union) in _AROUND:
            union = union.dependencies().head().rdd()
        if _name(union) != "UnionRDD":
            return None
        children, parents = [_inner(child) for child in _each(children[0].children())], list(_each(union.rdds()))
    if len(children) != len(parents):
        return None
    ranges, end = dict[int, tuple[int, int]](), 0
    for child, parent in zip(children, parents, strict=True):
        tag, begin, end = _tag(child), end, end + parent.getNumPartitions()
        if tag is None:
            return None
        before = ranges.get(tag, (begin, begin))
        if before[1] != begin:  # they do not stand together
            return None
        ranges[tag] = before[0], end
    if end != rows.getNumPartitions():
        return None
    return {tag: _part(batch, rows, *ranges.get(tag, (0, 0))) for tag in tags}


def _part(batch: DataFrame, rows: Any, begin: int, end: int) -> DataFrame:
    """Some partitions of a batch."""
    session, gateway = batch.sparkSession, batch.sparkSession.sparkContext._gateway
    assert gateway is not None
    number, pruning = (JavaClass(name, gateway._gateway_client) for name in (_NUMBER, _PRUNING))  # asks Java nothing
    is_wanted = number(begin).until(end).toSet()  # a set is a function that says what is in it
    some = pruning.create(rows, is_wanted)
    return DataFrame(session._jsparkSession.internalCreateDataFrame(some, batch._jdf.schema(), False), session)


def _tag(plan: Any) -> int | None:
    """The tag that all rows of a plan have, if it says so."""
    if _name(plan) != "ProjectExec":
        return None
    first = plan.projectList().head()
    if first.name() != TAG or _name(first) != "Alias" or _name(first.child()) != "Literal":
        return None
    return int(first.child().value())


def _inner(plan: Any) -> Any:
    return plan.child() if _name(plan) == "WholeStageCodegenExec" else plan


def _name(of: Any) -> str:
    return str(of.getClass().getSimpleName())


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(i) for i in range(sequence.size()))
