"""Operators as values, before they have a place in a plan: what they hold, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

import midstream as ms
from midstream.errors import PlanError
from midstream.flow import builders
from midstream.flow.builders import Broadcast, Keys, named, reading
from midstream.operators.functions.deduplicate import Deduplicate
from midstream.plan import plan as p
from midstream.plan.code import load


class Total(ms.KeyedFunction):
    """Keeps a value per key and one per group."""

    total = ms.value("long", default=0)
    noted = ms.list("long", scope="group")

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        return None


class Hears(Total):
    """Listens to a broadcast."""

    def on_broadcast(self, rows: list[Any], ctx: ms.Context) -> None:
        return None


def same(batches: Any) -> Any:
    return batches


KEYS = builders.key_by("user", "day", partition_by="user")


def test_an_operator_reads_what_it_is_placed_behind_before_what_it_reads_already():
    union = builders.union("b", "c")
    assert (union.inputs, reading(union, "a").inputs) == (("b", "c"), ("a", "b", "c"))
    told = KEYS.process(Hears(), schema="", broadcast=builders.broadcast("news"))
    assert reading(told, "rows").broadcast == "news"


def test_functions_are_captured_as_they_are():
    transform = builders.transform(same, per_epoch=True, id="t")
    assert (transform.id, transform.inputs, transform.per_epoch) == ("t", (), True)
    assert load(transform.code)("x") == "x"
    arrow = builders.map_arrow(same, schema="n long", on_error="dead_letter")
    assert (arrow.id, arrow.schema, arrow.on_error) == ("", "n long", "dead_letter")
    assert not builders.transform(same).per_epoch


def test_a_watermark_is_in_microseconds():
    made = builders.watermark("ts", "1 s", idle_after="1 min", ahead=2, punctuation="done", id="w")
    assert made == p.Watermark(
        id="w", column="ts", delay=1_000_000, idle=60_000_000, ahead=2_000_000, punctuation="done"
    )
    assert builders.watermark("ts", 0) == p.Watermark(id="", column="ts", delay=0)


def test_state_of_keys_and_of_groups_are_apart_and_the_order_may_be_one_column():
    made = KEYS.process(Total(), schema="n long", slots=3, order_by="ts", id="f")
    assert (made.keys, made.partition_by, made.slots, made.schema) == (("user", "day"), "user", 3, "n long")
    assert ([field.name for field in made.state], [field.name for field in made.shared]) == (["total"], ["noted"])
    assert (made.order_by, made.on_error, made.broadcast) == (("ts",), "fail", None)
    assert KEYS.process(Total(), schema="", order_by=["a", "b"]).order_by == ("a", "b")


def test_a_broadcast_is_an_input_with_an_order():
    made = KEYS.process(Hears(), schema="", broadcast=builders.broadcast("news", order_by="at"))
    assert (made.inputs, made.broadcast_order) == (("news",), ("at",))
    assert builders.broadcast("news", order_by=iter(["a", "b"])) == Broadcast("news", ("a", "b"))


def test_a_deduplication_is_a_function_whose_rows_come_out_as_they_went_in():
    made = KEYS.deduplicate(within="1 hour", slots=2, id="once")
    assert (made.schema, made.slots, made.id) == ("", 2, "once")
    assert isinstance(load(made.code), Deduplicate)


def test_aggregates_are_named_as_they_are_given():
    made = KEYS.aggregate(id="sums", slots=2, n=ms.count(), total=ms.sum("price"))
    assert [(spec.name, spec.function, spec.column) for spec in made.aggregates] == [
        ("n", "count", ""),
        ("total", "sum", "price"),
    ]
    assert (made.keys, made.slots) == (("user", "day"), 2)


@pytest.mark.parametrize(
    ("window", "size", "slide", "gap"),
    [
        (ms.tumbling(10), 10_000_000, 10_000_000, 0),
        (ms.sliding(10, 2), 10_000_000, 2_000_000, 0),
        (ms.session(5), 0, 0, 5_000_000),
    ],
)
def test_windows_have_a_size_and_a_slide_or_a_gap(window: Any, size: int, slide: int, gap: int):
    made = KEYS.window(window).with_punctuation("done").aggregate(n=ms.count(), lateness=3, emit="update", id="w")
    assert (made.size, made.slide, made.gap) == (size, slide, gap)
    assert (made.keys, made.partition_by, made.punctuation) == (("user", "day"), "user", "done")
    assert (made.lateness, made.emit) == (3_000_000, "update")
    over_all = builders.window(window).aggregate(n=ms.count())
    assert (over_all.keys, over_all.punctuation, over_all.emit, over_all.lateness) == ((), "", "watermark", 0)


def test_a_sink_says_what_it_is():
    made = builders.sink(ms.sinks.memory("kept"), id="out")
    assert (made.id, made.describe) == ("out", ms.sinks.memory("kept").describe())


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: builders.transform("x", id="t"), "transform 't' needs a function of a DataFrame, not str"),
        (lambda: builders.union(), "union needs at least one other operator or source, by its id"),
        (lambda: builders.key_by(), "key_by needs at least one column"),
        (lambda: builders.sink("here", id="out"), "sink 'out' must be one of ms.sinks, not str"),
        (lambda: KEYS.process(Total, schema="", id="f"), "process 'f' needs a KeyedFunction: write Total()"),
        (
            lambda: KEYS.process(same, schema="", id="f"),
            "process 'f' needs a KeyedFunction: write an instance of a subclass",
        ),
        (
            lambda: KEYS.process(Total(), schema="", on_error="ignore", id="f"),
            "operator 'f': on_error is 'fail' or 'dead_letter', not 'ignore'",
        ),
        (lambda: KEYS.process(Hears(), schema="", id="f"), "process 'f': Hears has broadcast state or on_broadcast"),
        (
            lambda: KEYS.process(Hears(), schema="", broadcast="news", id="f"),
            "process 'f': broadcast= takes other.broadcast() or ms.broadcast(id), not a str",
        ),
        (
            lambda: KEYS.process(Total(), schema="", broadcast=builders.broadcast("news"), id="f"),
            "process 'f': Total gets the rows of 'news' and needs a method on_broadcast(rows, ctx)",
        ),
        (lambda: KEYS.aggregate(id="a"), "aggregate 'a' needs at least one aggregate, such as n=ms.count()"),
        (
            lambda: KEYS.aggregate(id="a", n=3),
            "aggregate 'a': n= must be ms.count(), ms.sum('price') or the like, not 3",
        ),
        (
            lambda: KEYS.aggregate(id="a", User=ms.count()),
            "aggregate 'a': User is a key column; give the result another name",
        ),
        (lambda: KEYS.aggregate(id="a", n=ms.count(), N=ms.count()), "another result is called 'N' too"),
        (
            lambda: KEYS.window(ms.tumbling(1)).aggregate(id="w", emit="always", n=ms.count()),
            "window 'w': emit is 'watermark' or 'update', not 'always'",
        ),
        (
            lambda: KEYS.window(ms.count_window(3)).aggregate(n=ms.count()),
            "a window for ms.insert or ms.replace needs ms.tumbling(...), ms.sliding(...) or ms.session(...), not",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(make: Any, complaint: str):
    with pytest.raises(PlanError, match=re.escape(complaint)):
        make()


def test_names_are_compared_as_spark_does():
    assert [spec.name for spec in named("a", ("user",), {"users": ms.count(), "n": ms.count()})] == ["users", "n"]
    assert Keys(("a",)) == builders.key_by("a")
