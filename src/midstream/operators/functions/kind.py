"""Keyed functions as a kind of operator; those that have a task of their own, such as joins, name it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from midstream.operators.dead_letters import FAILED, beside_failed, without_failed
from midstream.operators.functions.declare import KeyedFunction
from midstream.operators.functions.task import BROADCAST, ORDER, TIE, BroadcastForm, FunctionTask
from midstream.operators.joins.rules import Join
from midstream.operators.joins.task import JoinTask
from midstream.operators.keyed import KeyedKind, checked_keys, layout_of, watermarks_above
from midstream.operators.kind import Frames, Output, Resolving
from midstream.operators.resolved import Keyed, Resolved
from midstream.operators.schemas import arrow_schema, parse_schema, serialised, unknown_column
from midstream.operators.shuffle import Dispatch, Sent, slots_frame
from midstream.operators.tables import PortableForm
from midstream.operators.task import GROUP, SlotTask
from midstream.operators.windows.by_count.rules import CountWindows
from midstream.operators.windows.by_count.task import CountTask
from midstream.plan import code, wiring
from midstream.plan import plan as p
from midstream.plan.column_names import refuse_taken
from midstream.plan.routing import Routing
from midstream.plan.sql import quote
from midstream.state.entries import SHARED, Stage
from midstream.state.values import Wire

_TAKEN_IN_SAVEPOINTS = ("_slot", "_group")  # where state has columns

# Functions whose rows are not processed key by key: the task that does it instead.
TASKS: dict[type[KeyedFunction], Callable[[dict[str, Any], Keyed], SlotTask]] = {
    Join: lambda common, keyed: JoinTask(**common),
    CountWindows: lambda common, keyed: CountTask(**common, event_time=keyed.event_time),
}


class FunctionKind(KeyedKind[p.Process]):
    """A `KeyedFunction` over keyed rows."""

    def resolve(self, operator: p.Process, rows: Resolving) -> Output:
        """Check keys, declared state, and the broadcast rows."""
        found, schema = rows.found, rows.inputs[0]
        broadcast = found.schemas[operator.broadcast] if operator.broadcast else None
        keys = checked_keys(operator, rows, (*operator.keys, *operator.order_by), broadcast)
        time, watermarks = rows.event_time(*operator.inputs[:1]), watermarks_above(operator, found.plan)
        output = parse_schema(operator.schema, f"process {operator.id!r}") if operator.schema else schema
        stages = _stages(operator)
        refuse_taken(operator.id, [field.name for field in operator.state], _TAKEN_IN_SAVEPOINTS)
        function = code.load(operator.code)
        if isinstance(function, Join) and not function.is_bounded:
            watermarks = ()  # it asks for no event time
        if not getattr(function, "takes_revised", True):
            wiring.refuse_revised(found.plan, operator)
        if operator.gives_errors:
            refuse_taken(operator.id, output.names, (FAILED,))
        kept = [f"{f.kind} {f.name} {f.key_type} {f.type}{' with ttl' if f.ttl else ''}" for f in operator.state]
        base = stages[0].base
        top = base + len(stages[0].fields) + (1 if base else 0)
        keyed = Keyed(
            schema, keys, time, watermarks, arrow_schema(output), None, stages, layout_of(keys, kept), base, top
        )
        return Output(output, time, _with_groups(operator, keyed, found))

    def frame(self, operator: p.Process, frames: Frames) -> DataFrame:
        """Return what the function yields, without what it fails on."""
        if operator.gives_errors:
            return without_failed(frames.everything(operator.id), frames.resolved.schemas[operator.id].names)
        return slots_frame(self, operator, frames)

    def everything(self, operator: p.Process, frames: Frames) -> DataFrame:
        """Return what the function yields, and what it fails on."""
        return slots_frame(self, operator, frames)

    def dispatch(self, operator: p.Process, frames: Frames, common: dict[str, Any]) -> Dispatch:
        """Send all columns, and what rows of a key are sorted by."""
        keyed, schema, broadcast = frames.resolved.keyed[operator.id], frames.resolved.schemas[operator.id], ""
        columns = _columns_in_order(keyed.input, keyed.event_time, operator.order_by)
        if operator.broadcast is not None:
            columns[BROADCAST] = "null"
            broadcast = _broadcast_rows(operator, keyed, frames)
        sent = Sent(frames.table(operator.inputs[0]), columns, broadcast=broadcast)
        common |= {"code": operator.code, "stages": keyed.stages, "order_by": operator.order_by}
        function = code.load(operator.code)
        own = next((TASKS[base] for base in type(function).__mro__ if base in TASKS), None)
        if own is not None:
            return Dispatch(sent, own(common, keyed), schema)
        if puts_aside := operator.gives_errors:
            schema = beside_failed(schema, keyed.input)
            common["schema"] = serialised(arrow_schema(schema))
        task = FunctionTask(
            **common,
            dead_letters=puts_aside,
            key_schema=serialised(arrow_schema(keyed.keys)),
            event_time=keyed.event_time,
            shared=keyed.shared,
            broadcast=None
            if operator.broadcast is None
            else BroadcastForm(operator.broadcast_order, keyed.broadcast_time),
            in_windows=p.windows_of(frames.resolved.plan, operator.id) is not None,
        )
        return Dispatch(sent, task, schema)

    def form(self, operator: p.Process, resolved: Resolved) -> PortableForm:
        """Return the tables of declared state."""
        keyed = resolved.keyed[operator.id]
        return PortableForm(operator.id, serialised(arrow_schema(keyed.keys)), None, keyed.stages, keyed.shared)


def _with_groups(operator: p.Process, keyed: Keyed, found: Resolved) -> Keyed:
    """Add what is broadcast to the groups of an operator, and what they keep."""
    shared = None
    if operator.shared or operator.broadcast:
        shared = Stage(operator.shared, _state_types(operator, operator.shared), SHARED, None)
    if operator.broadcast is None:
        return replace(keyed, shared=shared)
    broadcast = found.schemas[operator.broadcast]
    for column in operator.broadcast_order:
        if column not in broadcast.names:
            raise unknown_column(f"broadcast to {operator.id!r}, order_by", column, broadcast)
    return replace(keyed, shared=shared, broadcast_time=found.event_times[operator.broadcast])


def _stages(operator: p.Process) -> tuple[Stage, ...]:
    """The forms of an operator's state, newest first."""
    older = operator.migration
    found = [
        Stage(operator.state, _state_types(operator, operator.state), operator.base, older.code if older else None)
    ]
    while older is not None:
        before = older.before
        types = _state_types(operator, older.state)
        found.append(Stage(older.state, types, older.base, before.code if before else None))
        older = before
    return tuple(found)


