"""Branches and what is built in place: the user's function gets a stream, and what it adds is the change."""

from __future__ import annotations

import re
from typing import Any

import pytest

import midstream as ms
from midstream.errors import PlanError
from midstream.modifications.additions import add_source, branch, built
from midstream.plan import plan as p

PLAN = p.Plan(name="flow", operators=(p.Source(id="a", schema="n long"), p.Source(id="b", schema="n long")), version=4)


def same(rows: Any) -> Any:
    return rows


def wiring(plan: p.Plan) -> dict[str, tuple[str, ...]]:
    return {operator.id: operator.inputs for operator in plan.operators if operator.inputs}


def test_a_branch_is_what_its_function_adds_to_the_stream_and_may_read_others():
    def build(a: ms.Stream) -> None:
        a.union("both", a.flow.stream("b")).transform("t", same).sink("out", ms.sinks.noop())  # type: ignore[attr-defined]

    change = branch("a", build)
    assert (change.what, change.wish) == ("branch after 'a'", None)
    after = change.apply(PLAN)
    assert wiring(after) == {"both": ("a", "b"), "t": ("both",), "out": ("t",)}
    assert (after.operators[:2], after.version) == (PLAN.operators, 4)


def test_a_function_is_called_with_the_plan_of_the_moment():
    change = branch("later", lambda later: later.sink("out", ms.sinks.noop()))
    with pytest.raises(PlanError, match="no operator 'later' in flow 'flow'"):
        change.apply(PLAN)
    grown = branch("a", lambda a: a.transform("later", same)).apply(PLAN)
    assert wiring(change.apply(grown)) == {"later": ("a",), "out": ("later",)}


def fails(stream: ms.Stream) -> None:
    raise KeyError("nothing there")


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (
            lambda a: None,
            "the function of the branch after 'a' must add operators and sinks to the stream",
        ),
        (fails, "the function of the branch after 'a' failed: KeyError: 'nothing there'"),
        (lambda a: a.transform("b", same), "the id 'b' is used twice in flow 'flow'"),
        (lambda a: a.key_by(), "key_by on 'a' needs at least one column"),
    ],
    ids=["nothing", "fails", "taken", "our own error"],
)
def test_a_branch_that_cannot_be_is_refused(build: Any, complaint: str):
    with pytest.raises(PlanError, match=re.escape(complaint)):
        branch("a", build).apply(PLAN)


def test_an_error_of_the_user_is_shown_with_where_it_was():
    with pytest.raises(PlanError) as refused:
        branch("a", fails).apply(PLAN)
    assert "in fails" in str(refused.value)
    assert isinstance(refused.value.__cause__, KeyError)


def test_what_is_built_has_the_id_that_the_change_names():
    made = built(lambda a: a.transform("best", same)).over(PLAN, "a", "best")
    assert wiring(made) == {"best": ("a",)}
    with pytest.raises(PlanError, match=r"the function of ms\.built made 'other', but no operator 'best'"):
        built(lambda a: a.transform("other", same)).over(PLAN, "a", "best")


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: built("best"), "built needs a function of a stream, such as lambda counts: counts.top(...)"),
        (lambda: add_source("c", "a frame"), "add_source 'c' needs a function of the session, such as lambda spark:"),
    ],
)
def test_what_is_no_function_is_refused_at_once(make: Any, complaint: str):
    with pytest.raises(PlanError, match=re.escape(complaint)):
        make()
