"""Declared aggregates as a kind of operator."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType, TimestampType

from midstream.errors import PlanError
from midstream.operators.aggregates.declare import WHOLE, Compiled, compile_aggregates
from midstream.operators.aggregates.task import AggregateTask
from midstream.operators.keyed import KeyedKind, checked_keys, layout_of, watermarks_above
from midstream.operators.kind import Frames, Output, Resolving
from midstream.operators.resolved import Keyed, Resolved
from midstream.operators.schemas import arrow_schema, parse_schema, serialised
from midstream.operators.shuffle import Dispatch, Sent
from midstream.operators.tables import PortableAggregate, PortableForm
from midstream.plan import plan as p
from midstream.plan.column_names import clash, refuse_taken


class AggregateKind(KeyedKind[p.Aggregate]):
    """Declared aggregates over keyed rows."""

    folds_rows = True

    def resolve(self, operator: p.Aggregate, rows: Resolving) -> Output:
        """Compile the aggregates."""
        time, keys = rows.event_time(*operator.inputs), checked_keys(operator, rows, operator.keys, None)
        compiled = compiled_over(operator, rows.inputs[0], time)
        schema = results(operator, keys, compiled)
        kept = [f"{a.name} {a.dtype}" for a in compiled.accumulators]
        keyed = Keyed(
            rows.inputs[0], keys, time, watermarks_above(operator, rows.found.plan), arrow_schema(schema), compiled,
            layout=layout_of(keys, kept),
        )  # fmt: skip
        return Output(schema, time, keyed)

    def dispatch(self, operator: p.Aggregate, frames: Frames, common: dict[str, Any]) -> Dispatch:
        """Send accumulators, folded in the JVM where keys repeat."""
        run, compiled = frames.keyed[operator.id], compiled_of(frames.resolved, operator.id)
        combine = run.combine or not compiled.liftable
        sent = Sent(frames.table(operator.inputs[0]), accumulators(compiled, combine), combine, with_keys=True)
        task = AggregateTask(**common, compiled=compiled, combined=combine)
        return Dispatch(sent, task, frames.resolved.schemas[operator.id])

    def form(self, operator: p.Aggregate, resolved: Resolved) -> PortableForm:
        """Return one table: a row for each key."""
        return portable(operator, resolved, PortableAggregate)


def compiled_over(operator: p.Aggregate, schema: StructType, time: str | None) -> Compiled:
    """Compile the aggregates of an operator for the columns of its rows."""
    types = {field.name: field.dataType.simpleString() for field in schema}
    required = frozenset(field.name for field in schema if not field.nullable)
    return compile_aggregates(operator.id, operator.aggregates, types, time, required)


def compiled_of(resolved: Resolved, id: str) -> Compiled:
    """Return the compiled aggregates of an operator."""
    compiled = resolved.keyed[id].compiled
    assert compiled is not None
    return compiled


def results(operator: p.Aggregate, keys: StructType, compiled: Compiled, bounds: tuple[str, ...] = ()) -> StructType:
    """Return the output columns: the key, the bounds of the window if there is one, the results."""
    found = parse_schema(", ".join(f"`{o.name}` {o.type}" for o in compiled.outputs), f"aggregate {operator.id!r}")
    if name := clash([*keys.names, *found.names], bounds):
        raise PlanError(f"window {operator.id!r}: a result has the name {name!r} already; rename the column")
    refuse_taken(operator.id, found.names, (WHOLE,))
    return StructType([*keys, *(StructField(name, TimestampType(), False) for name in bounds), *found])


def accumulators(compiled: Compiled, combine: bool) -> dict[str, str]:
    """Return what is sent of each row, or of each key where the JVM folds rows first: column name -> SQL."""
    if combine:
        return {"_rows": "count(1)"} | {a.name: a.combine for a in compiled.accumulators}
    return {a.name: a.lift for a in compiled.accumulators if a.lift}


def portable(operator: p.Aggregate, resolved: Resolved, kind: Any) -> PortableForm:
    """Return what turns accumulators into a table of some kind."""
    keyed, compiled = resolved.keyed[operator.id], compiled_of(resolved, operator.id)
    shown = pa.schema(list(keyed.output)[-len(compiled.outputs) :])
    keys = serialised(arrow_schema(keyed.keys))
    return PortableForm(operator.id, keys, (kind, compiled, serialised(shown)), None)
