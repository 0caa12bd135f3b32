"""Plans in which functions put rows aside: what must read them, what may stand where, and what a change keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import midstream as ms
from midstream.errors import PlanError
from midstream.flow.flow import Flow
from midstream.modifications.changes import Change, changed, undone
from midstream.plan import plan as p
from midstream.plan import text as planfile
from midstream.plan.compatibility import difference, on_trial
from midstream.plan.wiring import check

SOURCE = p.Source(id="rows", schema="user long")


class Keep(ms.KeyedFunction):
    """Lets rows pass."""

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        return rows


class Other(Keep):
    """Does the same."""

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        return list(rows)


def same(batches: Any) -> Any:
    return batches


def flow(on_error: str = "dead_letter") -> Flow:
    built = Flow.of(p.Plan(name="f", operators=(SOURCE,)))
    mapped = built.stream("rows").map_arrow("mapped", same, schema="user long", on_error=on_error)
    kept = mapped.key_by("user").process("kept", Keep(), schema="user long", on_error=on_error)
    kept.sink("out", ms.sinks.memory())
    if on_error == "dead_letter":
        kept.errors.union("all", mapped.errors).sink("aside", ms.sinks.memory())
    return built


PLAN = flow().plan()


def wiring(plan: p.Plan) -> dict[str, tuple[str, ...]]:
    return {operator.id: operator.inputs for operator in plan.operators}


def test_errors_are_a_stream_of_their_operator_and_made_once():
    check(PLAN)
    assert wiring(PLAN)["all"] == ("kept.errors", "mapped.errors")
    assert wiring(PLAN)["kept.errors"] == ("kept",)
    again = Flow.of(PLAN)
    assert again.stream("kept").errors.id == "kept.errors"
    assert again.plan() == PLAN
    assert planfile.decode(planfile.encode(PLAN)) == PLAN
    assert "kept.errors (errors)" in PLAN.explain()


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a word that is not known": (lambda: flow("skip"), "on_error is 'fail' or 'dead_letter', not 'skip'"),
    "errors of what fails": (lambda: flow("fail").stream("kept").errors, "'kept' has no errors to read"),
    "errors of a source": (lambda: flow().stream("rows").errors, "'rows' has no errors to read"),
    "nobody reads them": (
        lambda: changed(PLAN, [ms.remove_sink("aside")]),
        "'mapped' has on_error='dead_letter', but nothing reads its errors",
    ),
    "their operator is gone": (lambda: changed(PLAN, [ms.remove("kept")]), "'kept.errors' are the errors of 'kept'"),
    "something stands between": (
        lambda: changed(PLAN, [ms.insert("t", lambda df: df, before="kept.errors")]),
        "'kept.errors' are the errors of 'kept', which must .* come right before it",
    ),
    "on_error of a sink": (
        lambda: changed(PLAN, [ms.replace("out", ms.sinks.noop(), on_error="fail")]),
        "on_error= is for process and map_arrow, not for a sink",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_lose_rows_or_mean_nothing_is_refused(case: str):
    act, match = REFUSED[case]
    with pytest.raises(PlanError, match=match):
        act()


def test_what_is_inserted_behind_an_operator_gets_its_rows_and_not_its_errors():
    found = wiring(changed(PLAN, [ms.insert("t", lambda df: df, after="kept")]))
    assert (found["t"], found["out"], found["kept.errors"]) == (("kept",), ("t",), ("kept",))


def on_error(plan: p.Plan, id: str) -> str:
    operator = plan[id]
    assert isinstance(operator, (p.Process, p.MapArrow))
    return operator.on_error


def test_a_new_function_keeps_what_is_done_with_errors_until_it_is_told_otherwise():
    after = changed(PLAN, [ms.replace("kept", Other()), ms.replace("mapped", lambda batches: batches)])
    assert on_error(after, "kept") == on_error(after, "mapped") == "dead_letter"
    strict = changed(PLAN, [ms.replace("kept", Keep(), on_error="fail")])
    assert on_error(strict, "kept") == "fail"
    assert difference(PLAN, strict).changed == ("kept",)
    assert changed(strict, [undone(PLAN, strict)]).operators == PLAN.operators
    whole = ms.key_by("user").process(Keep(), schema="user long", on_error="dead_letter")
    assert on_error(changed(strict, [ms.replace("kept", whole)]), "kept") == "dead_letter"


@pytest.mark.parametrize(
    ("change", "tried"),
    [
        (ms.replace("kept", Other()), {"kept"}),
        (ms.replace("mapped", lambda batches: batches), {"kept", "mapped"}),
        (ms.rescale("kept", slots=3), set()),
        (ms.replace("out", ms.sinks.noop()), set()),
        (ms.replace("kept", Other(), on_error="fail"), set()),
    ],
)
def test_what_is_new_or_gets_other_rows_is_on_trial(change: Change, tried: set[str]):
    assert on_trial(PLAN, changed(PLAN, [change])) == tried
