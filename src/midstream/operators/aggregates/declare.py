"""Declared aggregates: what the JVM computes before the shuffle, what is stored per key, how parts are merged.

An aggregate is compiled into *accumulators*, the numbers kept per key. Each accumulator knows three things:
how a single row becomes one (`lift`, SQL), how the JVM folds many rows into one (`combine`, SQL), and how two are
merged (`merge`, a rule of `aggregation`). Accumulators that two aggregates share are kept once.
Pure: SQL is text here, and nothing runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from midstream.errors import PlanError
from midstream.plan.code import Code, capture
from midstream.plan.plan import AggregateSpec
from midstream.plan.sql import quote
from midstream.plan.windows import END_OF_TIME, FIRST_TIME

INTEGERS = ("tinyint", "smallint", "int", "bigint")
FLOATS = ("float", "double")
HLL_LOG_SIZE = 12
START, END = "_start", "end"  # of a session: when it begins (of a row: its time), and when it ends
CLOSES = "_closes"  # of a row: whether it ends the window that it lies in
WHOLE = "_whole"  # of a session's row: all its columns, needed if it is late; of output: late rows


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One number (or object) kept per key."""

    name: str
    merge: str  # add | min | max | fmin | first | last | sketch | digest | user, see aggregation.py
    dtype: str  # numpy dtype of a fixed one, "object" for the others
    combine: str  # SQL aggregate over the rows of a key
    lift: str | None  # SQL over one row; "" stands for the constant 1, None: only combined parts can be merged
    follows: str = ""  # first, last: the accumulator that decides
    parts: bool = False  # the combined form is a sorted list, folded in Python (floating-point sums)
    decimal: bool = False
    code: Code | None = None


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """One result column: computed from accumulators when a key is emitted."""

    name: str
    type: str  # DDL
    function: str  # plain | mean | distinct | quantiles | user
    values: str  # the accumulator that holds the value
    present: str = ""  # the accumulator that counts the values: 0 means null
    parameters: tuple[float, ...] = ()
    code: Code | None = None


@dataclass(frozen=True, slots=True)
class Compiled:
    """The accumulators and outputs of an operator's aggregates."""

    accumulators: tuple[Accumulator, ...]
    outputs: tuple[ResultColumn, ...]

    @property
    def liftable(self) -> bool:
        """Whether raw rows may be sent, or only combined parts."""
        return all(a.lift is not None for a in self.accumulators)


class Aggregator:
    """A user-defined, mergeable aggregate of one column.

    Promised: `add` sees the values of a key in one epoch in sorted order, nulls left out; `merge` is called with the
    stored state first. Not promised: how many values come in one call, so `add` and `merge` must be associative.

    Example: the product of a column.

        class Product(ms.Aggregator):
            result_type = "double"

            def zero(self):
                return 1.0

            def add(self, state, values):
                return state * math.prod(values)

            def merge(self, left, right):
                return left * right
    """

    result_type: str = "double"

    def zero(self) -> Any:
        """Return the state of a key without values."""
        raise NotImplementedError

    def add(self, state: Any, values: list[Any]) -> Any:
        """Fold values into a state."""
        raise NotImplementedError

    def merge(self, left: Any, right: Any) -> Any:
        """Merge two states."""
        raise NotImplementedError

    def result(self, state: Any) -> Any:
        """Turn a state into the output value."""
        return state


def count(column: str = "") -> AggregateSpec:
    """Count rows, or the values of a column that are not null."""
    return AggregateSpec(name="", function="count", column=column)


def sum(column: str) -> AggregateSpec:
    """Add up a column; the sum of integers is exact, that of doubles does not depend on the order of rows."""
    return AggregateSpec(name="", function="sum", column=column)


def min(column: str) -> AggregateSpec:
    """Keep the smallest value."""
    return AggregateSpec(name="", function="min", column=column)


def max(column: str) -> AggregateSpec:
    """Keep the largest value."""
    return AggregateSpec(name="", function="max", column=column)


def mean(column: str) -> AggregateSpec:
    """Average the values that are not null."""
    return AggregateSpec(name="", function="mean", column=column)


def first(column: str) -> AggregateSpec:
    """Keep the value of the earliest row by event time (without a watermark: by epoch), nulls included."""
    return AggregateSpec(name="", function="first", column=column)


def last(column: str) -> AggregateSpec:
    """Keep the value of the latest row by event time (without a watermark: by epoch), nulls included."""
    return AggregateSpec(name="", function="last", column=column)


def approx_distinct(column: str) -> AggregateSpec:
    """Estimate the number of distinct values (HyperLogLog of Apache DataSketches, about 1.6 % standard error)."""
    return AggregateSpec(name="", function="approx_distinct", column=column)


