"""Changes of a plan: what each makes of the wiring, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import midstream as ms
from midstream.errors import PlanError
from midstream.flow import builders
from midstream.modifications import changes
from midstream.modifications.changes import changed
from midstream.plan import plan as p
from midstream.plan.code import load


class Keep(ms.KeyedFunction):
    total = ms.value("long", default=0)


class Other(Keep):
    limit = 0


def big(df: Any) -> Any:
    return df.where("price > 1")


def small(df: Any) -> Any:
    return df.where("price < 1")


def at(operator: p.AnyOperator, *inputs: str) -> p.AnyOperator:
    return msgspec.structs.replace(operator, inputs=inputs)


PLAN = p.Plan(
    name="bids",
    operators=(
        p.Source(id="left", schema="key long, price long"),
        p.Source(id="right", schema="key long, price long"),
        at(builders.transform(big, id="big"), "left"),
        p.Union(id="all", inputs=("big", "right")),
        at(builders.key_by("key").process(Keep(), schema="key long, total long", slots=3, id="sums"), "all"),
        at(builders.sink(ms.sinks.memory(), id="out"), "sums"),
        at(builders.sink(ms.sinks.memory(), id="copy"), "big"),
    ),
)


def wiring(plan: p.Plan) -> dict[str, tuple[str, ...]]:
    return {operator.id: operator.inputs for operator in plan.operators}


def differs(*steps: changes.Change) -> dict[str, tuple[str, ...] | None]:
    """How the wiring differs after the changes: id -> inputs, None for what is gone."""
    before, after = wiring(PLAN), wiring(changed(PLAN, steps))
    return {id: after.get(id) for id in {**before, **after} if before.get(id) != after.get(id)}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([ms.replace("big", small)], {}),
        ([ms.insert("new", small, after="big")], {"new": ("big",), "all": ("new", "right"), "copy": ("new",)}),
        ([ms.insert("new", small, before="copy")], {"new": ("big",), "copy": ("new",)}),
        ([ms.insert("new", small, between=("right", "all"))], {"new": ("right",), "all": ("big", "new")}),
        ([ms.remove("big")], {"big": None, "all": ("left", "right"), "copy": ("left",)}),
        ([ms.remove("sums")], {"sums": None, "out": ("all",)}),
        ([ms.remove_sink("copy")], {"copy": None}),
        ([ms.add_sink("more", ms.sinks.memory(), after="sums")], {"more": ("sums",)}),
        (
            [ms.branch("big", lambda big: big.transform("new", small).sink("more", ms.sinks.memory()))],
            {"new": ("big",), "more": ("new",)},
        ),
        (
            [ms.insert("new", small, after="big"), ms.remove("big")],
            {"big": None, "new": ("left",), "all": ("new", "right"), "copy": ("new",)},
        ),
        ([ms.remove("out"), ms.remove("sums"), ms.remove("all")], {"out": None, "sums": None, "all": None}),
    ],
)
def test_a_change_rewires_just_what_it_says(
    steps: list[changes.Change], expected: dict[str, tuple[str, ...] | None]
) -> None:
    assert differs(*steps) == expected


def test_a_function_is_taken_as_it_is_when_the_change_is_written():
    steps = [ms.replace("big", lambda df: df.where(f"price > {limit}")) for limit in (100, 500)]  # noqa: B023 - meant
    taken = [load(changed(PLAN, [step])["big"].code) for step in steps]
    assert [function(SimpleNamespace(where=str)) for function in taken] == ["price > 100", "price > 500"]


def test_a_keyed_function_is_taken_as_it_is_when_the_change_is_written():
    keep = Other()
    keep.limit = 100
    step = ms.replace("sums", keep)
    keep.limit = 500
    assert load(changed(PLAN, [step])["sums"].code).limit == 100


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([ms.replace("nobody", small)], "no operator 'nobody'.*it has 'left', 'right'"),
        ([ms.replace("left", small)], "'left' is a source and has nothing to replace"),
        ([ms.replace("sums", small)], "'sums' is a process and cannot be replaced by function"),
        ([ms.replace("big", Keep())], "'big' is a transform; to put a KeyedFunction in its place"),
        ([ms.insert("big", small, after="left")], "the id 'big' is used already"),
        ([ms.insert("new", small, after="nobody")], "no operator 'nobody'"),
        ([ms.insert("new", small, before="all")], "'all' reads 'big', 'right'; give between="),
        ([ms.insert("new", small, between=("left", "out"))], "'out' does not read 'left'"),
        ([ms.remove("left")], "'left' is a source"),
        ([ms.remove("all")], "'all' reads 'big', 'right' and is read by 'sums'"),
        ([ms.remove_sink("big")], "'big' is a transform, not a sink"),
        ([ms.add_sink("big", ms.sinks.memory(), after="left")], "the id 'big' is used already"),
        ([ms.branch("big", lambda big: None)], "add operators and sinks"),
        ([ms.branch("big", lambda big: big.transform("sums", small))], "the id 'sums' is used twice"),
        ([ms.branch("none", lambda none: none.sink("more", ms.sinks.memory()))], "no operator 'none'"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(steps: list[changes.Change], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        changed(PLAN, steps)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ms.insert("new", small), "give one of after=, before=, between="),
        (lambda: ms.insert("new", small, after="big", before="all"), "give one of"),
        (lambda: ms.insert("new", Keep(), after="big"), "Keep is not an operator"),
        (lambda: ms.insert("new", builders.sink(ms.sinks.memory()), after="big"), "ms.add_sink"),
        (lambda: ms.add_sink("new", print, after="big"), "must be one of ms.sinks"),
    ],
)
def test_a_change_that_cannot_be_meant_is_refused_where_it_is_written(make: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make()


def test_a_replaced_function_keeps_what_belongs_to_the_operator() -> None:
    new = changed(PLAN, [ms.replace("sums", Other())])["sums"]
    assert isinstance(new, p.Process)
    assert (new.keys, new.slots, new.schema) == (("key",), 3, "key long, total long")
    assert new.code.name.endswith("Other")


@pytest.mark.parametrize(
    "steps",
    [
        [ms.replace("big", small)],
        [ms.insert("new", small, after="big"), ms.remove("big")],
        [ms.remove("sums"), ms.remove("copy")],
        [ms.add_sink("more", ms.sinks.memory(), after="sums"), ms.replace("sums", Other())],
    ],
)
def test_an_undo_gives_the_plan_back(steps: list[changes.Change]) -> None:
    after = changed(PLAN, steps)
    undone = changed(after, [changes.undone(PLAN, after)])
    assert sorted(undone.operators, key=lambda o: o.id) == sorted(PLAN.operators, key=lambda o: o.id)


def test_an_undo_leaves_later_changes_of_other_operators_alone() -> None:
    first = changed(PLAN, [ms.replace("big", small)])
    second = changed(first, [ms.replace("sums", Other())])
    undone = changed(second, [changes.undone(PLAN, first)])
    assert undone["big"] == PLAN["big"]
    assert undone["sums"] == second["sums"]


def test_an_undo_of_what_was_changed_again_is_refused() -> None:
    first = changed(PLAN, [ms.replace("big", small)])
    second = changed(first, [ms.remove("big")])
    with pytest.raises(PlanError, match="'big' has been changed again since"):
        changed(second, [changes.undone(PLAN, first)])


def test_an_undo_of_what_was_rescaled_since_keeps_its_slots() -> None:
    first = changed(PLAN, [ms.replace("sums", Other())])
    rescaled = tuple(msgspec.structs.replace(o, slots=7) if o.id == "sums" else o for o in first.operators)
    second = msgspec.structs.replace(first, operators=rescaled)
    undone = changed(second, [changes.undone(PLAN, first)])
    assert undone["sums"] == msgspec.structs.replace(PLAN["sums"], slots=7)
    with pytest.raises(PlanError, match="is undone already"):
        changed(undone, [changes.undone(PLAN, first)])


def test_to_become_another_flow_touches_only_what_differs() -> None:
    new = at(builders.transform(small, id="big"), "left")
    other = msgspec.structs.replace(PLAN, operators=tuple(new if o.id == "big" else o for o in PLAN.operators))
    after = changed(PLAN, [changes.become(other)])
    assert [o.id for o in after.operators if o != PLAN[o.id]] == ["big"]


def test_a_plan_is_shown_as_a_tree() -> None:
    assert (
        PLAN.explain()
        == """\
bids, version 1
├─ left (source)
│  └─ big (transform)
│     ├─ all (union, reads right too)
│     │  └─ sums (process by key)
│     │     └─ out (sink: memory())
│     └─ copy (sink: memory())
└─ right (source)"""
    )


def test_a_circle_is_refused() -> None:
    with pytest.raises(PlanError, match="'a', 'b' read each other in a cycle"):
        p.in_order([p.Union(id="a", inputs=("b",)), p.Union(id="b", inputs=("a",))])
