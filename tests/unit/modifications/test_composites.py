"""What is built in the place of an operator of several parts: which parts go, what is read, what stays behind it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import midstream as ms
from midstream.errors import PlanError
from midstream.flow import builders
from midstream.modifications.changes import changed, undone
from midstream.modifications.composites import Built
from midstream.plan import plan as p
from midstream.plan.wiring import check
from tests.unit.modifications.test_changes import Keep, Other, at, big, wiring


def same(id: str, *inputs: str) -> p.AnyOperator:
    return at(builders.transform(big, id=id), *inputs)


def keyed(id: str, *inputs: str, slots: int = 0, function: ms.KeyedFunction | None = None) -> p.AnyOperator:
    made = builders.key_by("key").process(function or Keep(), schema="key long, total long", slots=slots, id=id)
    return at(made, *inputs)


def sink(id: str, *inputs: str) -> p.AnyOperator:
    return at(builders.sink(ms.sinks.memory(), id=id), *inputs)


SOURCES = (p.Source(id="orders", schema="key long"), p.Source(id="payments", schema="key long"))
JOIN = p.Plan(
    name="join",
    operators=(
        *SOURCES,
        same("clean", "orders"),
        same("j.left", "clean"),
        same("j.right", "payments"),
        p.Union(id="j.rows", inputs=("j.left", "j.right")),
        keyed("j", "j.rows", slots=3),
        sink("out", "j"),
    ),
)
TOP = p.Plan(
    name="top",
    operators=(
        *SOURCES,
        same("once", "orders"),
        p.Spread(id="best.windows", inputs=("once",), of="best", size=10, slide=10),
        same("best.rows", "best.windows"),
        keyed("best", "best.rows"),
        p.Late(id="best.late", inputs=("orders",), of="best"),
        sink("late", "best.late"),
        same("behind", "best"),
        sink("out", "behind"),
    ),
)


class Builder:
    """Adds operators to the end of a plan, and remembers what it was given to read."""

    def __init__(self, *made: p.AnyOperator) -> None:
        self.made, self.read = made, ""

    def __call__(self, plan: p.Plan, read: str, id: str) -> p.Plan:
        self.read = read
        return msgspec.structs.replace(plan, operators=(*plan.operators, *self.made))


def joined(*inputs: str, **options: Any) -> Builder:
    left, right = inputs
    union = p.Union(id="j.rows", inputs=("j.left", "j.right"))
    return Builder(same("j.left", left), same("j.right", right), union, keyed("j", "j.rows", **options))


def test_a_join_is_built_on_its_left_side_in_whatever_order_its_parts_stand() -> None:
    left, right = JOIN["j.left"], JOIN["j.right"]
    turned = [{left.id: right, right.id: left}.get(operator.id, operator) for operator in JOIN.operators]
    for plan in (JOIN, msgspec.structs.replace(JOIN, operators=tuple(turned))):
        builder = joined("clean", "payments")
        assert wiring(changed(plan, [ms.replace("j", Built(builder))])) == wiring(JOIN)
        assert builder.read == "clean"


def test_operators_stay_in_their_order_where_that_is_one() -> None:
    assert p.in_order(JOIN.operators) == JOIN.operators
    check(msgspec.structs.replace(TOP, operators=p.in_order(TOP.operators[::-1])))


def test_slots_and_state_go_on_unless_it_is_said_otherwise() -> None:
    def replaced(**options: Any) -> p.Process:
        found = changed(JOIN, [ms.replace("j", Built(joined("clean", "payments", **options)))])["j"]
        assert isinstance(found, p.Process)
        return found

    assert replaced().slots == 3
    assert replaced(slots=2).slots == 2
    other = Built(joined("clean", "payments", function=Other()))
    migrated = changed(JOIN, [ms.replace("j", other, migrate=lambda old: old)])["j"]
    assert isinstance(migrated, p.Process)
    assert migrated.migration is not None
    whole = changed(JOIN, [ms.replace("j", ms.key_by("key").aggregate(n=ms.count()))])["j"]
    assert isinstance(whole, p.Aggregate)
    assert whole.slots == 3
    with pytest.raises(PlanError, match="schema= and on_error= are for functions"):
        changed(JOIN, [ms.replace("j", other, schema="key long")])


def test_what_is_behind_stays_and_late_rows_are_those_that_the_new_windows_get() -> None:
    windows = p.Spread(id="best.windows", inputs=("once",), of="best", size=20, slide=10)
    builder = Builder(windows, same("best.rows", "best.windows"), keyed("best", "best.rows"))
    new = changed(TOP, [ms.replace("best", Built(builder))])
    assert builder.read == "once"
    assert wiring(new) == wiring(TOP) | {"best.late": ("once",)}
    late = p.Late(id="best.late", inputs=("once",), of="best")
    again = changed(TOP, [ms.replace("best", Built(Builder(*builder.made, late)))])
    assert wiring(again) == wiring(new)


@pytest.mark.parametrize(
    ("plan", "made", "message"),
    [
        (TOP, [keyed("best", "once"), sink("out", "best")], "has an operator 'out', as the plan has"),
        (
            changed(TOP, [ms.insert("only", big, before="best.rows")]),
            [keyed("best", "once")],
            "'best.windows' is not before 'best' alone: remove what stands between",
        ),
        (TOP, [keyed("best", "once")], "'best.late' are the late rows of 'best', which has no windows"),
    ],
)
def test_what_would_be_lost_unseen_is_refused(plan: p.Plan, made: list[p.AnyOperator], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        changed(plan, [ms.replace("best", Built(Builder(*made)))])


def test_an_operator_named_like_a_part_is_none_of_its_own() -> None:
    plan = changed(TOP, [ms.insert("best.once", big, before="best.windows")])
    windows = p.Spread(id="best.windows", inputs=("best.once",), of="best", size=20, slide=10)
    builder = Builder(windows, same("best.rows", "best.windows"), keyed("best", "best.rows"))
    new = changed(plan, [ms.replace("best", Built(builder))])
    assert builder.read == "best.once"
    assert wiring(new)["best.once"] == ("once",)


def test_a_transform_that_became_keyed_and_was_rescaled_is_taken_back() -> None:
    after = changed(TOP, [ms.replace("behind", ms.key_by("key").aggregate(n=ms.count()))])
    rescaled = changed(after, [ms.rescale("behind", slots=4)])
    assert changed(rescaled, [undone(TOP, after)]).operators == TOP.operators
