"""Groups after a change of the plan: as few as can be have another slot, or another executor."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from midstream.errors import PlanError
from midstream.operators.resolved import Keyed, Resolved
from midstream.placement.assignment import Assignment
from midstream.placement.reassignment import routed
from midstream.placement.request import Wish
from midstream.placement.strategies import live
from midstream.plan import plan as p
from midstream.plan.routing import Routing
from tests.support.seating import chairs, one_host

GROUPS = 12
NOTHING = Keyed(StructType(), StructType(), None, (), pa.schema([]))


def plan(*ids: str, **given: Any) -> p.Plan:
    keyed = (p.Aggregate(id=id, inputs=("s",), keys=(), aggregates=(), **given) for id in ids)
    return p.Plan(name="flow", operators=(p.Source(id="s", schema=""), *keyed))


def running(made: p.Plan) -> Resolved:
    return Resolved(made, {}, {}, {operator.id: NOTHING for operator in made.of(p.KeyedOperator)})


def keyed(made: p.Plan, id: str = "sums") -> p.KeyedOperator:
    operator = made[id]
    assert isinstance(operator, p.KeyedOperator)
    return operator


@given(st.integers(1, GROUPS), st.integers(1, GROUPS))
def test_on_one_host_as_few_groups_as_can_be_change_their_slot(before: int, after: int):
    old = plan("sums", slots=before)
    new, told = routed(Assignment(GROUPS, one_host(4)), running(old), plan("sums", slots=after))
    owners = keyed(new).owners or Routing.even(GROUPS, after).owners
    sizes = Counter(owners)
    assert set(owners) == set(range(after))
    assert max(sizes.values()) - min(sizes.values()) <= 1
    moved = sum(group % before != owner for group, owner in enumerate(owners))
    held = sorted((Counter(group % before for group in range(GROUPS))[slot] for slot in range(after)), reverse=True)
    assert moved == GROUPS - sum(map(min, held, sorted(sizes.values(), reverse=True))), "no other deal moves fewer"
    assert told == (f"{moved} of {GROUPS} groups of 'sums' change their slot" if moved else "")


def test_groups_that_are_dealt_out_in_turn_need_not_be_written_down():
    new, told = routed(Assignment(GROUPS, one_host(3)), running(plan("sums")), plan("sums"))
    assert (keyed(new).owners, told) == ((), "")


def test_a_rebalance_on_one_host_makes_loads_even():
    assignment = Assignment(4, one_host(2))
    assignment.load["sums"] = {0: 90.0, 2: 80.0, 1: 5.0, 3: 5.0}  # 0 and 2 are of slot 0
    new, told = routed(assignment, running(plan("sums")), plan("sums"), [Wish(None, live(), by_load=True)])
    loads = Counter[int]()
    for group, owner in enumerate(keyed(new).owners):
        loads[owner] += int(assignment.load["sums"][group])
    assert max(loads.values()) <= 100
    assert "groups of 'sums' change their slot" in told


def test_an_undone_change_brings_the_slots_back_that_it_had():
    owners = (1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0)
    new, told = routed(Assignment(GROUPS, one_host(2)), running(plan("sums")), plan("sums", owners=owners))
    assert (keyed(new).owners, told) == (owners, "8 of 12 groups of 'sums' change their slot")


def test_an_operator_that_is_new_is_left_as_it_is_and_each_one_is_looked_at_by_itself():
    old, new = plan("sums", slots=2), plan("sums", "more", slots=3)
    found, told = routed(Assignment(GROUPS, one_host(4)), running(old), new)
    assert keyed(found, "more") == keyed(new, "more")
    assert told == "4 of 12 groups of 'sums' change their slot"


def test_more_slots_than_groups_are_refused():
    complaint = (
        "operator 'sums' cannot have 13 slots: a slot owns groups, and the job has 12 of them; choose fewer slots"
    )
    for seating in (one_host(2), chairs("ab")):
        with pytest.raises(PlanError, match=complaint):
            routed(Assignment(GROUPS, seating), running(plan("sums")), plan("sums", slots=13))


@pytest.mark.parametrize("wish", [Wish("sums", live(), to="a", groups=(1,)), Wish(None, live(), without="a")])
def test_on_one_host_there_is_nowhere_to_go(wish: Wish):
    with pytest.raises(PlanError, match="the job runs on one host: there is no other executor to move"):
        routed(Assignment(GROUPS, one_host(2)), running(plan("sums")), plan("sums"), [wish])


# --- on executors ---


def housed(where: str, homes: str, wishes: list[Wish], before: int = 0, after: int = 0) -> tuple[str, str]:
    """Groups at home, and where they are to be after a change."""
    assignment = Assignment(len(homes), chairs(where))
    old = plan("sums", slots=before, homes=tuple(homes))
    assert assignment.homes_of("sums", running(old)) == tuple(homes)
    new, told = routed(assignment, running(old), msgspec.structs.replace(old, operators=slots(old, after)), wishes)
    return "".join(keyed(new).homes), told


def slots(made: p.Plan, after: int) -> tuple[p.AnyOperator, ...]:
    return (made.operators[0], msgspec.structs.replace(keyed(made), slots=after))


def test_a_drain_takes_the_groups_of_one_executor_elsewhere():
    homes, told = housed("abc", "abc" * 2, [Wish(None, live(), without="a")])
    assert homes[1:3] + homes[4:6] == "bcbc"
    assert sorted(homes[0] + homes[3]) == ["b", "c"]
    assert told == "2 of 6 groups of 'sums' change their executor"


def test_groups_that_are_named_go_where_they_are_wanted_and_wishes_of_others_do_not_count():
    mine, others = Wish("sums", live(), to="b", groups=(0, 3)), Wish("others", live(), to="b", groups=(1, 2))
    assert housed("ab", "ababab", [mine, others])[0] == "bbabab"
    assert housed("ab", "ababab", [others]) == ("ababab", "")


def test_another_number_of_slots_takes_groups_to_executors_that_had_none():
    homes, told = housed("abc", "ababab", [], before=2, after=3)
    assert Counter(homes) == {"a": 2, "b": 2, "c": 2}
    assert told == "2 of 6 groups of 'sums' change their executor"


def test_a_change_that_is_undone_takes_groups_home():
    assignment = Assignment(4, chairs("ab"))
    now = plan("sums", homes=tuple("bbbb"))
    assignment.homes["sums"] = tuple("bbbb")
    new, told = routed(assignment, running(now), plan("sums", homes=tuple("abab")))
    assert (keyed(new).homes, told) == (tuple("abab"), "2 of 4 groups of 'sums' change their executor")


def test_who_gets_nothing_is_said():
    homes, told = housed("abc", "abab", [Wish(None, live(), by_load=True)], before=2, after=2)
    assert homes == "abab"
    assert told.startswith("executor c gets no group of 'sums', which has 2 slots")
