"""Plans as values: operators are found, shown and kept apart by their tags."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import PlanError
from midstream.plan import plan as p
from midstream.plan.plan import KeyedOperator
from tests.support.plans import BIG, COUNTS, OUT, PLAN, SOURCE, SUMS, code

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


def test_an_operator_that_reads_another_twice_is_its_consumer_twice():
    twice = p.Plan(name="f", operators=(SOURCE, p.Union(id="both", inputs=("in", "in"))))
    assert [operator.id for operator in twice.consumers("in")] == ["both", "both"]


@given(st.permutations(PLAN.operators))
def test_operators_are_put_behind_what_they_read(operators: list[p.AnyOperator]):
    found = p.in_order(operators)
    assert sorted(operator.id for operator in found) == sorted(operator.id for operator in operators)
    for at, operator in enumerate(found):
        assert {*operator.inputs} <= {before.id for before in found[:at]}


def test_operators_that_stand_behind_what_they_read_stay_as_they_stand():
    assert p.in_order(PLAN.operators) == PLAN.operators
    assert p.in_order([]) == ()
    assert p.in_order([BIG]) == (BIG,), "what is not among them is not waited for"


def test_operators_that_read_each_other_are_refused():
    one, other = (p.Union(id=id, inputs=(input,)) for id, input in (("one", "other"), ("other", "one")))
    with pytest.raises(PlanError, match="the operators 'one', 'other' read each other in a cycle"):
        p.in_order([SOURCE, one, other])


def test_all_code_of_a_plan_is_listed_that_of_older_forms_of_state_too():
    older = p.Migration(code=code("older"), state=(), base=0)
    newer = p.Migration(code=code("newer"), state=(), base=2, before=older)
    added = p.AggregateSpec(name="n", function="own", code=code("own"))
    plan = p.Plan(
        name="f",
        operators=(
            msgspec.structs.replace(SOURCE, code=code("made by")),
            SOURCE,
            msgspec.structs.replace(SUMS, migration=newer),
            msgspec.structs.replace(COUNTS, aggregates=(*COUNTS.aggregates, added)),
            OUT,
        ),
    )
    assert [each.digest for each in p.codes(plan)] == ["made by", "sums", "newer", "older", "own", "out"]
    assert p.code_keys(plan) == {f"key of {each.digest}" for each in p.codes(plan)}
