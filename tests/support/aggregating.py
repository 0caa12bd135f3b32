"""Declared aggregates, epoch by epoch, beside naive Python; what the JVM does before the shuffle is played here.

A column of the stream is named by its type, so that a test reads as data: `ms.sum("bigint")`.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Context, localcontext
from typing import Any

import datasketches
import msgspec
import numpy as np
import pyarrow as pa

from midstream.operators.aggregates import declare as ms
from midstream.operators.aggregates.declare import Accumulator, Aggregator, Compiled, compile_aggregates
from midstream.operators.aggregates.merge import Merger
from midstream.plan.plan import AggregateSpec
from midstream.state.keys import KeyCodec, Rows

UTC = dt.timezone.utc
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)
ARROW = {
    "tinyint": pa.int8(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
    "string": pa.string(),
    "binary": pa.binary(),
    "decimal(12,2)": pa.decimal128(12, 2),
    "decimal(38,2)": pa.decimal128(38, 2),
    "decimal(38,10)": pa.decimal128(38, 10),
    "array<double>": pa.list_(pa.float64()),
    "array<string>": pa.list_(pa.string()),
}
TYPES = {name: name for name in ARROW}
Row = dict[str, Any]  # "key", "at" and "tie", and the columns


def compiled(**aggregates: AggregateSpec) -> Compiled:
    specs = tuple(msgspec.structs.replace(spec, name=name) for name, spec in aggregates.items())
    return compile_aggregates("sums", specs, TYPES, "timestamp")


# --- the part of the JVM --------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value as the number that stands for it."""
    if isinstance(value, dt.datetime):
        return (value - EPOCH) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - EPOCH.date()).days
    return int(value) if isinstance(value, bool) else value


def by_size(values: list[Any]) -> list[Any]:
    """In Spark's order: NaN is the largest."""
    return sorted(values, key=lambda value: (isinstance(value, float) and math.isnan(value), value))


def total(values: list[Any]) -> Any:
    """The exact sum, of decimals too: Spark has 38 digits, where Python has 28 if it is not told otherwise."""
    with localcontext(Context(prec=38)):
        return sum(values)


def lifted(a: Accumulator, row: Row) -> Any:
    """What `a.lift` gives for one row."""
    word, _, rest = a.name.partition(" ")
    if word in ("first", "last"):
        part, _, column = rest.partition(" ")
        if part in ("at", "tie"):
            return row[part]
        value = row[column]
        return int(value is not None) if part == "there" else 0 if value is None else plain(value)
    value = row[rest]
    if word == "count":
        return int(value is not None)
    nothing = {"sum": 0, "min": math.nan if a.dtype == "<f8" else 2**63 - 1, "max": -math.inf}
    if word == "max" and a.dtype == "<i8":
        return -(2**63) if value is None else plain(value)
    return nothing[word] if value is None else plain(value)


def combined(a: Accumulator, rows: list[Row]) -> Any:
    """What `a.combine` gives for the rows of one key."""
    word, _, rest = a.name.partition(" ")
    if word in ("first", "last"):
        leader = (min if word == "first" else max)(rows, key=lambda row: (row["at"], row["tie"]))
        part, _, column = rest.partition(" ")
        return leader[column] if part == "value" and a.dtype == "object" else lifted(a, leader)
    if a.name == "count":
        return len(rows)
    if word == "user":
        word, rest = "user", "bigint"
    values = [row[rest] for row in rows if row[rest] is not None]
    if word in ("digest", "user") or a.parts:
        return by_size([float(value) if word != "user" else value for value in values])
    if word == "sketch":
        sketch = datasketches.hll_sketch(12)
        for value in values:
            sketch.update(value)
        return bytes(sketch.serialize_compact())
    if a.dtype == "object":
        return (by_size(values)[0 if word == "min" else -1] if word != "sum" else total(values)) if values else None
    if word in ("count", "sum"):
        return len(values) if word == "count" else sum(values)
    return plain(by_size(values)[0 if word == "min" else -1]) if values else lifted(a, {rest: None})


def arrange(rows: list[Row]) -> Rows:
    codec = KeyCodec(pa.schema([("key", pa.int64())]))
    return codec.arrange([pa.array([row["key"] for row in rows], pa.int64())], np.zeros(len(rows), np.int32))


def arrow(a: Accumulator, values: list[Any]) -> pa.Array:
    """The values of an accumulator as Spark sends them."""
    if a.dtype == "object":
        return pa.array(values)
    type = pa.int64() if a.dtype == "<i8" else pa.float64()
    return pa.array(values, pa.list_(type) if values and isinstance(values[0], list) else type)


