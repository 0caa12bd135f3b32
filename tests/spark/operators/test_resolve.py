"""A plan is validated operator by operator: what comes out of each, and what is refused, saying where and why."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.errors import PlanError
from midstream.flow.flow import Flow
from midstream.operators.resolve import resolve, worked_out
from midstream.operators.resolved import ResolutionError, Resolved
from midstream.plan import plan as p

ROWS = "user string, price long, ts timestamp, note string"
SOURCES = p.Plan(
    name="given", operators=(p.Source(id="rows", schema=ROWS), p.Source(id="others", schema="user string, rate double"))
)


class Total(ms.KeyedFunction):
    """Keeps every kind of state."""

    total = ms.value("long", default=0)
    seen = ms.map("string", "long", ttl="1 hour")
    noted = ms.list("double", scope="group")

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        return None


def same(batches: Any) -> Any:
    return batches


def resolved(spark: SparkSession, build: Callable[[ms.Stream], Any]) -> Resolved:
    """What a flow over rows with an event time resolves to; its end may be missing."""
    flow = Flow.of(SOURCES)
    build(flow.stream("rows").with_watermark("ts", "1 s", id="timed"))
    return worked_out(spark, flow.plan())


def shown(found: Resolved, id: str) -> str:
    return found.schemas[id].simpleString()


def test_every_operator_has_the_schema_of_what_it_gives(spark: SparkSession) -> None:
    def build(timed: ms.Stream) -> None:
        cheap = timed.transform("cheap", lambda df: df.where("price < 10").select("user", "price", "ts"))
        cheap.map_arrow("mapped", same, schema="user string, n int")
        cheap.key_by("user").aggregate("sums", n=ms.count(), total=ms.sum("price"), mean=ms.mean("price"))
        cheap.key_by("user").process("f", Total(), schema="user string, total long")
        cheap.key_by("user").window(ms.sliding(10, 5)).aggregate("w", best=ms.max("price")).late.transform("late", same)
        cheap.window(ms.session(5)).aggregate("sessions", n=ms.count())
        cheap.key_by("user").window(ms.count_window(3)).aggregate("threes", total=ms.sum("price"))
        cheap.key_by("user").window(ms.tumbling(10)).top("top", 2, by="price")

    found = resolved(spark, build)
    bounds = "window_start:timestamp,window_end:timestamp"
    assert {id: shown(found, id) for id in found.schemas if "." not in id} == {
        "rows": "struct<user:string,price:bigint,ts:timestamp,note:string>",
        "others": "struct<user:string,rate:double>",
        "timed": "struct<user:string,price:bigint,ts:timestamp,note:string>",
        "cheap": "struct<user:string,price:bigint,ts:timestamp>",
        "mapped": "struct<user:string,n:int>",
        "sums": "struct<user:string,n:bigint,total:bigint,mean:double>",
        "f": "struct<user:string,total:bigint>",
        "w": f"struct<user:string,{bounds},best:bigint>",
        "late": "struct<user:string,price:bigint,ts:timestamp,late_reason:string>",
        "sessions": f"struct<{bounds},n:bigint>",
        "threes": "struct<user:string,window:bigint,total:bigint>",
        "top": f"struct<user:string,price:bigint,ts:timestamp,{bounds}>",
    }
    assert found.event_times["cheap"] == "ts"
    assert found.event_times["mapped"] is None, "its column is gone"
    assert found.event_times["w"] == "window_start"
    assert set(found.keyed) == {"sums", "f", "w", "sessions", "threes", "top"}
    assert all(keyed.watermarks == ("timed",) for keyed in found.keyed.values())


def test_state_is_known_with_its_types_and_its_layout(spark: SparkSession) -> None:
    found = resolved(spark, lambda timed: timed.key_by("user").process("f", Total(), schema="user string"))
    keyed = found.keyed["f"]
    assert keyed.layout == "by (user string): value total long, map seen string long with ttl"
    assert (len(keyed.stages), keyed.base, keyed.top) == (1, 0, 2)
    assert keyed.shared is not None
    assert [field.name for field in keyed.shared.fields] == ["noted"]
    windows = resolved(spark, lambda timed: timed.window(ms.tumbling(10)).aggregate("w", n=ms.count()))
    assert windows.keyed["w"].keys.names == ["_pane"]
    assert windows.keyed["w"].compiled is not None


REFUSED: dict[str, tuple[Callable[[ms.Stream], Any], str, str]] = {
    "no schema": (
        lambda timed: timed.map_arrow("m", same, schema="n long,,"),
        "m", "map_arrow 'm': 'n long,,' is not a schema",
    ),
    "one type": (
        lambda timed: timed.map_arrow("m", same, schema="long"),
        "m", "map_arrow 'm': 'long' is one type, not a schema; write 'name type, name type'",
    ),
    "output": (
        lambda timed: timed.key_by("user").process("f", Total(), schema="?"), "f", "process 'f': '?' is not a schema",
    ),
    "punctuation": (
        lambda timed: timed.key_by("user").window(ms.tumbling(1)).with_punctuation("nowhere").aggregate(
            "w", n=ms.count()
        ),
        "w", "window 'w': the punctuation 'nowhere' is not a condition on a row of struct<user:string",
    ),
    "a number is no condition": (
        lambda timed: timed.with_watermark("ts", 0, punctuation="price", id="again"),
        "again", "with_watermark 'again': the punctuation 'price' is not a condition on a row",
    ),
    "partition_by": (
        lambda timed: timed.key_by("user", partition_by="price").aggregate("a", n=ms.count()),
        "a", "operator 'a': partition_by='price' must be an expression over the key columns user alone",
    ),
    "no event time": (
        lambda timed: timed.flow.stream("others").window(ms.tumbling(1)).aggregate("w", n=ms.count()),  # type: ignore[attr-defined]
        "w", "window 'w' needs an event time: write with_watermark(column, delay) before it",
    ),
    "bounds": (
        lambda timed: timed.key_by("user").window(ms.tumbling(1)).aggregate("w", Window_Start=ms.count()),
        "w", "window 'w': a result has the name 'Window_Start' already; rename the column",
    ),
    "union": (
        lambda timed: timed.union("u", timed.flow.stream("others")),  # type: ignore[attr-defined]
        "u", "union 'u': 'timed' has struct<user:string,price:bigint,ts:timestamp,note:string>, 'others' has",
    ),
    "sum of text": (
        lambda timed: timed.key_by("user").aggregate("a", n=ms.sum("note")),
        "a", "cannot be computed over a column of type string",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_with_the_operator_and_its_inputs(spark: SparkSession, case: str) -> None:
    build, operator, complaint = REFUSED[case]
    with pytest.raises(ResolutionError, match=re.escape(complaint)) as refused:
        resolved(spark, build)
    assert refused.value.operator == operator
    assert all(schema.names for schema in refused.value.inputs.values())


TOPS: dict[str, tuple[Callable[[ms.Stream], Any], str]] = {
    "by": (
        lambda timed: timed.window(ms.tumbling(1)).top("t", by="size"),
        "top 't': there is no column 'size'; the stream has user, price, ts, note",
    ),
    "no event time": (
        lambda timed: timed.flow.stream("others").window(ms.tumbling(1)).top("t", by="rate"),  # type: ignore[attr-defined]
        "top 't' needs event time: write with_watermark(column, delay) before it",
    ),
    "bounds": (
        lambda timed: (
            timed.transform("more", lambda df: df.selectExpr("*", "1 as Window_End"))
            .window(ms.tumbling(1))
            .top("t", by="price")
        ),
        "top 't': the rows have a column 'Window_End', as the windows will; rename it in a transform",
    ),
    "punctuation": (
        lambda timed: timed.window(ms.tumbling(1)).with_punctuation("nowhere").top("t", by="price"),
        "top 't': the punctuation 'nowhere' is not a condition on a row",
    ),
    "no windows": (
        lambda timed: timed.window(ms.count_window(3)).aggregate("c", n=ms.count()).top("t", by="n"),
        "top 't' needs windows of event time, with window_start and window_end; 'c' has none",
    ),
}


@pytest.mark.parametrize("case", TOPS)
def test_a_top_that_cannot_be_is_refused_when_it_is_written(spark: SparkSession, case: str) -> None:
    build, complaint = TOPS[case]
    with pytest.raises(PlanError, match=re.escape(complaint)):
        resolved(spark, build)


def test_a_whole_plan_is_checked_for_its_wiring_too(spark: SparkSession) -> None:
    flow = Flow.of(SOURCES)
    flow.stream("rows").sink("out", ms.sinks.noop())
    flow.stream("others").sink("out2", ms.sinks.noop())
    assert shown(resolve(spark, flow.plan()), "out") == "struct<user:string,price:bigint,ts:timestamp,note:string>"
    with pytest.raises(PlanError):
        resolve(spark, SOURCES)
