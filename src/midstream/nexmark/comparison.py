"""Comparing a result with what it must be: as multisets, since a set would hide duplicates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from midstream.errors import PlanError

TOLERANCE = 1e-9  # of doubles, relative
SAMPLES = 5


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a result differs from what was expected, with a few of the rows that differ."""

    rows: int  # found
    missing: int
    unexpected: int  # a row that is there once too often is unexpected once
    missing_samples: tuple[dict[str, Any], ...] = ()
    unexpected_samples: tuple[dict[str, Any], ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether every row was found as often as it was expected."""
        return self.missing == self.unexpected == 0

    def __str__(self) -> str:
        if self.is_equal:
            return f"all {self.rows} rows are as expected"
        lines = [f"of {self.rows} rows {self.unexpected} are unexpected, and {self.missing} are missing"]
        lines += [f"  unexpected: {row}" for row in self.unexpected_samples]
        lines += [f"  missing: {row}" for row in self.missing_samples]
        return "\n".join(lines)


def compared(found: pa.Table, expected: pa.Table) -> Comparison:
    """Compare two tables as multisets: a row twice is not a row once.

    Whole numbers, times and texts must be equal. Doubles may differ by 1e-9 of their size: what is not equal to the
    last bit is grouped by the other columns, sorted, and paired in this order, so no rounding decides.

    The columns may stand in another order, and times in another unit or without a zone, which is then UTC.
    """
    differing = _differing(_like(found, expected), expected)
    doubles = [field.name for field in expected.schema if pa.types.is_floating(field.type)]
    left = [] if _agree(differing, doubles) else list(_left_over(differing, doubles))
    unexpected = [row for row, side in left if side > 0]
    missing = [row for row, side in left if side < 0]
    return Comparison(
        rows=found.num_rows,
        missing=len(missing),
        unexpected=len(unexpected),
        missing_samples=tuple(missing[:SAMPLES]),
        unexpected_samples=tuple(unexpected[:SAMPLES]),
    )


def _like(found: pa.Table, expected: pa.Table) -> pa.Table:
    if sorted(found.column_names) != sorted(expected.column_names):
        raise PlanError(
            f"the result has the columns {', '.join(found.column_names)}, "
            f"but must have {', '.join(expected.column_names)}"
        )
    try:
        return found.select(expected.column_names).cast(expected.schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise PlanError(f"the result has values that do not fit the types expected: {error}") from None


def _differing(found: pa.Table, expected: pa.Table) -> pa.Table:
    """Return the rows that are not in both tables equally often; `surplus` is how much more often they were found."""
    sides = [
        table.append_column("surplus", pa.repeat(pa.scalar(side, pa.int64()), table.num_rows))
        for table, side in ((found, 1), (expected, -1))
    ]
    summed = pa.concat_tables(sides).group_by(expected.column_names).aggregate([("surplus", "sum")])
    summed = summed.rename_columns([*summed.column_names[:-1], "surplus"])
    return summed.filter(pc.field("surplus") != 0)


def _agree(differing: pa.Table, doubles: list[str]) -> bool:
    """Whether, once sorted, found and expected rows are near in doubles and equal in all else: the usual case."""
    exact = [name for name in differing.column_names if name not in (*doubles, "surplus")]
    order = [(name, "ascending") for name in (*exact, *doubles)]
    found = differing.filter(pc.field("surplus") > 0).sort_by(order)
    expected = differing.filter(pc.field("surplus") < 0).sort_by(order)
    if found.num_rows != expected.num_rows or found.select(exact) != expected.select(exact):
        return False
    if not pc.all(pc.equal(found["surplus"], pc.negate(expected["surplus"])), min_count=0).as_py():
        return False
    return all(_are_close(found[name], expected[name]) for name in doubles)


def _are_close(ones: pa.ChunkedArray, others: pa.ChunkedArray) -> bool:
    largest = pc.max_element_wise(pc.abs(ones), pc.abs(others))
    near = pc.less_equal(pc.abs(pc.subtract(ones, others)), pc.multiply(largest, TOLERANCE))
    return bool(pc.all(pc.fill_null(near, False), min_count=0).as_py())


def _left_over(differing: pa.Table, doubles: list[str]) -> Iterator[tuple[dict[str, Any], int]]:
    """Pair found and expected rows that are near in all doubles; return the others, with 1 if found and -1 if not."""
    groups: dict[tuple[Any, ...], tuple[list[Any], list[Any]]] = {}  # {other columns: (found, expected) rows}
    for row in differing.sort_by([(name, "ascending") for name in differing.column_names]).to_pylist():
        surplus = row.pop("surplus")
        others = tuple(value for name, value in row.items() if name not in doubles)
        groups.setdefault(others, ([], []))[surplus < 0].extend([row] * abs(surplus))

    def size(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple((row[name] is not None, row[name]) for name in doubles)

    for found, expected in groups.values():
        found.sort(key=size, reverse=True)
        expected.sort(key=size, reverse=True)
        while found and expected:  # the smallest are at the end
            if all(_is_close(found[-1][name], expected[-1][name]) for name in doubles):
                found.pop()
                expected.pop()
            elif size(found[-1]) < size(expected[-1]):
                yield found.pop(), 1
            else:
                yield expected.pop(), -1
        yield from ((row, 1) for row in reversed(found))
        yield from ((row, -1) for row in reversed(expected))


def _is_close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=TOLERANCE)