def quantiles(column: str, *fractions: float) -> AggregateSpec:
    """Estimate quantiles (t-digest of Apache DataSketches); one fraction gives a double, several an array."""
    if not fractions or not all(0.0 <= f <= 1.0 for f in fractions):
        raise PlanError(f"quantiles({column!r}, ...) needs fractions between 0 and 1, such as 0.5, 0.99")
    return AggregateSpec(name="", function="quantiles", column=column, parameters=tuple(fractions))


def aggregated(column: str, aggregator: Aggregator) -> AggregateSpec:
    """Apply a user-defined `Aggregator` to a column."""
    code = capture(aggregator, what=f"the aggregator {type(aggregator).__name__}", shipped=True)
    return AggregateSpec(name="", function="user", column=column, type=aggregator.result_type, code=code)


def event_time(column: str) -> str:
    """The event time of a row in microseconds, as SQL; null outside the years 1 to 9999.

    One such time would move the watermark beyond all others.
    """
    time = f"unix_micros({quote(column)})"
    return f"if({time} between {FIRST_TIME}L and {END_OF_TIME - 1}L, {time}, null)"


def compile_aggregates(
    operator: str,
    specs: tuple[AggregateSpec, ...],
    types: dict[str, str],
    event_time: str | None,
    required: frozenset[str] = frozenset(),
) -> Compiled:
    """Return accumulators and outputs; `types` maps the input columns to Spark's simple type names.

    Columns that are `required`, never null, need no count of their values: the count of rows is the same.
    """
    accumulators: dict[str, Accumulator] = {}
    outputs = []
    for spec in specs:
        if spec.column and spec.column not in types:
            raise PlanError(
                f"aggregate {operator!r}: {spec.name} = {spec.function}({spec.column!r}) names an unknown column; "
                f"the stream has {', '.join(types)}"
            )
        made, output = _compile(operator, spec, types, event_time, required)
        accumulators.update((a.name, a) for a in made)
        outputs.append(output)
    return Compiled(tuple(accumulators.values()), tuple(outputs))


def with_end(compiled: Compiled, gap: int) -> Compiled:
    """Add the end of a session: a gap after its latest row."""
    end = Accumulator(END, "max", "<i8", f"max({START}) + {gap}L", f"{START} + {gap}L")
    return Compiled((*compiled.accumulators, end), compiled.outputs)


def _compile(
    operator: str, spec: AggregateSpec, types: dict[str, str], event_time: str | None, required: frozenset[str]
) -> tuple[list[Accumulator], ResultColumn]:
    column, type = quote(spec.column), types.get(spec.column, "")
    if not spec.column or spec.column in required:
        present = Accumulator("count", "add", "<i8", "count(1)", "")
    else:
        lift = f"if({column} is null, 0L, 1L)"
        present = Accumulator(f"count {spec.column}", "add", "<i8", f"count({column})", lift)
    if spec.function == "count":
        return [present], ResultColumn(spec.name, "bigint", "plain", present.name)
    if spec.function in ("sum", "mean"):
        return _compile_sum(operator, spec, type, present)
    if spec.function in ("min", "max"):
        return _compile_extreme(operator, spec, type, present)
    if spec.function in ("first", "last"):
        return _compile_by_order(operator, spec, types, event_time)
    if spec.function == "approx_distinct":
        plain = (
            column if type in ("int", "bigint", "string", "binary") else f"cast({_hashable(column, type)} as string)"
        )
        sketch = f"hll_sketch_agg({plain}, {HLL_LOG_SIZE})"
        acc = Accumulator(f"sketch {spec.column}", "sketch", "object", sketch, None)
        return [acc], ResultColumn(spec.name, "bigint", "distinct", acc.name)
    if spec.function == "quantiles":
        _require(operator, spec, type, type in INTEGERS + FLOATS or type.startswith("decimal"))
        values = f"sort_array(collect_list(cast({column} as double)))"
        acc = Accumulator(f"digest {spec.column}", "digest", "object", values, None)
        result = "double" if len(spec.parameters) == 1 else "array<double>"
        return [acc], ResultColumn(spec.name, result, "quantiles", acc.name, parameters=spec.parameters)
    acc = Accumulator(
        f"user {spec.name}", "user", "object", f"sort_array(collect_list({column}))", None, code=spec.code
    )
    return [acc], ResultColumn(spec.name, spec.type, "user", acc.name, code=spec.code)


def _compile_sum(
    operator: str, spec: AggregateSpec, type: str, present: Accumulator
) -> tuple[list[Accumulator], ResultColumn]:
    column = quote(spec.column)
    name, function = f"sum {spec.column}", "mean" if spec.function == "mean" else "plain"
    if type in INTEGERS:
        acc = Accumulator(name, "add", "<i8", f"coalesce(sum({column}), 0L)", f"coalesce(cast({column} as bigint), 0L)")
        result = "bigint"
    elif type in FLOATS:
        parts = f"sort_array(collect_list(coalesce(cast({column} as double), 0D)))"
        acc = Accumulator(name, "add", "<f8", parts, f"coalesce(cast({column} as double), 0D)", parts=True)
        result = "double"
    else:
        _require(operator, spec, type, type.startswith("decimal"))
        acc = Accumulator(name, "add", "object", f"sum({column})", None, decimal=True)
        result = widest(type)
    return [acc, present], ResultColumn(
        spec.name, "double" if function == "mean" else result, function, name, present.name
    )


