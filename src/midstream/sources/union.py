"""Several sources as one stream: a tagged union, so that an epoch is a consistent cut over all of them.

Every source has its own columns in the union (`c<source>_<column>`), null in the rows of others: flat columns cost
less than structs. A heartbeat, one row a second, brings epochs when the sources are idle, so that timers fire and
modifications apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from midstream.plan.sql import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