def _state_types(operator: p.Process, state: tuple[p.StateField, ...]) -> bytes:
    columns = []
    for field in state:
        columns.append((field.name, field.type))
        if field.kind == "map":
            columns.append((f"{field.name} key", field.key_type))
    fields = []
    for name, type in columns:
        parsed = parse_schema(f"`{name}` {type}", f"the state {name!r} of operator {operator.id!r}")
        fields.append(arrow_schema(parsed).field(0))
    for declared in state:
        if declared.default is not None:
            _check_default(operator, declared, next(f for f in fields if f.name == declared.name))
    return bytes(pa.schema(fields).serialize())


def _check_default(operator: p.Process, declared: p.StateField, field: pa.Field) -> None:
    Wire(field.type, f"the default of state {declared.name!r} of operator {operator.id!r}").checked(declared.default)


def _broadcast_rows(operator: p.Process, keyed: Keyed, frames: Frames) -> str:
    """The rows that every group gets, once for each."""
    assert operator.broadcast is not None
    columns = _columns_in_order(
        frames.resolved.schemas[operator.broadcast], keyed.broadcast_time, operator.broadcast_order
    )
    whole = ", ".join(f"{expression} as {quote(name)}" for name, expression in columns.items())
    routing: Routing = frames.keyed[operator.id].routing
    groups = f"explode(sequence(0, {len(routing.owners) - 1}))"
    return f"select struct({whole}) as {BROADCAST}, {groups} as {GROUP} from {frames.table(operator.broadcast)}"


def _columns_in_order(schema: StructType, event_time: str | None, order_by: tuple[str, ...]) -> dict[str, str]:
    """All columns, and what rows of a key are sorted by: event time, and a hash of the whole row as the tie-break."""
    columns = {field.name: quote(field.name) for field in schema}
    whole = [f"to_json({quote(f.name)})" if "map<" in f.dataType.simpleString() else quote(f.name) for f in schema]
    columns[TIE] = f"xxhash64({', '.join(whole)})"
    if event_time and not order_by:
        columns[ORDER] = f"coalesce(unix_micros({quote(event_time)}), 0L)"
    return columns
