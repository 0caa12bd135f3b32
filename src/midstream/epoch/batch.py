"""What Spark hands over for an epoch: rows, and where the sources stand after them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from midstream.checkpoint.offsets import HEARTBEAT, Feed, tags
from midstream.operators.schemas import parse_schema
from midstream.sources.union import union_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Batch:
    """The input of one epoch."""

    rows: DataFrame  # the tagged union of all sources
    offsets: tuple[str, ...]  # of every source after these rows, in Spark's order
    feeds: tuple[Feed, ...]  # the sources of the query that has read them
    final: bool = False  # the input has ended: no rows, and the watermark passes the end of time


def batch_schema(feeds: Sequence[Feed]) -> StructType:
    """Return the schema of the tagged union, for an epoch without rows."""
    known = {tag: feeds[tag] for id, tag in tags(feeds).items() if id != HEARTBEAT}
    return union_schema({tag: parse_schema(feed.schema, f"source {feed.id!r}") for tag, feed in known.items()})
