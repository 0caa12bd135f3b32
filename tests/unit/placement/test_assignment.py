"""Who serves which group, epoch by epoch: what tasks are told, and what is learnt from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from midstream.checkpoint.records import Commit, Deferred, OperatorState, Report, SnapshotRef
from midstream.operators.resolved import Keyed, Resolved
from midstream.operators.task import Relocation
from midstream.placement.assignment import Assignment, Serving, planned_routing
from midstream.placement.status import SlotState
from midstream.placement.strategies import Strategy, all_at_once, live, on_demand, parallel, restart
from midstream.plan import plan as p
from midstream.plan.routing import Routing
from tests.support.seating import chairs, one_host

GROUPS = 6
HOMES = ("a", "b") * 3


def resolved(slots: int = 0, **operator: Any) -> Resolved:
    sums = p.Aggregate(id="sums", inputs=("s",), keys=(), aggregates=(), slots=slots, **operator)
    plan = p.Plan(name="flow", operators=(p.Source(id="s", schema=""), sums))
    return Resolved(plan, {}, {}, {"sums": Keyed(StructType(), StructType(), None, (), pa.schema([]))})


def on_executors(where: str = "ab", **given: Any) -> Assignment:
    return Assignment(GROUPS, chairs(where), **given)


def report(slot: int, place: str, **said: Any) -> Report:
    return Report(operator="sums", slot=slot, place=place, **said)


def committed(assignment: Assignment, *reports: Report) -> None:
    assignment.after({"sums": list(reports)})


# --- on one host ---


@pytest.mark.parametrize(("asked", "cores", "expected"), [(0, 4, 4), (3, 4, 3), (0, 99, GROUPS), (99, 4, GROUPS)])
def test_an_operator_has_the_slots_it_asks_for_or_one_for_each_core_and_no_more_than_groups(
    asked: int, cores: int, expected: int
):
    assignment = Assignment(GROUPS, one_host(cores))
    known = resolved(slots=asked)
    assert assignment.slots(known.plan, "sums") == assignment.most_slots(known.plan) == expected
    assert assignment.serving(known, "sums") == Serving(Routing.even(GROUPS, expected))


def test_a_plan_says_which_slot_owns_which_group_as_long_as_that_fits():
    owners = (1, 1, 1, 0, 0, 1)
    serving = Assignment(GROUPS, one_host(2)).serving(resolved(owners=owners), "sums")
    assert serving.routing == Routing(owners, 2)
    for operator, groups, slots in (((0, 1), 6, 2), ((0, 2), 2, 2), ((), 2, 2)):
        made = p.Aggregate(id="x", keys=(), aggregates=(), owners=operator)
        assert planned_routing(made, groups, slots) is None


def test_on_one_host_nothing_moves_and_no_homes_are_kept():
    assignment, known = Assignment(GROUPS, one_host(2)), resolved(homes=HOMES)
    assert not assignment.begin(known, live(), lambda told: pytest.fail(told))
    assert assignment.settled(known.plan, known) is known.plan
    assert [(slot.slot, slot.executor, slot.groups, slot.state) for slot in assignment.status(known)] == [
        (0, "", 3, SlotState.SERVING),
        (1, "", 3, SlotState.SERVING),
    ]


# --- on executors ---


def test_the_groups_of_a_new_operator_are_dealt_out_and_those_of_a_plan_stay():
    assert Counter(on_executors().homes_of("sums", resolved())) == {"a": 3, "b": 3}
    assert on_executors().homes_of("sums", resolved(homes=("a",) * 4 + ("b",) * 2)).count("a") == 3
    assert on_executors().homes_of("sums", resolved(homes=HOMES[::-1])) == HOMES[::-1]
    assert set(Assignment(GROUPS, chairs("ab", drained=frozenset("a"))).homes_of("sums", resolved())) == {"b"}


def test_tasks_are_told_their_groups_and_read_what_is_not_here_where_it_is_stored():
    serving = on_executors(defers=True).serving(resolved(homes=HOMES), "sums")
    assert serving.routing == Routing((0, 1) * 3, 2)
    assert (serving.anchor, serving.relocation) == ("chairs", Relocation(lazy=True, defers=True))
    assert serving.both == {}


def moving(strategy: Strategy, to: Sequence[str] = ("b",) * GROUPS) -> tuple[Assignment, Resolved, list[str]]:
    """Groups at a and b; those of a go to b."""
    assignment, told = on_executors(), list[str]()
    before = resolved(homes=HOMES)
    assert assignment.homes_of("sums", before) == HOMES
    known = resolved(homes=tuple(to))
    assert assignment.begin(known, strategy, told.append)
    return assignment, known, told


def test_a_move_copies_first_flips_what_is_copied_and_drops_what_is_left():
    assignment, known, told = moving(live())
    first = assignment.serving(known, "sums")
    assert first.relocation == Relocation(fetch={1: (0, 2, 4)}, lazy=False), "b copies what a still serves"
    assert first.routing == Routing((0, 1) * 3, 2)
    committed(assignment, report(0, "a"), report(1, "b", fetched=[0, 2], copied=70))
    second = assignment.serving(known, "sums")
    assert second.routing == Routing((1, 1, 1, 1, 0, 1), 2)
    assert second.relocation is not None
    assert (second.relocation.first, second.relocation.fetch) == ({0, 2}, {1: (4,)})
    committed(assignment, report(0, "a"), report(1, "b", fetched=[4], copied=30))
    third = assignment.serving(known, "sums")
    assert third.routing == Routing((1,) * 6, 2)
    assert third.relocation is not None
    assert third.relocation.drop == {0: (0, 2)}
    committed(assignment, report(0, "a"), report(1, "b"))
    assert (assignment.homes["sums"], told) == (("b",) * 6, [])
    assert assignment.serving(known, "sums").relocation == Relocation(drop={0: (4,)}, lazy=False)
    committed(assignment, report(0, "a"), report(1, "b"))
    assert (assignment.moves, told) == ({}, [""])


def test_the_busiest_groups_are_copied_first():
    assignment, known, _ = moving(live())
    assignment.serving(known, "sums")
    committed(assignment, report(0, "a", heat={4: 50, 2: 5}), report(1, "b", heat={1: 99}))
    serving = assignment.serving(known, "sums")
    assert serving.relocation is not None
    assert serving.relocation.fetch == {1: (4, 2, 0)}
    assert serving.heat == {4: 50.0, 2: 5.0, 1: 99.0}, "who copies is told what is busy"


def test_on_demand_flips_at_once_and_is_done_when_nothing_is_read_where_it_lies():
    assignment, known, told = moving(on_demand())
    serving = assignment.serving(known, "sums")
    assert serving.routing == Routing((1,) * 6, 2)
    assert serving.relocation == Relocation(lazy=True)
    committed(assignment, report(1, "b", in_place=3))
    assignment.serving(known, "sums")
    committed(assignment, report(1, "b", in_place=1))
    assert told == []
    assignment.serving(known, "sums")
    committed(assignment, report(1, "b"))
    assert told == [""]


def test_a_restart_gives_up_all_that_every_place_has():
    assignment, known, _ = moving(restart())
    serving = assignment.serving(known, "sums")
    assert serving.relocation is not None
    assert serving.relocation.drop == {1: (0, 1, 2, 3, 4, 5)}
    assert serving.relocation.first == set(range(GROUPS)), "moved or not, all is read again"


def test_rows_of_groups_that_two_places_process_go_to_both_and_what_they_do_not_agree_on_stays():
    assignment, known, told = moving(parallel())
    assignment.serving(known, "sums")
    committed(assignment, report(0, "a"), report(1, "b", fetched=[0, 2, 4]))
    for _ in range(5):
        serving = assignment.serving(known, "sums")
        assert serving.both == {0: 1, 2: 1, 4: 1}
        digests = {0: 7, 2: 8, 4: 9}
        committed(
            assignment, report(0, "a", digests=digests), report(1, "b", fetched=[0, 2, 4], digests=digests | {4: 0})
        )
    for _ in range(3):
        assignment.serving(known, "sums")
        committed(assignment, report(0, "a"), report(1, "b"))
    assert assignment.homes["sums"] == ("b", "b", "b", "b", "a", "b")
    assert told == ["1 groups of 'sums' stayed: they differ on the new executor"]


def test_how_far_a_move_is_and_what_slots_do_is_shown():
    assignment, known, _ = moving(live())
    assignment.serving(known, "sums")
    committed(assignment, report(0, "a"), report(1, "b", fetched=[0], copied=70))
    states = [(slot.slot, slot.executor, slot.groups, slot.state) for slot in assignment.status(known)]
    assert states == [(0, "a", 3, SlotState.MOVING), (1, "b", 3, SlotState.PREFETCHING)]
    snapshots = tuple(SnapshotRef(0, "c", f"{group}", 10 + group, 0) for group in range(GROUPS))
    last = Commit(
        epoch=1,
        id="c",
        parent="",
        version=1,
        clock=0,
        offsets=(),
        operators={"sums": OperatorState(snapshots=snapshots)},
    )
    (status,) = assignment.moving(last)
    assert (status.operator, status.strategy, status.groups, status.waiting) == ("sums", "Live", 3, 3)
    assert (status.bytes, status.bytes_to_go) == (70, 10 + 12 + 14)
    assert assignment.moving(None)[0].bytes_to_go == 0


def test_a_plan_that_is_settled_has_the_homes_in_force():
    assignment, known, _ = moving(live())
    (sums,) = assignment.settled(known.plan, known).of(p.KeyedOperator)
    assert sums.homes == HOMES


def test_the_groups_of_a_lost_executor_are_where_their_task_ran_or_where_a_copy_stands():
    assignment, known = on_executors("abc", second_copies=1), resolved(homes=("a", "a", "b", "b", "c", "c"))
    copies = assignment.serving(known, "sums").relocation
    assert copies is not None
    asked = {group: seat for seat, groups in copies.fetch.items() for group in groups}
    assert set(asked) == set(range(GROUPS))
    committed(assignment, *(report(i, x, fetched=[g for g, s in asked.items() if s == i]) for i, x in enumerate("abc")))
    assert [slot.standbys for slot in assignment.status(known)] == [2, 2, 2]
    assignment.serving(known, "sums")
    committed(assignment, report(0, "d"), report(1, "b"), report(2, "c"))
    homes = assignment.homes["sums"]
    assert [homes[group] for group in (0, 1)] == ["abc"[asked[group]] for group in (0, 1)], "not d, which has nothing"
    assert {slot.executor for slot in assignment.status(known)} == {"b", "c"}


def test_without_copies_groups_follow_their_task():
    assignment, known = on_executors(), resolved(homes=HOMES)
    assignment.serving(known, "sums")
    committed(assignment, report(0, "c"), report(1, "b"))
    assert assignment.homes["sums"] == ("c", "b") * 3
    assert [slot.state for slot in assignment.status(known)] == [SlotState.LOST, SlotState.SERVING]


def test_a_slot_that_reads_from_the_store_is_restoring():
    assignment, known = on_executors(), resolved()
    assignment.serving(known, "sums")
    committed(assignment, report(0, "a", restored=1), report(1, "b", in_place=1))
    assert [slot.state for slot in assignment.status(known)] == [SlotState.RESTORING, SlotState.RESTORING]


def test_heat_is_told_while_somebody_is_behind_and_rows_of_older_epochs_count_less():
    assignment, known = on_executors(), resolved()
    assignment.serving(known, "sums")
    aside = Deferred(epoch=0, clock=0, seed="", watermark=None, groups=(0,), path="")
    committed(assignment, report(0, "a", heat={0: 10}, deferred=aside), report(1, "b", heat={1: 5}))
    assert assignment.serving(known, "sums").heat == {0: 10.0, 1: 5.0}
    committed(assignment, report(0, "a", heat={0: 1}), report(1, "b"))
    assert assignment.load["sums"] == {0: 9.0, 1: 4.0}
    assert assignment.serving(known, "sums").heat == {}, "nobody copies"


def test_a_plan_may_be_tuned_to_other_second_copies():
    assignment = on_executors("abc", second_copies=2)
    known = resolved()
    tuned = Resolved(
        p.Plan(name="flow", operators=known.plan.operators, tuning=p.Tuning(standbys=0)), {}, {}, known.keyed
    )
    for made, expected in ((known, 2 * GROUPS), (tuned, 0)):
        relocation = assignment.serving(made, "sums").relocation
        assert relocation is not None
        assert sum(len(groups) for groups in relocation.fetch.values()) == expected


def test_copying_all_at_once_comes_before_rows():
    assignment, known, _ = moving(all_at_once())
    serving = assignment.serving(known, "sums")
    assert serving.relocation == Relocation(first=frozenset({0, 2, 4}), lazy=False)
