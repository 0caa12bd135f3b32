"""What takes the place of an operator: kinds of other packages are changed like those that are built in."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import midstream as ms
from midstream.errors import PlanError
from midstream.flow import builders
from midstream.modifications import successors
from midstream.modifications.changes import changed, undone
from midstream.plan import plan as p
from midstream.plan.compatibility import check_state_fits, difference


class Sampled(p.Operator, frozen=True, kw_only=True, tag="unit.sampled"):
    """Some of the rows."""

    rate: float


class Longest(p.KeyedOperator, frozen=True, kw_only=True, tag="unit.longest"):
    """Has state."""

    column: str

    @property
    def signature(self) -> str:
        return f"longest {self.column}"


@successors.with_function.register
def _sampled_at(old: Sampled, new: Any, schema: str | None) -> Any:
    return msgspec.structs.replace(old, rate=new())


def plan(*operators: Any) -> p.Plan:
    out = builders.reading(builders.sink(ms.sinks.noop(), id="out"), operators[-1].id if operators else "rows")
    return p.Plan(name="flow", operators=(p.Source(id="rows", schema="k long, v string"), *operators, out))


LONGEST = Longest(id="longest", inputs=("rows",), keys=("k",), column="v", slots=3)


def test_an_operator_of_another_package_is_replaced_and_keeps_its_slots():
    before = plan(LONGEST)
    after = changed(before, [ms.replace("longest", Longest(id="", keys=("k",), column="w"))])
    assert after["longest"] == msgspec.structs.replace(LONGEST, column="w")
    assert difference(before, after).changed == ("longest",)
    with pytest.raises(PlanError, match="the state of operator 'longest' is longest v, the new plan"):
        check_state_fits(before, after)
    assert changed(after, [undone(before, after)]) == before


def test_an_operator_of_another_package_is_inserted_removed_and_undone():
    before = plan()
    after = changed(before, [ms.insert("some", Sampled(id="", rate=0.5), after="rows")])
    assert after["some"] == Sampled(id="some", inputs=("rows",), rate=0.5)
    assert after["out"].inputs == ("some",)
    assert "some (unit.sampled)" in after.explain()
    assert changed(after, [ms.remove("some")]) == changed(after, [undone(before, after)]) == before


def test_a_kind_of_another_package_says_what_a_function_in_its_place_means():
    before = plan(Sampled(id="some", inputs=("rows",), rate=0.5))
    assert changed(before, [ms.replace("some", lambda: 0.1)])["some"] == Sampled(id="some", inputs=("rows",), rate=0.1)


def test_a_kind_that_takes_no_function_refuses_one():
    with pytest.raises(PlanError, match=r"'longest' is a unit\.longest and cannot be replaced by function"):
        changed(plan(LONGEST), [ms.replace("longest", lambda rows: rows)])


@pytest.mark.parametrize("part", [p.Spread(id="", of="longest", size=1, slide=1), p.Errors(id="", of="longest")])
def test_what_is_only_a_part_of_others_is_not_given(part: p.Operator):
    with pytest.raises(PlanError, match="is not an operator"):
        ms.insert("part", part, after="rows")
