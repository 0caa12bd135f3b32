"""A flow in its frozen, versioned form: plain data that can be compared, kept and shown.

Pure: no pyspark, no files, no clock. User code is held as `Code`; sources hold only their id and schema, because a
streaming DataFrame belongs to the session that made it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from midstream import windows
from midstream.code import Code
from midstream.errors import PlanError


class StateField(msgspec.Struct, frozen=True, kw_only=True):
    """One declared piece of state of a keyed operator."""

    name: str
    kind: str  # value | list | map | accumulator
    type: str  # DDL
    key_type: str = ""  # of a map
    default: Any = None
    ttl: int = 0  # microseconds, 0: for ever


class AggregateSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One output column of a declared aggregate: `name = function(column, *parameters)`."""

    name: str
    function: str
    column: str = ""
    parameters: tuple[float, ...] = ()
    type: str = ""  # DDL of the result, where the user gives it
    code: Code | None = None  # of a user-defined one


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """How state of an older form is turned into the newer one, when a key is first met: a function of dictionaries."""

    code: Code
    state: tuple[StateField, ...]  # of the older form
    base: int  # where the older form's entries begin
    before: Migration | None = None  # an older form still


class Operator(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """A node of the plan, with its user-given id."""

    id: str
    inputs: tuple[str, ...] = ()


class Source(Operator, frozen=True, kw_only=True, tag="source"):
    """Where rows come from."""

    schema: str
    code: Code | None = None  # a function of the session that makes it; without one only the script can


class Transform(Operator, frozen=True, kw_only=True, tag="transform"):
    """A DataFrame -> DataFrame function over one epoch's rows, run in the JVM."""

    code: Code
    per_epoch: bool = False


class MapArrow(Operator, frozen=True, kw_only=True, tag="map_arrow"):
    """A function over Arrow batches, stateless."""

    code: Code
    schema: str


class Union(Operator, frozen=True, kw_only=True, tag="union"):
    """The rows of several streams of one schema."""


class Watermark(Operator, frozen=True, kw_only=True, tag="watermark"):
    """Declares the event-time column, and by how much the stream may be out of order."""

    column: str
    delay: int  # microseconds
    idle: int = 0  # microseconds without rows after which the others are not held back; 0: for ever
    ahead: int = 0  # microseconds that a row may be ahead of the clock; 0: any
    punctuation: str = ""  # SQL: a row for which it holds says that nothing before it follows


class Process(Operator, frozen=True, kw_only=True, tag="process"):
    """A `KeyedFunction` over keyed rows."""

    code: Code
    keys: tuple[str, ...]
    schema: str  # DDL of what it yields; "": that of its input
    state: tuple[StateField, ...] = ()
    order_by: tuple[str, ...] = ()
    partition_by: str = ""  # SQL over the key: keys for which it is equal are in one group; "": the key itself
    slots: int = 0  # 0: as many as the cluster has cores
    owners: tuple[int, ...] = ()  # group -> slot, on one host; none: dealt out in turn
    homes: tuple[str, ...] = ()  # group -> executor, on a cluster; none: spread evenly
    base: int = 0  # where the entries of this form of the state begin, see state/keyed.py
    migration: Migration | None = None


class Aggregate(Operator, frozen=True, kw_only=True, tag="aggregate"):
    """Declared aggregates over keyed rows."""

    keys: tuple[str, ...]
    aggregates: tuple[AggregateSpec, ...]
    partition_by: str = ""
    slots: int = 0
    owners: tuple[int, ...] = ()
    homes: tuple[str, ...] = ()


class Window(Aggregate, frozen=True, kw_only=True, tag="window"):
    """Declared aggregates over the rows of a key, or of all, in each window of event time."""

    size: int  # microseconds; 0: a session
    slide: int
    gap: int = 0  # of sessions
    lateness: int = 0  # how long after its end a window takes rows
    emit: str = "watermark"  # or "update"

    @property
    def spec(self) -> windows.AnyWindow:
        """Where the windows begin and end."""
        return windows.Session(self.gap) if self.gap else windows.Window(self.size, self.slide)


class Late(Operator, frozen=True, kw_only=True, tag="late"):
    """The rows that a window operator does not take, and why."""

    of: str


class Sink(Operator, frozen=True, kw_only=True, tag="sink"):
    """Where rows go."""

    code: Code
    describe: str


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """What a running job was told to do otherwise than it was started; `None`: as it was started."""

    rows_per_arrow_batch: int | None = None
    max_rows_per_epoch: int | None = None
    epoch_interval: int | None = None  # microseconds
    prefetch_budget: int | None = None  # bytes
    prefetch_time: int | None = None  # microseconds


AnyOperator = Source | Transform | MapArrow | Union | Watermark | Process | Aggregate | Window | Late | Sink
Keyed = Process | Aggregate


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All operators of a job, inputs before their consumers."""

    name: str
    operators: tuple[AnyOperator, ...]
    version: int = 1
    tuning: Tuning = Tuning()

    def __getitem__(self, id: str) -> AnyOperator:
        for operator in self.operators:
            if operator.id == id:
                return operator
        known = ", ".join(repr(operator.id) for operator in self.operators)
        raise PlanError(f"no operator {id!r} in flow {self.name!r}; it has {known}")

    def consumers(self, id: str) -> list[AnyOperator]:
        """List the operators that read the output of `id`."""
        return [operator for operator in self.operators if id in operator.inputs]

    def upstream(self, id: str) -> Iterator[AnyOperator]:
        """Walk everything that `id` depends on, itself first; an operator reached twice is given once."""
        seen: set[str] = set()
        todo = [id]
        while todo:
            current = todo.pop()
            if current not in seen:
                seen.add(current)
                yield self[current]
                todo.extend(self[current].inputs)

    def of(self, *kinds: type) -> list[Any]:
        """List the operators of some kinds, in order."""
        return [operator for operator in self.operators if isinstance(operator, kinds)]

    def explain(self) -> str:
        """Show the plan as a tree: each operator below what it reads, or below the first of several inputs."""
        lines = [f"{self.name}, version {self.version}"]
        roots = [operator for operator in self.operators if not operator.inputs]
        for i, root in enumerate(roots):
            lines += self._branch(root, "", i == len(roots) - 1)
        return "\n".join(lines)

    def _branch(self, operator: AnyOperator, indent: str, is_last: bool) -> Iterator[str]:
        others = f", reads {', '.join(operator.inputs[1:])} too" if len(operator.inputs) > 1 else ""
        yield f"{indent}{'└─' if is_last else '├─'} {operator.id} ({_described(operator)}{others})"
        below = [reader for reader in self.operators if reader.inputs[:1] == (operator.id,)]
        for i, reader in enumerate(below):
            yield from self._branch(reader, indent + ("   " if is_last else "│  "), i == len(below) - 1)


def _described(operator: AnyOperator) -> str:
    kind = "map_arrow" if isinstance(operator, MapArrow) else type(operator).__name__.lower()
    if isinstance(operator, (Process, Aggregate)):
        return f"{kind} by {', '.join(operator.keys)}" if operator.keys else kind
    if isinstance(operator, Sink):
        return f"{kind}: {operator.describe}"
    return f"{kind} {operator.column}" if isinstance(operator, Watermark) else kind


def code_keys(plan: Plan) -> set[str]:
    """List the keys of all code in a plan."""
    coded = [o for o in plan.operators if isinstance(o, (Source, Transform, MapArrow, Process, Sink))]
    found = {operator.code.key for operator in coded if operator.code is not None}
    for operator in plan.of(Process):
        migration = operator.migration
        while migration is not None:
            found.add(migration.code.key)
            migration = migration.before
    specs = [spec for o in plan.operators if isinstance(o, Aggregate) for spec in o.aggregates]
    return found | {spec.code.key for spec in specs if spec.code is not None}


def check(plan: Plan) -> None:
    """Refuse a plan whose ids or wiring are wrong."""
    seen: set[str] = set()
    for operator in plan.operators:
        if operator.id in seen:
            raise PlanError(
                f"the id {operator.id!r} is used twice in flow {plan.name!r}; ids own state, so each is one"
            )
        if not operator.id or not all(c.isalnum() or c in "_-." for c in operator.id) or operator.id.startswith("."):
            raise PlanError(f"{operator.id!r} cannot be an id: use letters, digits, '_', '-' and '.'")
        for wanted in operator.inputs:
            if wanted not in seen:
                raise PlanError(f"operator {operator.id!r} reads {wanted!r}, which is not defined before it")
        if isinstance(operator, Late):
            check_late(plan, operator)
        seen.add(operator.id)
    if not plan.of(Source):
        raise PlanError(f"flow {plan.name!r} has no source; add one with flow.source(id, streaming_dataframe)")
    if not plan.of(Sink) and not plan.of(Process, Aggregate):
        raise PlanError(f"flow {plan.name!r} has neither a sink nor a keyed operator: it would compute nothing")


def check_late(plan: Plan, late: Late) -> None:
    """Refuse the late rows of what has none."""
    found = [window for window in plan.of(Window) if window.id == late.of]
    if not found:
        raise PlanError(f"{late.id!r} are the late rows of {late.of!r}, which is no window of this plan")
    if found[0].gap:
        raise PlanError(
            f"{late.of!r} is a session window, and has no stream of late rows: whether a row is late is known only "
            "where its sessions are. They are counted in the progress report, under late; a tumbling window has .late"
        )


class Difference(msgspec.Struct, frozen=True):
    """How one plan differs from another, by operator id."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def __str__(self) -> str:
        parts = [
            f"{word} {', '.join(map(repr, ids))}"
            for word, ids in (("added", self.added), ("removed", self.removed), ("changed", self.changed))
            if ids
        ]
        return "; ".join(parts) or "no difference"


def difference(old: Plan, new: Plan) -> Difference:
    """Work out what changed; slots and the pickled bytes of code do not count."""
    before = {operator.id: _fingerprint(operator) for operator in old.operators}
    after = {operator.id: _fingerprint(operator) for operator in new.operators}
    return Difference(
        added=tuple(id for id in after if id not in before),
        removed=tuple(id for id in before if id not in after),
        changed=tuple(id for id in after if id in before and before[id] != after[id]),
    )


def check_state_fits(old: Plan, new: Plan) -> None:
    """Refuse a new plan that would read the state of an operator under another key or other types."""
    known = {operator.id: operator for operator in old.of(Process, Aggregate)}
    for operator in new.of(Process, Aggregate):
        before = known.get(operator.id)
        if before is None:
            continue
        if type(before) is not type(operator) or before.keys != operator.keys:
            raise PlanError(
                f"operator {operator.id!r} has state by {', '.join(before.keys)} of a "
                f"{type(before).__name__.lower()}; the new plan makes it a {type(operator).__name__.lower()} by "
                f"{', '.join(operator.keys)}. Give the new operator another id, or start a new checkpoint"
            )
        if state_signature(before) != state_signature(operator) and not _is_older_form(before, operator):
            raise PlanError(
                f"the state of operator {operator.id!r} is {state_signature(before)}, the new plan declares "
                f"{state_signature(operator)}. Give ms.replace a migrate= function, give the new operator another id, "
                "or keep the declared state"
            )


def check_partitioning(old: Plan, new: Plan) -> None:
    """Refuse a new plan that would look for the state of an operator in other groups; a savepoint is dealt out anew."""
    known = {operator.id: operator.partition_by for operator in old.of(Process, Aggregate)}
    for operator in new.of(Process, Aggregate):
        before = known.get(operator.id, operator.partition_by)
        if before != operator.partition_by:
            raise PlanError(
                f"operator {operator.id!r} has its state partitioned by {before or 'its key'}, the new plan partitions "
                f"by {operator.partition_by or 'the key'}. Give the new operator another id, or write a savepoint and "
                "start from it"
            )


def _is_older_form(running: Keyed, operator: Keyed) -> bool:
    """Whether an operator reads a form of the state that the running one knows: one was migrated from the other."""
    if not isinstance(running, Process) or not isinstance(operator, Process):
        return False
    return _form(running) in _forms_before(operator) or _form(operator) in _forms_before(running)


def _form(operator: Process) -> tuple[int, tuple[StateField, ...]]:
    return operator.base, operator.state


def _forms_before(operator: Process) -> list[tuple[int, tuple[StateField, ...]]]:
    found, migration = [], operator.migration
    while migration is not None:
        found.append((migration.base, migration.state))
        migration = migration.before
    return found


def with_sinks_of(plan: Plan, script: Plan) -> Plan:
    """Take the sinks of the script where they are the same: one that was kept has lost its passwords."""
    live = {sink.id: sink for sink in script.of(Sink)}
    operators = []
    for operator in plan.operators:
        same = live.get(operator.id) if isinstance(operator, Sink) else None
        known = same is not None and same == msgspec.structs.replace(operator, code=same.code)
        operators.append(same if same is not None and known else operator)
    return msgspec.structs.replace(plan, operators=tuple(operators))


def inheriting(old: Plan, new: Plan) -> Plan:
    """Let operators of a new plan that declare the state they had read it where it lies, and as it was migrated."""
    known = {operator.id: operator for operator in old.of(Process)}
    operators = []
    for operator in new.operators:
        before = known.get(operator.id)
        if before is not None and isinstance(operator, Process) and _reads_plainly(operator, before):
            operator = msgspec.structs.replace(operator, base=before.base, migration=before.migration)
        operators.append(operator)
    return msgspec.structs.replace(new, operators=tuple(operators))


def _reads_plainly(operator: Process, before: Process) -> bool:
    is_new = operator.migration is None and operator.base == 0
    return is_new and state_signature(operator) == state_signature(before)


def state_signature(operator: Keyed) -> str:
    """Describe the stored form of an operator's state: two operators of one signature can read each other's."""
    if isinstance(operator, Process):
        return ", ".join(_field_signature(field) for field in operator.state)
    form = f"{operator.spec.kept_in}: " if isinstance(operator, Window) else ""
    return form + ", ".join(
        f"{a.name}: {a.function}({a.column}{''.join(f', {p}' for p in a.parameters)})" for a in operator.aggregates
    )


def _field_signature(field: StateField) -> str:
    kind = "value with ttl" if field.kind == "value" and field.ttl else field.kind  # it is stored with its expiry
    return " ".join(filter(None, (f"{field.name}:", kind, field.key_type, field.type)))


def _fingerprint(operator: AnyOperator) -> Any:
    def strip(plain: Any) -> Any:
        if isinstance(plain, dict):
            if "digest" in plain and "pickled" in plain:
                return plain["digest"]
            return {k: strip(v) for k, v in plain.items() if k not in ("slots", "owners", "homes")}
        if isinstance(plain, (list, tuple)):
            return [strip(each) for each in plain]
        return plain

    plain = msgspec.to_builtins(operator)
    if isinstance(operator, Process):
        plain["state"] = [repr(field) for field in operator.state]
        plain["migration"] = repr(operator.migration)
    if isinstance(operator, (Sink, Source)):
        plain.pop("code")  # a sink is known by its description, a source by its id and schema
    return strip(plain)
