"""Operators fit together by ids and kinds, or the plan is refused with the one that does not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from midstream.errors import PlanError
from midstream.plan import plan as p
from midstream.plan.plan import Plan
from midstream.plan.wiring import check
from tests.support.plans import BIG, COUNTS, OUT, PLAN, SOURCE, SUMS, TIMED, plan


def test_a_plan_that_is_wired_well_passes():
    check(PLAN)
    check(plan(SOURCE, msgspec.structs.replace(OUT, inputs=("in",))))
    check(plan(SOURCE, COUNTS))


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (plan(SOURCE, BIG, BIG, OUT), "the id 'big' is used twice in flow 'flow'"),
        (plan(SOURCE, SUMS, TIMED, BIG), "operator 'sums' reads 'timed', which is not defined before it"),
        (
            plan(SOURCE, msgspec.structs.replace(BIG, inputs=("big",))),
            "operator 'big' reads 'big', which is not defined",
        ),
        (plan(BIG, OUT), "operator 'big' reads 'in', which is not defined before it"),
        (plan(), "flow 'flow' has no source"),
        (plan(SOURCE, BIG), "flow 'flow' has neither a sink nor a keyed operator"),
    ],
)
def test_a_plan_that_is_wired_wrongly_is_refused(wrong: Plan, complaint: str):
    with pytest.raises(PlanError, match=complaint):
        check(wrong)


@pytest.mark.parametrize("id", ["", "a b", "a/b", "..", ".hidden", "a\n", "a*", "a:b", "a\\b"])
def test_an_id_that_could_not_be_a_directory_is_refused(id: str):
    with pytest.raises(PlanError, match="cannot be an id"):
        check(plan(msgspec.structs.replace(SOURCE, id=id), COUNTS))


@pytest.mark.parametrize("id", ["a", "A-1_b.c", "größe", "9"])
def test_letters_digits_and_three_signs_make_an_id(id: str):
    check(plan(msgspec.structs.replace(SOURCE, id=id), msgspec.structs.replace(COUNTS, inputs=(id,))))


@pytest.mark.parametrize("slots", [-1, 2.5, "3", None])
def test_a_number_of_slots_that_is_none_is_refused(slots: Any):
    with pytest.raises(PlanError, match=f"operator 'counts': slots= is a number of tasks, .* not {slots!r}"):
        check(plan(SOURCE, msgspec.structs.replace(COUNTS, slots=slots)))


# --- rows that are put aside ----------------------------------------------------------------------------------------

GUARDED = msgspec.structs.replace(SUMS, inputs=("in",), on_error="dead_letter")
ERRORS = p.Errors(id="sums.errors", inputs=("sums",), of="sums")
ASIDE = msgspec.structs.replace(OUT, id="aside", inputs=("sums.errors",))


def test_errors_that_reach_a_sink_or_a_keyed_operator_are_read():
    check(plan(SOURCE, GUARDED, ERRORS, ASIDE))
    changed = msgspec.structs.replace(BIG, id="changed", inputs=("sums.errors",))
    check(plan(SOURCE, GUARDED, ERRORS, changed, msgspec.structs.replace(ASIDE, inputs=("changed",))))
    check(plan(SOURCE, GUARDED, ERRORS, msgspec.structs.replace(COUNTS, inputs=("sums.errors",))))


@pytest.mark.parametrize(
    ("operators", "complaint"),
    [
        ((GUARDED,), "'sums' has on_error='dead_letter', but nothing reads its errors"),
        ((GUARDED, ERRORS), "nothing reads its errors"),
        ((GUARDED, ERRORS, msgspec.structs.replace(OUT, inputs=("sums",))), "nothing reads its errors"),
        (
            (COUNTS, msgspec.structs.replace(ERRORS, of="counts", inputs=("counts",)), ASIDE),
            "'sums.errors' are the errors of 'counts', which must be a function",
        ),
        (
            (
                GUARDED,
                msgspec.structs.replace(BIG, inputs=("sums",)),
                msgspec.structs.replace(ERRORS, inputs=("big",)),
                ASIDE,
            ),
            "'sums.errors' are the errors of 'sums', which must .* come right before it",
        ),
        ((msgspec.structs.replace(ERRORS, inputs=("in",)), ASIDE), "'sums.errors' are the errors of 'sums'"),
    ],
    ids=["no errors", "no end", "rows only", "of an aggregate", "something between", "function gone"],
)
def test_rows_that_would_be_put_aside_where_nobody_sees_them_are_refused(
    operators: tuple[p.AnyOperator, ...], complaint: str
):
    with pytest.raises(PlanError, match=complaint):
        check(plan(SOURCE, *operators))


# --- windows over windows -------------------------------------------------------------------------------------------


def window(id: str, above: str, **more: Any) -> p.Window:
    return p.Window(**{"id": id, "inputs": (above,), "keys": ("x",), "aggregates": (), "size": 10, "slide": 10} | more)


INNER, OUTER = window("inner", "in"), window("outer", "inner")
SESSION = window("outer", "inner", size=0, slide=0, gap=5)
SPREAD = p.Spread(id="outer.windows", inputs=("inner",), of="sums", size=10, slide=10)
TIMED_AGAIN = msgspec.structs.replace(TIMED, id="again", inputs=("inner",), column="window_end")


def test_windows_that_come_out_once_may_be_taken_by_others():
    check(plan(SOURCE, INNER, OUTER))
    check(plan(SOURCE, INNER, SPREAD, msgspec.structs.replace(SUMS, inputs=("outer.windows",))))
    check(plan(SOURCE, INNER, TIMED_AGAIN, msgspec.structs.replace(SESSION, inputs=("again",))))
    keyed = msgspec.structs.replace(SUMS, inputs=("inner",))
    revised = msgspec.structs.replace(INNER, emit="update")
    check(plan(SOURCE, revised, keyed, msgspec.structs.replace(OUTER, inputs=("sums",))))


@pytest.mark.parametrize(("more", "why"), [({"emit": "update"}, 'emit="update"'), ({"lateness": 1}, "lateness")])
@pytest.mark.parametrize("outer", [OUTER, SPREAD], ids=["windows", "spread"])
def test_windows_that_come_out_again_are_not_taken_once(more: dict[str, Any], why: str, outer: p.AnyOperator):
    for between in ((), (msgspec.structs.replace(BIG, inputs=("inner",)),)):
        above = between[0].id if between else "inner"
        taken = msgspec.structs.replace(outer, inputs=(above,))
        with pytest.raises(PlanError, match=f"{outer.id!r} takes each window of 'inner' once, but with {why}"):
            check(plan(SOURCE, msgspec.structs.replace(INNER, **more), *between, taken))


def test_sessions_of_windows_need_a_time_that_the_watermark_has_not_passed():
    with pytest.raises(PlanError, match="'outer' would take the windows of 'inner' by their start"):
        check(plan(SOURCE, INNER, SESSION))


def test_windows_of_what_is_not_there_are_refused():
    with pytest.raises(PlanError, match=r"'outer\.windows' has the windows of 'sums', which is not in this plan"):
        check(plan(SOURCE, INNER, SPREAD))
    with pytest.raises(PlanError, match="'late' are the late rows of 'counts', which has no windows"):
        check(plan(SOURCE, COUNTS, p.Late(id="late", inputs=("in",), of="counts")))