def widest(decimal: str) -> str:
    """The type of a sum of decimals.

    >>> widest("decimal(12,2)")
    'decimal(38,2)'
    """
    return f"decimal(38,{decimal.rstrip(')').split(',')[1]})"


def _compile_extreme(
    operator: str, spec: AggregateSpec, type: str, present: Accumulator
) -> tuple[list[Accumulator], ResultColumn]:
    column, name = quote(spec.column), f"{spec.function} {spec.column}"
    plain, dtype = _plain(column, type)
    if dtype == "object":
        _require(operator, spec, type, type in ("string", "binary") or type.startswith("decimal"))
        acc = Accumulator(
            name, spec.function, dtype, f"{spec.function}({column})", None, decimal=type.startswith("decimal")
        )
        return [acc], ResultColumn(spec.name, type, "plain", name)
    if dtype == "<f8":
        merge = "fmin" if spec.function == "min" else "max"
        nothing = "double('NaN')" if spec.function == "min" else "double('-Infinity')"
    else:
        merge = spec.function
        nothing = "9223372036854775807L" if spec.function == "min" else "(-9223372036854775807L - 1L)"
    fill = f"coalesce({{}}, {nothing})"
    acc = Accumulator(name, merge, dtype, fill.format(f"{spec.function}({plain})"), fill.format(plain))
    return [acc, present], ResultColumn(spec.name, type, "plain", name, present.name)


def _compile_by_order(
    operator: str, spec: AggregateSpec, types: dict[str, str], event_time: str | None
) -> tuple[list[Accumulator], ResultColumn]:
    column, type = quote(spec.column), types[spec.column]
    plain, dtype = _plain(column, type)
    _require(operator, spec, type, dtype != "object" or type.startswith("decimal") or _comes_back(type))
    order = f"unix_micros({quote(event_time)})" if event_time else "`_epoch`"
    tie = f"xxhash64({', '.join(_hashable(quote(c), t) for c, t in types.items())})"
    rank = f"named_struct('a', coalesce({order}, 0L), 'b', {tie})"
    by, pick = ("min_by", "min") if spec.function == "first" else ("max_by", "max")
    parts = ("at", "tie", f"there {spec.column}", f"value {spec.column}")
    at, tied, there, name = (f"{spec.function} {part}" for part in parts)
    zero = "" if dtype == "object" else "coalesce({}, 0D)" if dtype == "<f8" else "coalesce({}, 0L)"
    fill = zero or "{}"
    merge = spec.function
    accumulators = [
        Accumulator(at, merge, "<i8", f"{pick}({rank}).a", f"coalesce({order}, 0L)"),
        Accumulator(tied, merge, "<i8", f"{pick}({rank}).b", tie, follows=at),
        Accumulator(
            there,
            merge,
            "<i8",
            f"{by}(if({column} is null, 0L, 1L), {rank})",
            f"if({column} is null, 0L, 1L)",
            at,
        ),
        Accumulator(
            name,
            merge,
            dtype,
            fill.format(f"{by}({plain}, {rank})"),
            fill.format(plain) if zero else None,
            at,
            decimal=type.startswith("decimal"),
        ),
    ]
    return accumulators, ResultColumn(spec.name, type, "plain", name, there)


def _plain(column: str, type: str) -> tuple[str, str]:
    """SQL that turns a column into a fixed-width number, and its numpy dtype; "object" where there is none."""
    if type in INTEGERS or type == "boolean":
        return f"cast({column} as bigint)", "<i8"
    if type in FLOATS:
        return f"cast({column} as double)", "<f8"
    if type == "timestamp":
        return f"unix_micros({column})", "<i8"
    if type == "date":
        return f"cast(unix_date({column}) as bigint)", "<i8"
    return column, "object"


def _comes_back(type: str) -> bool:
    """Tell whether values of a type without a fixed width can be stored and read back as they were."""
    words = re.findall(r"\w+", re.sub(r"[^<,]+:", "", type))  # the names of fields left out
    return set(words) <= {*INTEGERS, *FLOATS, "string", "binary", "boolean", "timestamp", "array", "struct"}


def _hashable(column: str, type: str) -> str:
    """Maps cannot be hashed in Spark: hash their sorted entries."""
    return f"to_json({column})" if "map<" in type else column


def _require(operator: str, spec: AggregateSpec, type: str, fits: bool) -> None:
    if not fits:
        raise PlanError(
            f"aggregate {operator!r}: {spec.name} = {spec.function}({spec.column!r}) cannot be computed over a column "
            f"of type {type}; cast it in a transform first"
        )
