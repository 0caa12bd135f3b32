"""Several sources as one stream, so that an epoch is a consistent cut over all of them; and taken apart again.

Every source has its own columns in the union (`c<source>_<column>`), null in the rows of others: flat columns cost
less than structs. A heartbeat, one row a second, brings epochs when the sources are idle, so that timers fire and
modifications apply.

A batch of the union comes from Spark as rows that are still to be computed. Filtering it by the tag of one source would
read all of them, and compute every column of every row, needed or not. But Spark's plan of the batch says how the rows
of each source are computed from those of its reader. Over the reader's rows of this batch that is a query like any
other: Spark reads one source only, drops rows before it computes their columns, and computes no unused column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from midstream.plan.sql import quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TAG = "_source"
HEARTBEAT = -1


def tagged_union(sources: Sequence[tuple[int, DataFrame]]) -> DataFrame:
    """Merge sources in their order, each with its tag."""
    schemas = {tag: frame.schema for tag, frame in sources if tag >= 0}
    united, *others = [_tagged(frame, tag, schemas) for tag, frame in sources]
    for other in others:
        united = united.union(other)
    return united


def heartbeat(spark: SparkSession) -> DataFrame:
    """One row a second."""
    return spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()


def union_schema(schemas: Mapping[int, StructType]) -> StructType:
    """The schema of the union, for an epoch without rows."""
    columns = [StructField(TAG, IntegerType())]
    for tag, schema in schemas.items():
        columns += [StructField(_name(tag, j), field.dataType) for j, field in enumerate(schema)]
    return StructType(columns)


def is_of(index: int) -> str:
    """The condition that a row of the union is of one source."""
    return f"{TAG} = {index}"


def columns(index: int, schema: StructType) -> list[str]:
    """The columns of one source in the union, under their own names."""
    return [f"{_name(index, j)} as {quote(field.name)}" for j, field in enumerate(schema)]


def _tagged(frame: DataFrame, index: int, schemas: Mapping[int, StructType]) -> DataFrame:
    columns = [F.lit(index).alias(TAG)]
    for i, schema in schemas.items():
        for j, field in enumerate(schema):
            value = frame[f"`{field.name}`"] if i == index else F.lit(None).cast(field.dataType)
            columns.append(value.alias(_name(i, j)))
    return frame.select(*columns)


def _name(source: int, column: int) -> str:
    return f"c{source}_{column}"


_DATASET, _MAP = "org.apache.spark.sql.classic.Dataset", "scala.collection.immutable.HashMap"
_OBJECT, _ROWS = "java.lang.Object", "org.apache.spark.sql.execution.ColumnarToRowExec"


def execution_of(spark: SparkSession, query: str) -> Any | None:
    """Return Spark's plan of the current batch of a query, by its name; `None` if it does not run."""
    for running in spark.streams.active:
        if running.name == query:
            return running._jsq.streamingQuery().lastExecution()
    return None


def parts_of(batch: DataFrame, execution: Any, tags: Iterable[int]) -> dict[int, DataFrame] | None:
    """Take a batch apart: the rows of sources, by their tags, with the columns of the batch.

    Promised: a part has all rows of its source, and none of another; Spark counts as read the rows of the parts that
    are run. `None` where the plan does not say which rows are of which source.

    Not promised: the state of stateful operators; a source must have none.
    """
    whole, wanted = execution.optimizedPlan(), set(tags)
    plans = list(_each(whole.children())) if whole.nodeName() == "Union" else [whole]
    readers = list(_each(execution.executedPlan().collectLeaves()))
    found: dict[int, list[DataFrame]] = {tag: [] for tag in wanted}
    for plan in plans:
        tag, leaves = _tag(plan), list(_each(plan.collectLeaves()))
        if tag is None or len(leaves) > len(readers):
            return None
        its, readers = readers[: len(leaves)], readers[len(leaves) :]
        if tag in wanted:
            part = _over(batch.sparkSession, plan, leaves, its)
            if part is None:
                return None
            found[tag].append(part)
    if readers:
        return None
    return {tag: _together(parts) if parts else batch.where("false") for tag, parts in found.items()}


def _over(session: SparkSession, plan: Any, leaves: list[Any], readers: list[Any]) -> DataFrame | None:
    """A plan over the rows of the readers of this batch, in place of the streams that it names."""
    java = _Java(session)
    rows = java.named(_MAP)()
    for leaf, reader in zip(leaves, readers, strict=True):
        if leaf.isStreaming():
            if reader.nodeName() == "ReusedExchange" or not reader.outputSet().subsetOf(leaf.outputSet()):
                return None
            rows = rows.updated(leaf, java.rows(reader))
    made = plan.transform(rows)  # Scala: a Map is a partial function
    return DataFrame(java.named(_DATASET).ofRows(session._jsparkSession, made), session)


class _Java:
    """Classes of Java by full name: looking a name up part by part would cost a call for each part."""

    def __init__(self, session: SparkSession) -> None:
        gateway = session.sparkContext._gateway
        assert gateway is not None
        self._session, self._gateway = session._jsparkSession, gateway

    def named(self, name: str) -> JavaClass:
        """A class."""
        return JavaClass(name, self._gateway._gateway_client)

    def rows(self, reader: Any) -> Any:
        """The rows of a reader as the leaf of a plan, with the reader's own columns."""
        if reader.supportsColumnar():
            reader = self.named(_ROWS)(reader)
        frame = self._session.internalCreateDataFrame(reader.execute(), reader.schema(), False)
        leaf = frame.queryExecution().logical()
        fields = self._gateway.new_array(self.named(_OBJECT), leaf.productArity())
        for i in range(len(fields)):
            fields[i] = leaf.productElement(i) if i else reader.output()
        return leaf.makeCopy(fields)


def _together(parts: list[DataFrame]) -> DataFrame:
    """A source that is a union itself has several."""
    first, *others = parts
    for other in others:
        first = first.union(other)
    return first


def _tag(plan: Any) -> int | None:
    """The tag that all rows of a plan have, if it says so."""
    if plan.nodeName() != "Project":
        return None
    first = plan.projectList().head()
    if first.name() != TAG or first.nodeName() != "Alias" or first.child().nodeName() != "Literal":
        return None
    return int(first.child().value())


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(i) for i in range(sequence.size()))
