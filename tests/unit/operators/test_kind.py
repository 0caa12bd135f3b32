"""What a kind may leave out, and what it is told of the operators before it."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from midstream.operators.kind import Kind, Output, Resolving
from midstream.operators.resolved import Resolved
from midstream.plan import plan as p

SCHEMA = StructType([StructField("n", LongType())])
PLAN = p.Plan(name="flow", operators=(p.Source(id="a", schema="n long"), p.Union(id="u", inputs=("a",))))


class Silent(Kind[p.Union]):
    """Says the least that a kind can say."""

    def resolve(self, operator: p.Union, rows: Resolving) -> Output:
        return Output(rows.inputs[0])


@pytest.mark.parametrize(
    ("ids", "expected"),
    [(("a",), "ts"), (("a", "b"), "ts"), (("a", "c"), None), (("d",), None), (("c", "d"), None), ((), None)],
)
def test_an_event_time_is_that_which_all_inputs_have_in_common(ids: tuple[str, ...], expected: str | None):
    known = Resolved(PLAN, {}, {"a": "ts", "b": "ts", "c": "at", "d": None}, {})
    assert Resolving(None, known, ()).event_time(*ids) == expected  # type: ignore[arg-type]


def test_an_output_has_no_event_time_and_keeps_no_state_unless_it_says_so():
    assert (Output(SCHEMA).event_time, Output(SCHEMA).keyed) == (None, None)


def test_a_kind_reads_its_input_and_counts_no_late_rows_unless_it_says_so():
    kind = Silent()
    assert kind.reads_input(PLAN.operators[1], PLAN)  # type: ignore[arg-type]
    assert not kind.counts_late
    assert kind.query(PLAN.operators[1], None) is None  # type: ignore[arg-type]


def test_what_has_no_output_is_not_asked_for_one():
    with pytest.raises(AssertionError, match="'u' has no output"):
        Silent().frame(PLAN.operators[1], None)  # type: ignore[arg-type]