class Job:
    """Keeps the state of an aggregate as a slot does."""

    def __init__(self, plan: Compiled, *, combine: bool) -> None:
        self.plan, self.combine = plan, combine
        self.merger = Merger(plan)
        self.state: dict[int, bytes] = {}

    def epoch(self, rows: list[Row]) -> dict[int, dict[str, Any]]:
        """Merge the rows of an epoch; gives the new results of their keys."""
        if self.combine:
            by_key: dict[int, list[Row]] = {}
            for row in rows:
                by_key.setdefault(row["key"], []).append(row)
            sent = {a.name: arrow(a, [combined(a, group) for group in by_key.values()]) for a in self.plan.accumulators}
            arranged = arrange([{"key": key} for key in by_key])
        else:
            sent = {a.name: arrow(a, [lifted(a, row) for row in rows]) for a in self.plan.accumulators if a.lift}
            arranged = arrange(rows)
        new = self.merger.reduce(sent, arranged, self.combine)
        keys = sorted({row["key"] for row in rows})
        old, known = self.merger.decode([self.state.get(key) for key in keys])
        merged = self.merger.merge(old, new, known)
        if self.merger.objects:
            values = self.merger.encode(merged)
        else:
            values = [row.tobytes() for row in self.merger.encode_fixed(merged)]
        self.state.update(zip(keys, values, strict=True))
        results = self.merger.results(merged, [ARROW[output.type] for output in self.plan.outputs])
        table = zip(*(result.to_pylist() for result in results), strict=True)
        names = [output.name for output in self.plan.outputs]
        return {key: dict(zip(names, row, strict=True)) for key, row in zip(keys, table, strict=True)}


def run(plan: Compiled, epochs: list[list[Row]], *, combine: bool) -> tuple[dict[int, dict[str, Any]], Job]:
    """The newest results of every key after some epochs."""
    job, results = Job(plan, combine=combine), {}
    for rows in epochs:
        if rows:
            results.update(job.epoch(rows))
    return results, job


def rows(column: str, *values: tuple[int, Any]) -> list[Row]:
    """Rows of (key, value)."""
    return [{"key": key, "at": 0, "tie": i, column: value} for i, (key, value) in enumerate(values)]


def spec(function: str, column: str) -> AggregateSpec:
    made: AggregateSpec = getattr(ms, function)(column) if column else getattr(ms, function)()
    return made


class Spread(Aggregator):
    """The smallest and largest value, kept as a tuple."""

    result_type = "bigint"

    def zero(self) -> Any:
        return (None, None)

    def add(self, state: Any, values: list[int]) -> Any:
        return (values[0], values[-1]) if values else state

    def merge(self, left: Any, right: Any) -> Any:
        assert type(left) is type(right)
        ends = [end for end in left + right if end is not None]
        return (min(ends), max(ends)) if ends else left

    def result(self, state: Any) -> Any:
        return None if state[0] is None else state[1] - state[0]


# --- naive Python ---------------------------------------------------------------------------------------------------


def equal(left: Any, right: Any, size: float = 0.0) -> bool:
    """Whether two results agree; sums of floating point only as far as the size of what was added up allows."""
    if isinstance(left, float) and isinstance(right, float):
        close = math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-6 + 1e-12 * size)
        return close or (math.isnan(left) and math.isnan(right))
    return bool(left == right) and type(left) is type(right)


def size_of(rows: list[Row], column: str) -> float:
    """How much there is to add up, whatever its sign."""
    values = present(rows, column) if column in NUMBERS else []
    return float(sum(abs(value) for value in values if math.isfinite(value)))


def present(rows: list[Row], column: str) -> list[Any]:
    return [row[column] for row in rows if row[column] is not None]


ORACLES: dict[str, Callable[[list[Row], str], Any]] = {
    "count": lambda rows, column: len(present(rows, column)) if column else len(rows),
    "sum": lambda rows, column: sum(present(rows, column)) if present(rows, column) else None,
    "min": lambda rows, column: by_size(present(rows, column))[0] if present(rows, column) else None,
    "max": lambda rows, column: by_size(present(rows, column))[-1] if present(rows, column) else None,
    "mean": lambda rows, column: (
        float(sum(present(rows, column)) / len(present(rows, column))) if present(rows, column) else None
    ),
    "first": lambda rows, column: min(rows, key=lambda row: (row["at"], row["tie"]))[column],
    "last": lambda rows, column: max(rows, key=lambda row: (row["at"], row["tie"]))[column],
}
NUMBERS = ("tinyint", "int", "bigint", "float", "double")
