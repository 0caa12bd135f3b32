"""Changes of where operators run: what they say, what they want of executors, and what they leave as it is."""

from __future__ import annotations

import re
from typing import Any

import pytest

from midstream.errors import PlanError
from midstream.modifications.relocations import drain, move, rebalance, rescale
from midstream.placement.request import Wish
from midstream.placement.strategies import batched, live
from midstream.plan import plan as p

PLAN = p.Plan(
    name="flow",
    operators=(
        p.Source(id="s", schema="k long"),
        p.Aggregate(id="sums", inputs=("s",), keys=("k",), aggregates=(), owners=(0, 1), slots=2),
        p.Aggregate(id="more", inputs=("s",), keys=("k",), aggregates=()),
    ),
)


def slots(plan: p.Plan) -> dict[str, tuple[int, int | None, tuple[int, ...]]]:
    """Of each keyed operator: its slots, those that the script asks for, and which slot owns what."""
    return {o.id: (o.slots, o.asked, o.owners) for o in plan.of(p.KeyedOperator)}


def test_one_operator_is_rescaled_and_what_the_script_asks_for_is_remembered():
    change = rescale("sums", slots=8)
    assert (change.what, change.wish) == ("rescale 'sums' to 8 slots", Wish("sums", live()))
    once = change.apply(PLAN)
    assert slots(once) == {"sums": (8, 2, ()), "more": (0, None, ())}
    assert slots(rescale("sums", slots=4).apply(once))["sums"] == (4, 2, ()), "of the script, not of the change before"
    assert once.operators[0] == PLAN.operators[0]


def test_all_operators_are_rescaled():
    change = rescale(slots=3, strategy=batched(2))
    assert (change.what, change.wish) == ("rescale all to 3 slots", Wish(None, batched(2)))
    assert {id: found[0] for id, found in slots(change.apply(PLAN)).items()} == {"sums": 3, "more": 3}


@pytest.mark.parametrize(
    ("change", "what", "wish"),
    [
        (
            move("sums", to="7", groups=[3, 1]),
            "move groups 3, 1 of 'sums' to executor 7",
            Wish("sums", live(), to="7", groups=(3, 1)),
        ),
        (
            move("sums", to="7", groups=range(9)),
            "move groups 0, 1, 2, 3, 4 and 4 more of 'sums' to executor 7",
            Wish("sums", live(), to="7", groups=tuple(range(9))),
        ),
        (
            move("sums", to="7", slots=(0,), strategy="batched"),
            "move slots 0 of 'sums' to executor 7",
            Wish("sums", batched(), to="7", slots=(0,)),
        ),
        (drain("7"), "drain executor 7", Wish(None, live(), without="7")),
        (rebalance(), "rebalance all", Wish(None, live(), by_load=True)),
        (rebalance("sums"), "rebalance 'sums'", Wish("sums", live(), by_load=True)),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_other_places_are_a_wish_and_the_plan_stays(change: Any, what: str, wish: Wish):
    assert (change.what, change.wish) == (what, wish)
    assert change.apply(PLAN) == PLAN


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: rescale("sums", slots=0), "rescale: slots must be 1 or more, not 0"),
        (lambda: move("sums", to="7"), "move 'sums': give either groups= or slots="),
        (lambda: move("sums", to="7", groups=[1], slots=[1]), "move 'sums': give either groups= or slots="),
        (lambda: move("sums", to="7", groups=[]), "move 'sums': no group and no slot is named"),
        (lambda: drain("7", strategy="slowly"), "there is no strategy 'slowly'; there are live"),
    ],
)
def test_what_says_nothing_is_refused_at_once(make: Any, complaint: str):
    with pytest.raises(PlanError, match=re.escape(complaint)):
        make()


@pytest.mark.parametrize("change", [rescale("s", slots=2), move("s", to="7", groups=[1]), rebalance("s")])
def test_what_has_no_state_has_no_place(change: Any):
    with pytest.raises(PlanError, match="'s' is a source and has no slots; only keyed operators have"):
        change.apply(PLAN)


def test_an_operator_that_is_not_there_is_refused():
    with pytest.raises(PlanError, match="no operator 'x' in flow 'flow'"):
        rescale("x", slots=2).apply(PLAN)
