"""Several sources as one stream: a tagged union, so that an epoch is a consistent cut over all of them.

Every source has its own columns in the union (`c<source>_<column>`), null in the rows of others: flat columns cost
less than structs. A heartbeat, one row a second, makes epochs come when the sources are idle, so that timers fire and
modifications apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from midstream.aggregates import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TAG = "_source"
HEARTBEAT = -1


def tagged_union(spark: SparkSession, sources: dict[str, DataFrame], heartbeat: bool) -> DataFrame:
    """Unite the sources, in the order of their names in the dictionary."""
    schemas = [source.schema for source in sources.values()]
    frames = [_tagged(source, i, schemas) for i, source in enumerate(sources.values())]
    if heartbeat:
        beats = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()
        frames.append(_tagged(beats, HEARTBEAT, schemas))
    united = frames[0]
    for frame in frames[1:]:
        united = united.union(frame)
    return united


def only(table: str, index: int, schema: StructType) -> str:
    """The query that takes the rows of one source out of a batch of the union."""
    columns = ", ".join(f"{_name(index, j)} as {quote(field.name)}" for j, field in enumerate(schema))
    return f"select {columns} from {table} where {TAG} = {index}"


def _tagged(frame: DataFrame, index: int, schemas: list[StructType]) -> DataFrame:
    columns = [F.lit(index).alias(TAG)]
    for i, schema in enumerate(schemas):
        for j, field in enumerate(schema):
            value = frame[f"`{field.name}`"] if i == index else F.lit(None).cast(field.dataType)
            columns.append(value.alias(_name(i, j)))
    return frame.select(*columns)


def _name(source: int, column: int) -> str:
    return f"c{source}_{column}"
