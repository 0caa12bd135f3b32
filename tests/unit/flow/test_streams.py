"""Streams: each call adds an operator that reads the stream, and gives its output as the next one."""

from __future__ import annotations

import re
from typing import Any

import pytest

import midstream as ms
from midstream.errors import PlanError
from midstream.flow.flow import Flow
from midstream.flow.streams import KeyedStream, Stream, Windowed
from midstream.plan import plan as p

SOURCES = p.Plan(name="given", operators=(p.Source(id="a", schema="n long"), p.Source(id="b", schema="n long")))


class Silent(ms.KeyedFunction):
    """Does nothing."""

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        return None


class Hears(Silent):
    """Listens."""

    def on_broadcast(self, rows: list[Any], ctx: ms.Context) -> None:
        return None


def same(rows: Any) -> Any:
    return rows


@pytest.fixture
def flow() -> Flow:
    return Flow.of(SOURCES)


def wiring(flow: Flow) -> dict[str, tuple[str, ...]]:
    """What was added, and what it reads."""
    return {operator.id: operator.inputs for operator in flow.plan().operators if operator.inputs}


def test_operators_are_wired_as_they_are_written(flow: Flow):
    a, b = flow.stream("a"), flow.stream("b")
    kept = a.transform("t", same).map_arrow("m", same, schema="n long").with_watermark("ts", "1 s")
    both = kept.union("u", b)
    counts = both.key_by("n").aggregate("counts", n_rows=ms.count())
    both.key_by("n").process("f", Hears(), schema="n long", broadcast=b.broadcast(order_by="n"))
    both.deduplicate("once", "n", within="1 hour")
    assert counts.sink("out", ms.sinks.noop()) is None
    assert wiring(flow) == {
        "t": ("a",),
        "m": ("t",),
        "m.watermark": ("m",),
        "u": ("m.watermark", "b"),
        "counts": ("u",),
        "f": ("u", "b"),
        "once": ("u",),
        "out": ("counts",),
    }


def test_a_key_and_its_partitioning_go_along(flow: Flow):
    keyed = flow.stream("a").key_by("city", "street", partition_by="city")
    keyed.process("f", Silent(), schema="", slots=3)
    keyed.deduplicate("once", within=1, slots=4)
    keyed.window(ms.session(5)).aggregate("w", n=ms.count())
    for operator in flow.plan().of(p.KeyedOperator):
        assert (operator.keys, operator.partition_by) == (("city", "street"), "city")
    assert [operator.slots for operator in flow.plan().of(p.KeyedOperator)] == [3, 4, 0]


def test_windows_over_all_rows_have_no_key_and_rows_may_end_them(flow: Flow):
    windowed = flow.stream("a").window(ms.tumbling(10)).with_punctuation("done")
    found = windowed.aggregate("w", n=ms.count(), lateness=2, emit="update", slots=1)
    (window,) = flow.plan().of(p.Window)
    assert (window.keys, window.punctuation, window.lateness, window.emit) == ((), "done", 2_000_000, "update")
    assert found == Windowed(flow, "w", "a")
    assert flow.stream("a").window(ms.tumbling(10)).punctuation == ""


def test_late_rows_are_a_stream_that_is_made_once(flow: Flow):
    windows = flow.stream("a").window(ms.tumbling(10)).aggregate("w", n=ms.count())
    assert windows.late == windows.late == Stream(flow, "w.late")
    assert flow.plan().of(p.Late) == [p.Late(id="w.late", inputs=("a",), of="w")]


def test_errors_are_a_stream_that_is_made_once(flow: Flow):
    found = flow.stream("a").key_by("n").process("f", Silent(), schema="", on_error="dead_letter")
    assert found.errors == found.errors == Stream(flow, "f.errors")
    assert flow.plan().of(p.Errors) == [p.Errors(id="f.errors", inputs=("f",), of="f")]


def test_a_watermark_may_have_an_id_of_its_own(flow: Flow):
    assert flow.stream("a").with_watermark("ts", 0, id="times").id == "times"
    assert flow.stream("a").with_watermark("ts", 0).id == "a.watermark"


def test_any_number_of_others_may_read_a_stream(flow: Flow):
    a = flow.stream("a")
    for id in ("one", "two", "three"):
        a.transform(id, same)
    assert wiring(flow) == dict.fromkeys(("one", "two", "three"), ("a",))


@pytest.mark.parametrize(
    ("write", "complaint"),
    [
        (lambda a, b: a.key_by(), "key_by on 'a' needs at least one column"),
        (
            lambda a, b: a.errors,
            "'a' has no errors to read: write on_error='dead_letter' in its process(...) or map_arrow(",
        ),
        (
            lambda a, b: a.key_by("n").process("f", Silent(), schema="").errors,
            "'f' has no errors to read: write on_error='dead_letter'",
        ),
        (lambda a, b: a.transform("b", same), "the id 'b' is used twice in flow 'given'"),
        (
            lambda a, b: a.key_by("n").join("j", b),
            "join 'j' needs a keyed stream to join with: write other.key_by(...)",
        ),
        (
            lambda a, b: a.key_by("n").join("j", Flow.of(SOURCES).stream("b").key_by("n")),
            "join 'j': both sides must be streams of one flow; 'b' is of another",
        ),
        (
            lambda a, b: a.window(ms.count_window(3)).aggregate("w", n=ms.count(), lateness=1),
            "window 'w': windows by count have neither lateness nor emit; they are emitted when full",
        ),
        (
            lambda a, b: a.window(ms.count_window(3)).aggregate("w", n=ms.count(), emit="update"),
            "window 'w': windows by count have neither lateness nor emit",
        ),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_left_of_it(flow: Flow, write: Any, complaint: str):
    known = {"f"} if "'f'" in complaint else set()
    with pytest.raises(PlanError, match=re.escape(complaint)):
        write(flow.stream("a"), flow.stream("b"))
    assert set(wiring(flow)) == known


def test_what_is_no_windows_of_event_time_has_no_late_rows(flow: Flow):
    with pytest.raises(PlanError, match=r"'f.late' are the late rows of 'f', which has no windows of event time"):
        Windowed(flow, "f", "a").late  # noqa: B018 - it is a property that adds an operator


def test_a_keyed_stream_is_known_by_its_flow_its_input_and_its_key(flow: Flow):
    assert flow.stream("a").key_by("n") == KeyedStream(flow, "a", ("n",), "")
