"""Plans as values: what is refused, how two differ, whether state still fits, and that nothing is lost in JSON."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from midstream.errors import PlanError
from midstream.operators.aggregates import declare as ms
from midstream.plan.code import Code
from midstream.plan.compatibility import check_state_fits, difference
from midstream.plan.plan import (
    Aggregate,
    AggregateSpec,
    AnyOperator,
    KeyedOperator,
    MapArrow,
    Plan,
    Process,
    Sink,
    Source,
    StateField,
    Transform,
    Union,
    Watermark,
)
from midstream.plan.text import decode, encode
from midstream.plan.wiring import check


def code(digest: str = "d", **others: Any) -> Code:
    return Code(digest=digest, key=f"key of {digest}", name="f", pickled=b"\x00\xff" + digest.encode(), **others)


SOURCE = Source(id="in", schema="x int")
BIG = Transform(id="big", inputs=("in",), code=code("big"))
TIMED = Watermark(id="timed", inputs=("big",), column="t", delay=5_000_000)
SUMS = Process(
    id="sums",
    inputs=("timed",),
    code=code("sums"),
    keys=("x",),
    schema="x int, total double",
    state=(
        StateField(name="total", kind="value", type="double", default=0.0),
        StateField(name="seen", kind="map", key_type="string", type="long", ttl=60),
    ),
    slots=4,
)
COUNTS = Aggregate(
    id="counts",
    inputs=("in",),
    keys=("x",),
    aggregates=(msgspec.structs.replace(ms.quantiles("y", 0.5, 0.9), name="q"),),
)
BOTH = Union(id="both", inputs=("sums", "counts"))
ARROW = MapArrow(id="arrow", inputs=("both",), code=code("arrow"), schema="x int")
OUT = Sink(id="out", inputs=("arrow",), code=code("out"), describe="files in /out")
PLAN = Plan(name="flow", operators=(SOURCE, BIG, TIMED, SUMS, COUNTS, BOTH, ARROW, OUT), version=3)


def plan(*operators: AnyOperator) -> Plan:
    return Plan(name="flow", operators=operators)


def with_changed(operator: AnyOperator, **changes: Any) -> Plan:
    """The plan, with one operator changed."""
    changed = msgspec.structs.replace(operator, **changes)
    return Plan(name="flow", operators=tuple(changed if each is operator else each for each in PLAN.operators))


# --- reading a plan -------------------------------------------------------------------------------------------------


def test_operators_are_found_by_id_by_kind_and_by_what_they_read():
    assert PLAN["sums"] is SUMS
    assert PLAN.of(KeyedOperator) == [SUMS, COUNTS]
    assert PLAN.consumers("in") == [BIG, COUNTS]
    assert {operator.id for operator in PLAN.upstream("sums")} == {"sums", "timed", "big", "in"}
    assert [operator.id for operator in PLAN.upstream("both")].count("in") == 1
    with pytest.raises(PlanError, match="no operator 'summs' in flow 'flow'; it has 'in', 'big'"):
        PLAN["summs"]


def test_a_plan_is_shown_one_operator_a_line():
    assert PLAN.explain().splitlines()[:3] == ["flow, version 3", "└─ in (source)", "   ├─ big (transform)"]


# --- check ----------------------------------------------------------------------------------------------------------


def test_a_plan_that_is_wired_well_passes():
    check(PLAN)
    check(plan(SOURCE, msgspec.structs.replace(OUT, inputs=("in",))))
    check(plan(SOURCE, COUNTS))


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (plan(SOURCE, BIG, BIG, OUT), "the id 'big' is used twice in flow 'flow'"),
        (plan(SOURCE, SUMS, TIMED, BIG), "operator 'sums' reads 'timed', which is not defined before it"),
        (
            plan(SOURCE, msgspec.structs.replace(BIG, inputs=("big",))),
            "operator 'big' reads 'big', which is not defined",
        ),
        (plan(BIG, OUT), "operator 'big' reads 'in', which is not defined before it"),
        (plan(), "flow 'flow' has no source"),
        (plan(SOURCE, BIG), "flow 'flow' has neither a sink nor a keyed operator"),
    ],
)
def test_a_plan_that_is_wired_wrongly_is_refused(wrong: Plan, complaint: str):
    with pytest.raises(PlanError, match=complaint):
        check(wrong)


@pytest.mark.parametrize("id", ["", "a b", "a/b", "..", ".hidden", "a\n", "a*", "a:b", "a\\b"])
def test_an_id_that_could_not_be_a_directory_is_refused(id: str):
    with pytest.raises(PlanError, match="cannot be an id"):
        check(plan(msgspec.structs.replace(SOURCE, id=id), COUNTS))


@pytest.mark.parametrize("id", ["a", "A-1_b.c", "größe", "9"])
def test_letters_digits_and_three_signs_make_an_id(id: str):
    check(plan(msgspec.structs.replace(SOURCE, id=id), msgspec.structs.replace(COUNTS, inputs=(id,))))


# --- difference -----------------------------------------------------------------------------------------------------


def test_a_plan_does_not_differ_from_itself_read_back():
    found = difference(PLAN, decode(encode(PLAN)))
    assert not found
    assert str(found) == "no difference"


@pytest.mark.parametrize(
    ("operator", "changes"),
    [
        (SUMS, {"slots": 8}),
        (COUNTS, {"slots": 1}),
        (BIG, {"code": Code(digest="big", key="other", name="g", pickled=b"other", source="x")}),
        (OUT, {"code": code("another")}),
    ],
    ids=["slots", "slots of an aggregate", "pickled bytes", "code of a sink"],
)
def test_what_does_not_change_the_meaning_is_no_difference(operator: AnyOperator, changes: dict[str, Any]):
    assert not difference(PLAN, with_changed(operator, **changes))


@pytest.mark.parametrize(
    ("operator", "changes"),
    [
        (SOURCE, {"schema": "x long"}),
        (BIG, {"code": code("other")}),
        (BIG, {"per_epoch": True}),
        (TIMED, {"delay": 1}),
        (SUMS, {"keys": ("y",)}),
        (SUMS, {"order_by": ("t",)}),
        (SUMS, {"state": (msgspec.structs.replace(SUMS.state[0], default=1.0), SUMS.state[1])}),
        (SUMS, {"state": (SUMS.state[0], msgspec.structs.replace(SUMS.state[1], ttl=61))}),
        (COUNTS, {"aggregates": (msgspec.structs.replace(ms.quantiles("y", 0.5), name="q"),)}),
        (BOTH, {"inputs": ("counts", "sums")}),
        (OUT, {"describe": "files in /elsewhere"}),
    ],
)
def test_what_changes_the_meaning_is_a_difference(operator: AnyOperator, changes: dict[str, Any]):
    found = difference(PLAN, with_changed(operator, **changes))
    assert (found.added, found.removed, found.changed) == ((), (), (operator.id,))


def test_a_difference_says_what_was_added_removed_and_changed():
    new = plan(
        SOURCE, msgspec.structs.replace(BIG, per_epoch=True), msgspec.structs.replace(OUT, id="new", inputs=("big",))
    )
    found = difference(plan(SOURCE, BIG, TIMED, OUT), new)
    assert found
    assert str(found) == "added 'new'; removed 'timed', 'out'; changed 'big'"


# --- check_state_fits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "new",
    [
        with_changed(SUMS, code=code("other"), schema="x int", slots=9),
        with_changed(SUMS, state=(msgspec.structs.replace(SUMS.state[0], default=5.0), SUMS.state[1])),
        with_changed(SUMS, state=(SUMS.state[0], msgspec.structs.replace(SUMS.state[1], ttl=1))),
        with_changed(SUMS, state=(SUMS.state[0], msgspec.structs.replace(SUMS.state[1], ttl=0))),
        with_changed(SUMS, id="renamed", keys=("y",), state=()),
        plan(SOURCE, OUT),
    ],
    ids=["code", "default", "ttl of a map", "no ttl of a map", "another id", "removed"],
)
def test_state_that_is_stored_alike_fits(new: Plan):
    check_state_fits(PLAN, new)


TOTAL, SEEN = SUMS.state


@pytest.mark.parametrize(
    ("new", "complaint"),
    [
        (
            with_changed(SUMS, keys=("x", "y")),
            "'sums' has state by x of a process; the new plan has process state by x, y",
        ),
        (with_changed(SUMS, state=(TOTAL,)), "total: value double, seen: map string long, the new plan declares total"),
        (with_changed(SUMS, state=(SEEN, TOTAL)), "the state of operator 'sums' is"),
        (with_changed(SUMS, state=(msgspec.structs.replace(TOTAL, type="long"), SEEN)), "declares total: value long"),
        (
            with_changed(SUMS, state=(msgspec.structs.replace(TOTAL, ttl=9), SEEN)),
            "declares total: value with ttl double",
        ),
        (with_changed(SUMS, state=(TOTAL, msgspec.structs.replace(SEEN, key_type="int"))), "seen: map int long"),
        (with_changed(SUMS, state=(TOTAL, msgspec.structs.replace(SEEN, kind="list"))), "seen: list"),
        (
            with_changed(COUNTS, aggregates=(AggregateSpec(name="q", function="max", column="y"),)),
            r"is q: quantiles\(y, 0.5, 0.9\), the new plan declares q: max\(y\)",
        ),
        (
            Plan(name="flow", operators=(SOURCE, msgspec.structs.replace(COUNTS, id="sums"))),
            "'sums' has state by x of a process; the new plan has aggregate state by x",
        ),
    ],
)
def test_state_that_would_be_read_as_something_else_is_refused(new: Plan, complaint: str):
    with pytest.raises(PlanError, match=complaint):
        check_state_fits(PLAN, new)


# --- encode, decode -------------------------------------------------------------------------------------------------


def test_a_plan_is_read_back_as_it_was_written():
    assert decode(encode(PLAN)) == PLAN


@pytest.mark.parametrize(
    "default",
    [
        0,
        -1.5,
        0.1,
        math.inf,
        -math.inf,
        math.nan,
        True,
        "text",
        'it\'s "quoted"\n',
        "inf",
        b"\x00\xff",
        (1, ("a", None)),
        Decimal("1.50"),
        dt.date(2020, 2, 29),
        dt.datetime(2020, 1, 1, 12, 30),
        dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc),
        None,
    ],
    ids=repr,
)
def test_a_default_is_read_back_as_it_was_written(default: Any):
    written = plan(
        SOURCE, msgspec.structs.replace(SUMS, inputs=("in",), state=(msgspec.structs.replace(TOTAL, default=default),))
    )
    read = decode(encode(written))
    assert repr(read["sums"].state[0].default) == repr(default)  # type: ignore[union-attr]
    assert not difference(written, read)


def test_a_default_that_cannot_be_kept_is_refused():
    class Mine:
        pass

    state = (msgspec.structs.replace(TOTAL, default=Mine()),)
    with pytest.raises(PlanError, match=r"the default of state 'total', .*Mine.*, cannot be kept"):
        encode(plan(SOURCE, msgspec.structs.replace(SUMS, inputs=("in",), state=state)))


def test_a_plan_is_json_that_people_can_read():
    text = encode(PLAN).decode()
    assert '"kind": "watermark"' in text
    assert '"default": "0.0"' in text
