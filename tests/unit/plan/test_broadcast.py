"""Scopes of state and broadcast streams in a plan: how they are declared, changed and refused."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest

import midstream as ms
from midstream.errors import PlanError, StateError
from midstream.flow import builders
from midstream.modifications.changes import changed
from midstream.plan import plan as p
from midstream.plan import text as planfile
from midstream.plan.compatibility import check_groups, check_state_fits, difference


class Alerts(ms.KeyedFunction):
    total = ms.value("long", default=0)
    count = ms.value("long", default=0, scope="group")
    rules = ms.map("string", "long", scope="broadcast")

    def on_broadcast(self, rows: list[Any], ctx: ms.Context) -> None: ...


class Others(Alerts):
    since = ms.value("timestamp", default=dt.datetime(2026, 1, 1), scope="broadcast")


class Deaf(ms.KeyedFunction):
    total = ms.value("long", default=0)


class Retyped(Alerts):
    rules = ms.map("string", "double", scope="broadcast")


class Rescoped(Alerts):
    rules = ms.map("string", "long", scope="group")


RULES = ms.broadcast("rules", order_by="version")


def process(function: ms.KeyedFunction, **more: Any) -> p.Process:
    return builders.key_by("key").process(function, schema="key long", id="alerts", **more)


def plan(function: ms.KeyedFunction, **more: Any) -> p.Plan:
    made = process(function, **more)
    return p.Plan(
        name="alerts",
        operators=(
            p.Source(id="rows", schema="key long"),
            p.Source(id="rules", schema="item string, most long, version long"),
            msgspec.structs.replace(made, inputs=("rows", *made.inputs)),
            p.Sink(id="out", inputs=("alerts",), code=made.code, describe="memory"),
        ),
    )


PLAN = plan(Alerts(), broadcast=RULES)


def alerts(found: p.Plan) -> p.Process:
    operator = found["alerts"]
    assert isinstance(operator, p.Process)
    return operator


def test_the_state_of_keys_and_that_of_groups_are_apart():
    assert [field.name for field in alerts(PLAN).state] == ["total"]
    assert [(field.name, field.scope) for field in alerts(PLAN).shared] == [("count", "group"), ("rules", "broadcast")]
    assert (alerts(PLAN).broadcast, alerts(PLAN).broadcast_order) == ("rules", ("version",))
    assert alerts(plan(Deaf())).broadcast is None


def test_a_plan_with_shared_state_is_read_back_as_it_was_written():
    written = plan(Others(), broadcast=RULES)
    assert planfile.decode(planfile.encode(written)) == written
    assert not difference(written, planfile.decode(planfile.encode(written)))
    assert difference(PLAN, written).changed == ("alerts",)
    assert difference(PLAN, plan(Alerts(), broadcast=ms.broadcast("rules"))).changed == ("alerts",)


def test_an_older_plan_knows_no_scopes():
    plain = plan(Deaf())
    known = msgspec.json.decode(planfile.encode(plain))
    for operator in known["operators"]:
        for name in ("shared", "told_by"):
            operator.pop(name, None)
        for field in operator.get("state", ()):
            del field["scope"]
    assert planfile.decode(msgspec.json.encode(known)) == plain


@pytest.mark.parametrize(
    ("declare", "complaint"),
    [
        (lambda: ms.value("long", scope="task"), "the scope of state is 'key', 'group' or 'broadcast', not 'task'"),
        (lambda: ms.map("string", "long", scope="group", ttl="1 day"), "has no ttl"),
        (lambda: ms.list("long", scope="broadcast", ttl="1 day"), "has no ttl"),
    ],
)
def test_a_scope_that_cannot_be_is_refused(declare: Any, complaint: str):
    with pytest.raises(StateError, match=complaint):
        declare()


@pytest.mark.parametrize(
    ("function", "more", "complaint"),
    [
        (Alerts(), {}, "no stream to fill it from"),
        (Deaf(), {"broadcast": RULES}, r"needs a method on_broadcast\(rows, ctx\)"),
        (Alerts(), {"broadcast": "rules"}, r"takes other\.broadcast\(\) or ms\.broadcast\(id\)"),
    ],
)
def test_a_function_and_its_broadcast_stream_must_fit(function: ms.KeyedFunction, more: Any, complaint: str):
    with pytest.raises(PlanError, match=complaint):
        process(function, **more)


def test_shared_state_is_not_there_outside():
    with pytest.raises(StateError, match=r"Alerts\.count was read outside"):
        Alerts().count  # noqa: B018


def test_a_replaced_function_hears_what_the_one_before_heard():
    after = changed(PLAN, [ms.replace("alerts", Others())])
    assert (after["alerts"].inputs, alerts(after).broadcast_order) == (("rows", "rules"), ("version",))
    with pytest.raises(PlanError, match="needs a method on_broadcast"):
        changed(PLAN, [ms.replace("alerts", Deaf())])


def test_a_replaced_operator_brings_what_its_groups_are_told():
    assert changed(PLAN, [ms.replace("alerts", process(Deaf()))])["alerts"].inputs == ("rows",)
    heard = changed(plan(Deaf()), [ms.replace("alerts", process(Alerts(), broadcast=RULES))])
    assert heard["alerts"].inputs == ("rows", "rules")
    assert changed(PLAN, [ms.replace("alerts", ms.transform(lambda df: df))])["alerts"].inputs == ("rows",)


def test_an_operator_with_a_broadcast_stream_is_inserted_and_removed():
    without = changed(PLAN, [ms.remove("alerts")])
    assert without["out"].inputs == ("rows",)
    operator = ms.key_by("key").process(Alerts(), schema="key long", broadcast=RULES)
    again = changed(without, [ms.insert("alerts", operator, after="rows")])
    assert (again["alerts"].inputs, again["out"].inputs) == (("rows", "rules"), ("alerts",))
    with pytest.raises(PlanError, match="source 'rules' is read by 'alerts'"):
        changed(PLAN, [ms.remove_source("rules")])


def test_shared_state_may_be_added_and_dropped_but_not_retyped():
    check_state_fits(PLAN, plan(Others(), broadcast=RULES))
    check_state_fits(plan(Others(), broadcast=RULES), PLAN)
    check_state_fits(PLAN, plan(Deaf()))
    for other in (Retyped(), Rescoped()):
        with pytest.raises(PlanError, match=r"the state 'rules' of operator 'alerts' is rules: map string long, scope"):
            check_state_fits(PLAN, plan(other, broadcast=RULES))


def test_state_of_groups_is_not_split_and_that_of_all_is_copied():
    check_groups(PLAN, PLAN, 8, 8)
    check_groups(PLAN, plan(Deaf()), 8, 5)
    with pytest.raises(PlanError, match="'count' of operator 'alerts' is shared by the keys of a group"):
        check_groups(PLAN, PLAN, 8, 5)
    other = msgspec.structs.replace(alerts(PLAN), partition_by="key % 2")
    with pytest.raises(PlanError, match="the savepoint has 8 groups, by the key"):
        check_groups(PLAN, msgspec.structs.replace(PLAN, operators=(other,)), 8, 8)
