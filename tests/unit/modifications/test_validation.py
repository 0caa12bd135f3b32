"""A new plan against the running one: what is refused before a session is needed; the rest is in `tests/spark`."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import midstream as ms
from midstream.checkpoint.records import OperatorState
from midstream.errors import PlanError
from midstream.flow import builders
from midstream.modifications.validation import validated
from midstream.operators.resolved import Keyed, Resolved
from midstream.plan import plan as p
from midstream.plan.code import capture
from midstream.plan.nodes import MOST_FIELDS


class Total(ms.KeyedFunction):
    """Keeps a value."""

    total = ms.value("long", default=0)

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        return None


def migrate(old: dict[str, Any]) -> dict[str, Any]:
    return old


SUMS: p.Process = builders.reading(builders.key_by("k").process(Total(), schema="k long", id="sums"), "nowhere")
NEXT = "operator 'sums' reads 'nowhere', which is not defined before it"  # is looked at after all that is tested here
PLAN = p.Plan(name="flow", operators=(p.Source(id="s", schema="k long"), SUMS), version=3)


def changed(plan: p.Plan = PLAN, **given: Any) -> p.Plan:
    """The plan with the function changed."""
    return msgspec.structs.replace(
        plan, operators=(plan.operators[0], msgspec.structs.replace(plan.operators[1], **given))
    )


def running(top: int = 1) -> Resolved:
    keyed = Keyed(StructType(), StructType(), None, (), pa.schema([]), top=top)
    return Resolved(PLAN, {}, {}, {"sums": keyed})


def refused(new: p.Plan, states: dict[str, OperatorState] | None = None, **given: Any) -> str:
    with pytest.raises(PlanError) as error:
        validated(None, running(**given), new, states or {})  # type: ignore[arg-type]
    return str(error.value)


def test_a_plan_that_is_the_same_is_refused_with_the_reason_if_there_is_one():
    assert refused(PLAN) == "nothing would change: the running plan (version 3) is the same"
    assert refused(msgspec.structs.replace(PLAN, version=9)).startswith("nothing would change")
    with pytest.raises(PlanError, match="nothing would change: all executors have their share"):
        validated(None, running(), PLAN, {}, told="all executors have their share")  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [{"slots": 5}, {"owners": (0, 1)}, {"homes": ("a", "b")}])
def test_another_place_is_a_change(given: dict[str, Any]):
    assert refused(changed(**given)) == NEXT


def test_state_that_would_be_read_as_something_else_is_refused():
    other = (p.StateField(name="total", kind="value", type="string"),)
    assert "'sums'" in refused(changed(state=other))


def test_state_that_was_migrated_too_often_has_no_place_left():
    older = p.Migration(code=capture(migrate, what="it", shipped=True), state=SUMS.state, base=0)
    fields = (p.StateField(name="sum", kind="value", type="long"),)
    new = changed(migration=older, state=fields)
    complaint = "the state of operator 'sums' has been migrated too often; write a savepoint"
    assert refused(new, top=MOST_FIELDS).startswith(complaint)
    assert refused(new, {"sums": OperatorState(top=MOST_FIELDS)}).startswith(complaint), (
        "forms that were undone count too"
    )
    assert refused(new, top=MOST_FIELDS - 1) == NEXT
