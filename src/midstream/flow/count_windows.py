"""Windows by the number of rows: what the user writes, and the ordinary operators that it becomes.

    visits ── tens (process: the open windows of a key, see `count_task`)

Over all rows, and where some rows end windows, there is a transform before it, `tens.rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from midstream.errors import PlanError
from midstream.flow import builders
from midstream.flow.builders import named
from midstream.operators.aggregates.declare import FLOATS, INTEGERS, widest
from midstream.operators.resolve import worked_out
from midstream.operators.schemas import check_punctuation
from midstream.operators.windows.by_count.rules import ALL, ENDS, CountPart, CountResult, CountWindows, Marked
from midstream.plan.column_names import clash, refuse_taken
from midstream.plan.plan import AggregateSpec, AnyOperator, Plan
from midstream.plan.sql import quote
from midstream.plan.windows import CountWindow
from midstream.spark.types import ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBER = "window"
_NUMBERS = (*INTEGERS, *FLOATS)


def count_windows(
    session: SparkSession,
    plan: Plan,
    input: str,
    keys: Sequence[str],
    window: CountWindow,
    partition_by: str,
    punctuation: str,
    *,
    id: str,
    slots: int,
    aggregates: dict[str, AggregateSpec],
) -> list[AnyOperator]:
    """Return the operators; see `WindowedStream.aggregate`."""
    named(id, tuple(keys), aggregates)
    schema = worked_out(session, plan).schemas[input]
    types = {field.name: ddl(field.dataType) for field in schema}
    for column in (*keys, *(spec.column for spec in aggregates.values() if spec.column)):
        if column not in types:
            raise PlanError(f"window {id!r}: there is no column {column!r}; the stream has {', '.join(types)}")
    refuse_taken(id, list(types), (ENDS, ALL))
    if name := clash([*aggregates, *keys], [NUMBER]):
        raise PlanError(f"window {id!r}: another result has the name {name!r} already; rename it")
    parts, results, shown = _parts(id, aggregates, types)
    columns = [*((key, types[key]) for key in keys), (NUMBER, "bigint"), *zip(aggregates, shown, strict=True)]
    output = ", ".join(f"{quote(name)} {type}" for name, type in columns)
    check_punctuation(session, f"window {id!r}", punctuation, schema)
    made: list[AnyOperator] = []
    if punctuation or not keys:
        marked = builders.transform(Marked(punctuation, not keys), id=f"{id}.rows")
        made.append(builders.reading(marked, input))
        input = f"{id}.rows"
    keyed = builders.key_by(*keys, partition_by=partition_by) if keys else builders.key_by(ALL)
    rules = CountWindows(window, len(keys), parts, results, ends=bool(punctuation))
    return [*made, builders.reading(keyed.process(rules, schema=output, slots=slots, id=id), input)]


def _parts(
    id: str, aggregates: dict[str, AggregateSpec], types: dict[str, str]
) -> tuple[tuple[CountPart, ...], tuple[CountResult, ...], list[str]]:
    """What is kept, the results that are computed from it, and their types."""
    parts: dict[CountPart, int] = {}

    def part(how: str, column: str, type: str) -> int:
        return parts.setdefault(CountPart(how, column, type), len(parts))

    results, shown = [], []
    for name, spec in aggregates.items():
        function, column, type = spec.function, spec.column, types.get(spec.column, "")
        if function == "count":
            results.append(CountResult(function, part("count", column, "bigint")))
            shown.append("bigint")
        elif function in ("sum", "mean") and type in _NUMBERS:
            result = "bigint" if type in INTEGERS and function == "sum" else "double"
            added = part("total" if type in INTEGERS and function == "mean" else "sum", column, result)
            results.append(CountResult(function, added, part("count", column, "bigint")))
            shown.append(result)
        elif function in ("sum", "mean") and type.startswith("decimal"):
            results.append(CountResult(function, part("sum", column, widest(type)), part("count", column, "bigint")))
            shown.append(widest(type) if function == "sum" else "double")
        elif function in ("first", "last") or (function in ("min", "max") and _has_order(type)):
            results.append(CountResult(function, part(function, column, type)))
            shown.append(type)
        else:
            raise PlanError(
                f"window {id!r}: {name} = {function}({column!r}) of a column of type {type} cannot be kept in windows "
                "by count; they have count, first and last, sum and mean of numbers, min and max of ordered types"
            )
    return tuple(parts), tuple(results), shown


def _has_order(type: str) -> bool:
    return type in (*_NUMBERS, "string", "boolean", "date", "timestamp") or type.startswith("decimal")
