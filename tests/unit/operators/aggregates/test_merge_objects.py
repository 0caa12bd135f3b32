"""Aggregates whose state is an object: text, decimals, sketches, and the user's own."""

from __future__ import annotations

import math
import random
import statistics
from decimal import Decimal
from typing import Any

import pytest

from midstream.errors import StateError
from midstream.operators.aggregates import declare as ms
from tests.support.aggregating import ORACLES, Spread, compiled, rows, run, spec

OBJECTS: dict[str, list[Any]] = {
    "string": ["b", "a", "", "ä", "\U0001f600", "\uffee", None],
    "binary": [b"\xff", b"", b"a", None],
    "decimal(12,2)": [Decimal("1.50"), Decimal("-7.25"), Decimal("0.00"), None],
}


@pytest.mark.parametrize("function", ["min", "max", "first", "last"])
@pytest.mark.parametrize("column", OBJECTS)
def test_text_bytes_and_decimals_have_extremes_and_ends(function: str, column: str):
    drawn = random.Random(3)
    rows = [
        {"key": drawn.randrange(4), "at": drawn.randrange(3), "tie": i, column: drawn.choice(OBJECTS[column])}
        for i in range(40)
    ]
    rows += [{"key": 9, "at": 0, "tie": 99, column: None}]
    found, _ = run(compiled(result=spec(function, column)), [rows[:15], rows[15:20], rows[20:]], combine=True)
    for key in {row["key"] for row in rows}:
        assert found[key]["result"] == ORACLES[function]([row for row in rows if row["key"] == key], column)


def test_decimals_are_added_exactly():
    values = [Decimal("0.10"), Decimal("9999999999.99"), None, Decimal("-0.30")]
    epochs = [rows("decimal(12,2)", *((0, value) for value in values), (1, None))] * 3
    found, _ = run(compiled(s=ms.sum("decimal(12,2)"), m=ms.mean("decimal(12,2)")), epochs, combine=True)
    exact = 3 * sum(value for value in values if value is not None)
    assert found[0]["s"] == exact
    assert math.isclose(found[0]["m"], float(exact) / 9)
    assert found[1] == {"s": None, "m": None}


def test_decimals_of_many_digits_are_not_rounded_and_refused_where_they_do_not_fit():
    """Python rounds to 28 digits if it is not told otherwise."""
    great = Decimal("1234567890123456789012345678.0123456789")
    plan = compiled(s=ms.sum("decimal(38,10)"))
    found, _ = run(plan, [rows("decimal(38,10)", (0, great))] * 3, combine=True)
    assert found[0]["s"] == Decimal("3703703670370370367037037034.0370370367")
    with pytest.raises(StateError, match=r"the 'sum decimal\(38,10\)' of a key does not fit into decimal128"):
        run(plan, [rows("decimal(38,10)", (0, Decimal("9999999999999999999999999999.0")))] * 2, combine=True)


def test_the_first_of_a_list_comes_back_as_it_was():
    epochs = [
        [{"key": 0, "at": i, "tie": 0, "array<string>": value}] for i, value in enumerate([["a", None], [], None])
    ]
    plan = compiled(first=ms.first("array<string>"), last=ms.last("array<string>"))
    assert run(plan, epochs, combine=True)[0][0] == {"first": ["a", None], "last": None}


def test_distinct_values_are_estimated_over_epochs():
    epochs = [rows("bigint", *((i % 2, i) for i in range(start, start + 8_000))) for start in (0, 4_000, 10_000)]
    found, _ = run(compiled(n=ms.approx_distinct("bigint")), [*epochs, rows("bigint", (2, None))], combine=True)
    assert abs(found[0]["n"] - 9_000) < 9_000 * 0.06
    assert abs(found[1]["n"] - 9_000) < 9_000 * 0.06
    assert found[2]["n"] == 0


def test_quantiles_are_estimated_over_epochs():
    values = [random.Random(5).gauss(0, 1) for _ in range(9_000)]
    epochs = [rows("double", *((0, value) for value in values[at : at + 3_000])) for at in range(0, 9_000, 3_000)]
    epochs += [rows("double", (1, None), (1, math.nan))]
    plan = compiled(median=ms.quantiles("double", 0.5), tails=ms.quantiles("double", 0.01, 0.99))
    found, _ = run(plan, epochs, combine=True)
    cuts = statistics.quantiles(values, n=100)
    assert abs(found[0]["median"] - cuts[49]) < 0.05
    assert [round(tail - cut, 0) for tail, cut in zip(found[0]["tails"], (cuts[0], cuts[98]), strict=True)] == [0, 0]
    assert found[1] == {"median": None, "tails": None}


def test_a_user_defined_aggregate_sees_its_state_in_one_form_in_every_epoch():
    plan = compiled(spread=ms.aggregated("bigint", Spread()))
    epochs = [rows("bigint", (0, 5), (0, 3), (1, None)), rows("bigint", (0, 9)), rows("bigint", (1, None))]
    assert run(plan, epochs, combine=True)[0] == {0: {"spread": 6}, 1: {"spread": None}}
