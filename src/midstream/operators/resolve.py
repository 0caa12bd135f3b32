"""Validation of a plan end to end, before anything runs: schemas, columns, types, meaning.

Every operator is tried on an empty frame of its input's schema, which costs milliseconds and finds what would
otherwise fail in the first epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from midstream.errors import MidstreamError, PlanError, first_line
from midstream.operators.aggregates.declare import (
    CLOSES,
    START,
    WHOLE,
    Compiled,
    compile_aggregates,
    with_end,
)
from midstream.operators.dead_letters import ERRORS, FAILED
from midstream.operators.joins.rules import Join
from midstream.operators.transforms import transformed
from midstream.operators.windows.task import PANE
from midstream.plan import code, wiring
from midstream.plan import plan as p
from midstream.plan.column_names import clash, refuse_taken
from midstream.plan.sql import quote
from midstream.plan.windows import BOUNDS, Session
from midstream.state.entries import SHARED, Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATE_REASON = "late_reason"
_TAKEN = ("_slot", "_group", "_order", "_tie", "_rows", "_epoch", "_broadcast", PANE, START, CLOSES, WHOLE)
_TAKEN_IN_SAVEPOINTS = ("_slot", "_group")  # where state has columns


@dataclass(frozen=True, slots=True)
class Keyed:
    """What a keyed operator needs to know of its rows."""

    input: StructType
    keys: StructType
    event_time: str | None
    watermarks: tuple[str, ...]  # the watermark operators upstream
    output: pa.Schema
    compiled: Compiled | None = None
    stages: tuple[Stage, ...] = ()  # of a function: the forms of its state, newest first
    layout: str = ""  # the stored form of the state: what has another layout cannot read it
    base: int = 0  # where the entries of this form begin
    top: int = 0  # the first number that no form uses
    shared: Stage | None = None  # of a function: the state of its groups
    told_time: str | None = None  # the event time of the rows that every group gets


def check_layout(operator: str, stored: dict[int, str], keyed: Keyed) -> None:
    """Refuse to read state of another layout where it lies."""
    known = stored.get(keyed.base, "")
    if known and known != keyed.layout:
        raise PlanError(
            f"the state of operator {operator!r} is stored {known}; the flow now needs it {keyed.layout}. "
            "Keep the types of its columns, give the operator another id, or start with a new checkpoint"
        )


@dataclass(frozen=True, slots=True)
class Resolved:
    """A validated plan."""

    plan: p.Plan
    schemas: dict[str, StructType]
    event_times: dict[str, str | None]
    keyed: dict[str, Keyed]


class ResolutionError(PlanError):
    """An operator that does not fit its inputs."""

    def __init__(self, message: str, operator: str, inputs: dict[str, StructType]) -> None:
        super().__init__(message)
        self.operator, self.inputs = operator, inputs


def resolve(spark: SparkSession, plan: p.Plan) -> Resolved:
    """Validate a plan and work out all schemas."""
    wiring.check(plan)
    return worked_out(spark, plan)


def worked_out(spark: SparkSession, plan: p.Plan) -> Resolved:
    """Work out the schemas of a plan that may lack its end yet; inputs must stand before their consumers."""
    found = Resolved(plan, {}, {}, {})
    for operator in plan.operators:
        inputs = [found.schemas[id] for id in operator.inputs]
        timed = operator.inputs[:1] if isinstance(operator, p.Process) else operator.inputs
        times = {found.event_times[id] for id in timed}
        time = times.pop() if len(times) == 1 else None
        try:
            schema = _output(spark, operator, inputs, time, found)
        except MidstreamError as error:
            raise ResolutionError(str(error), operator.id, dict(zip(operator.inputs, inputs, strict=True))) from error
        found.schemas[operator.id] = schema
        if p.gives_errors(operator):
            refuse_taken(operator.id, schema.names, (FAILED,))
        found.event_times[operator.id] = None if isinstance(operator, p.Errors) or time not in schema.names else time
        if isinstance(operator, p.Watermark):
            found.event_times[operator.id] = operator.column
        if isinstance(operator, p.Window):
            found.event_times[operator.id] = BOUNDS[0]
    return found


def _output(
    spark: SparkSession, operator: Any, inputs: list[StructType], time: str | None, found: Resolved
) -> StructType:
    if isinstance(operator, p.Source):
        return parse_schema(operator.schema, f"source {operator.id!r}")
    if isinstance(operator, p.Transform):
        return transformed(spark, operator, inputs[0])
    if isinstance(operator, p.MapArrow):
        return parse_schema(operator.schema, f"map_arrow {operator.id!r}")
    if isinstance(operator, p.Errors):
        return ERRORS
    if isinstance(operator, p.Union):
        return _united(operator, inputs)
    if isinstance(operator, p.Watermark):
        return _watermarked(spark, operator, inputs[0])
    if isinstance(operator, p.Spread):
        refuse_taken(operator.id, inputs[0].names, BOUNDS)
        return StructType([*inputs[0], *(StructField(name, TimestampType()) for name in BOUNDS)])
    if isinstance(operator, p.Late):
        windows = p.windows_late_for(found.plan, operator)
        is_session = isinstance(windows, p.Window) and windows.is_session  # its task gives the rows that it gets
        rows = found.schemas[windows.inputs[0]] if is_session else inputs[0]
        refuse_taken(operator.id, rows.names, (LATE_REASON,))
        return StructType([*rows, StructField(LATE_REASON, StringType())])
    if isinstance(operator, (p.Process, p.Aggregate)):
        keyed = _keyed(spark, operator, inputs[0], time, found)
        found.keyed[operator.id] = keyed
        return _keyed_output(operator, keyed)
    return inputs[0]


def parse_schema(ddl: str, what: str) -> StructType:
    """Read a schema as users write it."""
    try:
        parsed = StructType.fromDDL(ddl)
    except (PySparkException, ValueError) as error:
        raise PlanError(f"{what}: {ddl!r} is not a schema ({first_line(error)}); write 'name type, ...'") from error
    if not isinstance(parsed, StructType):
        raise PlanError(f"{what}: {ddl!r} is one type, not a schema; write 'name type, name type'")
    return parsed


def _united(operator: p.Union, inputs: list[StructType]) -> StructType:
    first = inputs[0]
    for id, other in zip(operator.inputs, inputs, strict=True):
        if [(f.name, f.dataType) for f in other] != [(f.name, f.dataType) for f in first]:
            raise PlanError(
                f"union {operator.id!r}: {operator.inputs[0]!r} has {first.simpleString()}, {id!r} has "
                f"{other.simpleString()}; give both the same columns with a transform"
            )
    return StructType([StructField(f.name, f.dataType, True) for f in first])


def _watermarked(spark: SparkSession, operator: p.Watermark, schema: StructType) -> StructType:
    if operator.column not in schema.names:
        raise _unknown_column(f"with_watermark {operator.id!r}", operator.column, schema)
    type = schema[operator.column].dataType.simpleString()
    if type != "timestamp":
        raise PlanError(f"with_watermark {operator.id!r}: column {operator.column!r} is {type}; it must be a timestamp")
    check_punctuation(spark, f"with_watermark {operator.id!r}", operator.punctuation, schema)
    return schema


def check_punctuation(spark: SparkSession, what: str, punctuation: str, schema: StructType) -> None:
    """Refuse SQL that says nothing of a row."""
    if punctuation:
        try:
            spark.createDataFrame([], schema).where(punctuation)
        except PySparkException as error:
            raise PlanError(
                f"{what}: the punctuation {punctuation!r} is no condition on a row of {schema.simpleString()}: "
                f"{first_line(error)}"
            ) from error


def _keyed(
    spark: SparkSession,
    operator: p.Process | p.Aggregate,
    schema: StructType,
    time: str | None,
    found: Resolved,
) -> Keyed:
    named = [*operator.keys, *(operator.order_by if isinstance(operator, p.Process) else ())]
    for column in named:
        if column not in schema.names:
            raise _unknown_column(f"key_by of {operator.id!r}", column, schema)
    told = operator.told if isinstance(operator, p.Process) else None
    refuse_taken(operator.id, [*schema.names, *(found.schemas[told].names if told else ())], _TAKEN)
    keys = StructType([schema[key] for key in operator.keys])
    for field in keys:
        if isinstance(field.dataType, MapType) or "map<" in field.dataType.simpleString():
            raise PlanError(f"operator {operator.id!r}: column {field.name!r} holds a map and cannot be a key")
        if isinstance(field.dataType, (ArrayType, StructType)):
            raise PlanError(
                f"operator {operator.id!r}: column {field.name!r} is {field.dataType.simpleString()} and cannot be a "
                "key; key by its parts, or by to_json of it"
            )
    if operator.partition_by:
        try:
            spark.createDataFrame([], keys).selectExpr(f"xxhash64({operator.partition_by})")
        except PySparkException as error:
            raise PlanError(
                f"operator {operator.id!r}: partition_by={operator.partition_by!r} must be an expression over the key "
                f"columns {', '.join(keys.names)} alone: {first_line(error)}"
            ) from error
    watermarks = tuple(o.id for o in found.plan.upstream(operator.inputs[0]) if isinstance(o, p.Watermark))
    types = {field.name: field.dataType.simpleString() for field in schema}
    compiled: Compiled | None = None
    stages: tuple[Stage, ...] = ()
    if isinstance(operator, p.Aggregate):
        required = frozenset(field.name for field in schema if not field.nullable)
        compiled = compile_aggregates(operator.id, operator.aggregates, types, time, required)
        output = _aggregated(operator, keys, compiled)
        if isinstance(operator, p.Window):
            if time is None:
                raise PlanError(
                    f"window {operator.id!r} needs an event time: say with_watermark(column, delay) before it"
                )
            check_punctuation(spark, f"window {operator.id!r}", operator.punctuation, schema)
            if isinstance(operator.spec, Session):
                compiled = with_end(compiled, operator.gap)
                keys = StructType([*keys, StructField(START, LongType())])
            else:
                keys = StructType([StructField(PANE, LongType()), *keys])
    else:
        output = _processed(operator, schema)
        stages = _stages(operator)
        refuse_taken(operator.id, [field.name for field in operator.state], _TAKEN_IN_SAVEPOINTS)
        function = code.load(operator.code)
        if isinstance(function, Join) and not function.is_bounded:
            watermarks = ()  # it asks for no event time
        if not getattr(function, "takes_revised", True):
            wiring.refuse_revised(found.plan, operator)
    layout = _layout(operator, keys, compiled)
    base = stages[0].base if stages else 0
    top = base + len(stages[0].fields) + (1 if base else 0) if stages else 0
    keyed = Keyed(schema, keys, time, watermarks, arrow_schema(output), compiled, stages, layout, base, top)
    return _with_groups(operator, keyed, found) if isinstance(operator, p.Process) else keyed


def _with_groups(operator: p.Process, keyed: Keyed, found: Resolved) -> Keyed:
    """Add what the groups of an operator are told, and keep."""
    shared = None
    if operator.shared or operator.told:
        shared = Stage(operator.shared, _state_types(operator, operator.shared), SHARED, None)
    if operator.told is None:
        return replace(keyed, shared=shared)
    told = found.schemas[operator.told]
    for column in operator.told_by:
        if column not in told.names:
            raise _unknown_column(f"broadcast to {operator.id!r}, order_by", column, told)
    return replace(keyed, shared=shared, told_time=found.event_times[operator.told])


def _layout(operator: p.Process | p.Aggregate, keys: StructType, compiled: Compiled | None) -> str:
    by = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in keys)
    if compiled is not None:
        kept = [f"{a.name} {a.dtype}" for a in compiled.accumulators]
    else:
        assert isinstance(operator, p.Process)
        kept = [f"{f.kind} {f.name} {f.key_type} {f.type}{' with ttl' if f.ttl else ''}" for f in operator.state]
    form = f"{operator.spec.kept_in} " if isinstance(operator, p.Window) else ""
    return f"{form}by ({by}): {', '.join(kept)}".replace("  ", " ")


def _keyed_output(operator: p.Process | p.Aggregate, keyed: Keyed) -> StructType:
    if isinstance(operator, p.Process):
        return _processed(operator, keyed.input)
    assert keyed.compiled is not None
    return _aggregated(operator, StructType([keyed.input[key] for key in operator.keys]), keyed.compiled)


def _aggregated(operator: p.Aggregate, keys: StructType, compiled: Compiled) -> StructType:
    """The rows that a declared aggregate gives out: the key, the window if there is one, the results."""
    results = parse_schema(", ".join(f"`{o.name}` {o.type}" for o in compiled.outputs), f"aggregate {operator.id!r}")
    bounds = BOUNDS if isinstance(operator, p.Window) else ()
    if name := clash([*keys.names, *results.names], bounds):
        raise PlanError(f"window {operator.id!r}: the name {name!r} is that of a result already; rename the column")
    refuse_taken(operator.id, results.names, (WHOLE,))
    return StructType([*keys, *(StructField(name, TimestampType(), False) for name in bounds), *results])


def _processed(operator: p.Process, input: StructType) -> StructType:
    return parse_schema(operator.schema, f"process {operator.id!r}") if operator.schema else input


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
    from midstream.state.values import Wire

    Wire(field.type, f"the default of state {declared.name!r} of operator {operator.id!r}").checked(declared.default)


def _unknown_column(what: str, column: str, schema: StructType) -> PlanError:
    return PlanError(f"{what}: there is no column {column!r}; the stream has {', '.join(schema.names)}")


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow form of a schema; timestamps are in UTC."""
    return to_arrow_schema(schema, timezone="UTC")


def hashed(operator: p.Keyed, keyed: Keyed) -> str:
    """What a key's group is worked out from, as SQL; -0.0 and 0.0 are one key."""
    if operator.partition_by:
        return operator.partition_by
    keys = (f"{quote(key)} + 0D" if is_float(keyed.input, key) else quote(key) for key in operator.keys)
    return ", ".join(keys) or "0"


def is_float(schema: StructType, column: str) -> bool:
    """Tell whether a column is of floating point."""
    return isinstance(schema[column].dataType, (FloatType, DoubleType))
