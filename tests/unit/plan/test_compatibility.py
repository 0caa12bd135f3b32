"""Two plans: how they differ, and whether one can read the state of the other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from midstream.errors import PlanError
from midstream.operators.aggregates import declare as ms
from midstream.plan import compatibility
from midstream.plan.code import Code
from midstream.plan.plan import AggregateSpec, AnyOperator, Migration, Plan, StateField
from midstream.plan.text import decode, encode
from tests.support.plans import BIG, BOTH, COUNTS, OUT, PLAN, SOURCE, SUMS, TIMED, code, plan, with_changed

# --- difference ---------------------------------------------------------------------------------------


def test_a_plan_does_not_differ_from_itself_read_back():
    found = compatibility.difference(PLAN, decode(encode(PLAN)))
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
    assert not compatibility.difference(PLAN, with_changed(operator, **changes))


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
    found = compatibility.difference(PLAN, with_changed(operator, **changes))
    assert (found.added, found.removed, found.changed) == ((), (), (operator.id,))


def test_a_difference_says_what_was_added_removed_and_changed():
    new = plan(
        SOURCE, msgspec.structs.replace(BIG, per_epoch=True), msgspec.structs.replace(OUT, id="new", inputs=("big",))
    )
    found = compatibility.difference(plan(SOURCE, BIG, TIMED, OUT), new)
    assert found
    assert str(found) == "added 'new'; removed 'timed', 'out'; changed 'big'"


# --- check_state_fits ---------------------------------------------------------------------------------


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
    compatibility.check_state_fits(PLAN, new)


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
        compatibility.check_state_fits(PLAN, new)


# --- where state lies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("", "", None),
        ("x % 2", "x % 2", None),
        ("", "x % 2", "'sums' has its state partitioned by its key, the new plan partitions by x % 2"),
        ("x % 2", "", "'sums' has its state partitioned by x % 2, the new plan partitions by the key"),
    ],
)
def test_state_stays_in_its_groups(before: str, after: str, complaint: str | None):
    old, new = with_changed(SUMS, partition_by=before), with_changed(SUMS, partition_by=after)
    if complaint is None:
        compatibility.check_partitioning(old, new)
    else:
        with pytest.raises(PlanError, match=complaint):
            compatibility.check_partitioning(old, new)
    compatibility.check_partitioning(old, plan(SOURCE, OUT))
    compatibility.check_partitioning(plan(SOURCE, OUT), new)


SHARED = StateField(name="count", kind="value", type="long", scope="group")


@pytest.mark.parametrize(
    ("before", "after", "groups", "complaint"),
    [
        ((SHARED,), {}, (8, 8), None),
        ((SHARED,), {"shared": ()}, (8, 5), None),
        ((), {"shared": (SHARED,)}, (8, 5), None),
        ((SHARED,), {"id": "renamed"}, (8, 5), None),
        ((SHARED,), {"shared": (msgspec.structs.replace(SHARED, scope="broadcast"),)}, (8, 5), None),
        ((SHARED,), {}, (8, 5), "'count' of operator 'sums' is shared .*: the savepoint has 8 groups, by the key"),
        ((SHARED,), {"partition_by": "x % 2"}, (8, 8), "'count' of operator 'sums' is shared .* by the key"),
    ],
    ids=["as it was", "dropped", "added", "another id", "another scope", "other groups", "other partitions"],
)
def test_state_that_the_keys_of_a_group_share_is_not_split(
    before: tuple[StateField, ...], after: dict[str, Any], groups: tuple[int, int], complaint: str | None
):
    old, new = with_changed(SUMS, shared=before), with_changed(SUMS, **{"shared": before} | after)
    if complaint is None:
        compatibility.check_groups(old, new, *groups)
    else:
        with pytest.raises(PlanError, match=complaint):
            compatibility.check_groups(old, new, *groups)


# --- what a script leaves as it is ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("running", "script", "kept"),
    [
        ({"slots": 4}, 4, {"slots": 4}),
        ({"slots": 9, "asked": 4, "owners": (1, 0)}, 4, {"slots": 9, "asked": 4, "owners": (1, 0)}),
        ({"slots": 9, "asked": 4, "owners": (1, 0)}, 9, {"slots": 9}),
        ({"slots": 9, "asked": 0}, 0, {"slots": 9, "asked": 0}),
        ({"slots": 4}, 5, {"slots": 5}),
    ],
    ids=["as it was", "rescaled since", "asks for those", "as many as cores", "asks for others"],
)
def test_a_script_that_asks_for_as_many_slots_as_before_keeps_those_of_today(
    running: dict[str, Any], script: int, kept: dict[str, Any]
):
    plain = {"slots": 0, "asked": None, "owners": ()}
    old = with_changed(SUMS, **plain | running)
    found = compatibility.with_slots_of(old, with_changed(SUMS, **plain | {"slots": script}))
    assert found == with_changed(SUMS, **plain | kept)
    assert compatibility.asked(old["sums"]) == running.get("asked", running["slots"])  # type: ignore[arg-type]


def test_plans_have_the_same_slots_if_all_their_operators_do():
    assert compatibility.has_same_slots(PLAN, with_changed(SUMS, schema="x int"))
    assert compatibility.has_same_slots(PLAN, with_changed(SUMS, asked=9, owners=(1,)))
    assert not compatibility.has_same_slots(PLAN, with_changed(SUMS, slots=5))
    assert not compatibility.has_same_slots(PLAN, plan(SOURCE, COUNTS))


def test_a_sink_of_the_script_takes_the_place_of_the_same_one_which_has_lost_its_passwords():
    script = with_changed(OUT, code=code("with a password"))
    assert compatibility.with_sinks_of(PLAN, script)["out"] is script["out"]
    elsewhere = with_changed(OUT, code=code("with a password"), describe="files in /elsewhere")
    assert compatibility.with_sinks_of(PLAN, elsewhere) == PLAN
    assert compatibility.with_sinks_of(PLAN, with_changed(OUT, id="other")) == PLAN
    assert compatibility.with_sinks_of(PLAN, with_changed(SUMS, code=code("other"))) == PLAN, (
        "functions stay those of the plan"
    )


MIGRATED = {"base": 3, "migration": Migration(code=code("migrate"), state=(SEEN,), base=0)}


def test_an_operator_that_declares_the_state_it_has_reads_it_where_it_lies():
    old, script = with_changed(SUMS, **MIGRATED), with_changed(SUMS, code=code("other"))
    assert compatibility.inheriting(old, script) == with_changed(SUMS, code=code("other"), **MIGRATED)
    assert compatibility.inheriting(PLAN, script) == script


def test_an_operator_that_declares_other_state_or_migrates_it_again_inherits_nothing():
    old = with_changed(SUMS, **MIGRATED)
    own = Migration(code=code("own"), state=(TOTAL, SEEN), base=3)
    for changes in ({"state": (TOTAL,)}, {"base": 6, "migration": own}, {"id": "renamed"}):
        script = with_changed(SUMS, **changes)
        assert compatibility.inheriting(old, script) == script


def test_a_form_that_one_of_both_was_migrated_from_fits():
    before = with_changed(SUMS, state=(SEEN,))
    after = with_changed(SUMS, **MIGRATED)
    compatibility.check_state_fits(before, after)
    compatibility.check_state_fits(after, before)
    twice = with_changed(
        SUMS,
        state=(TOTAL,),
        base=6,
        migration=Migration(code=code("m"), state=SUMS.state, base=3, before=MIGRATED["migration"]),
    )
    compatibility.check_state_fits(before, twice)
    compatibility.check_state_fits(after, twice)
    with pytest.raises(PlanError, match=r"Give ms\.replace a migrate= function"):
        compatibility.check_state_fits(with_changed(SUMS, state=()), twice)
