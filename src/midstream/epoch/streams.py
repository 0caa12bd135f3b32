"""The streams of a query: those of a plan's sources, in the order in which Spark counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from midstream.checkpoint.offsets import HEARTBEAT, Feed, grown
from midstream.errors import PlanError
from midstream.plan.plan import Plan, Source
from midstream.sources import union
from midstream.sources.given import made, streams_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Tagged: TypeAlias = "tuple[int, DataFrame]"  # the tag of a source, its stream


def streams_for(
    spark: SparkSession,
    plan: Plan,
    known: Sequence[Feed],
    given: Mapping[str, DataFrame],
    max_rows: int | None,
    *,
    heartbeat: bool,
) -> tuple[tuple[Feed, ...], list[Tagged]]:
    """Make the streams of a query that can feed a plan, and say which sources they are.

    Args:
        spark: the session.
        plan: whose sources are wanted.
        known: the sources of the query so far; those that the plan does not read keep their number.
        given: the streams that the script has made.
        max_rows: per epoch, of sources that can be limited.
        heartbeat: whether one is wanted.
    """
    wanted: dict[str, Source] = {source.id: source for source in plan.of(Source)}
    made_by = {feed.id: feed.code for feed in known if not feed.forgotten and feed.id != HEARTBEAT}
    made_by |= {source.id: source.code for source in wanted.values()}
    frames: dict[str, DataFrame] = {}
    for id, code in made_by.items():
        if code is not None:
            frames[id] = made(id, code, spark, max_rows)
        elif id in given:
            frames[id] = given[id]
        elif id in wanted:
            raise PlanError(
                f"the plan reads the source {id!r}, which this script does not define; start with a script that does, "
                "or with on_drift='apply' to go on without it"
            )
        else:  # neither the script nor the journal can make it, and no plan reads it
            known = tuple(msgspec.structs.replace(f, forgotten=True) if f.id == id else f for f in known)
    lines = {id: streams_of(frame) for id, frame in frames.items()}
    feeds = grown(known, plan, lines, heartbeat=heartbeat)
    return feeds, _in_order(spark, feeds, frames)


def _in_order(spark: SparkSession, feeds: Sequence[Feed], frames: Mapping[str, DataFrame]) -> list[Tagged]:
    found: list[Tagged] = []
    for tag, feed in enumerate(feeds):
        if feed.forgotten or feed.id == HEARTBEAT:
            found += [(union.HEARTBEAT, union.heartbeat(spark)) for _ in range(feed.lines)]
        else:
            found.append((tag, frames[feed.id]))
    return found
