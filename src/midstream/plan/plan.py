"""A flow in its frozen, versioned form: plain data that can be compared, kept and shown.

Pure: no pyspark, no files, no clock. User code is held as `Code`; sources hold only their id and schema, because a
streaming DataFrame belongs to the session that made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard, get_args

import msgspec

from midstream.errors import PlanError
from midstream.plan import windows
from midstream.plan.code import Code

KEY, GROUP, BROADCAST = "key", "group", "broadcast"  # whose state it is; that of `BROADCAST` is alike in all groups


class StateField(msgspec.Struct, frozen=True, kw_only=True):
    """One declared piece of state of a keyed operator."""

    name: str
    kind: str  # value | list | map | accumulator
    type: str  # DDL
    key_type: str = ""  # of a map
    default: Any = None
    ttl: int = 0  # microseconds, 0: for ever
    scope: str = "key"  # key | group | broadcast


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


def field_signature(field: StateField) -> str:
    """Return the stored form of a declared piece of state."""
    kind = "value with ttl" if field.kind == "value" and field.ttl else field.kind  # it is stored with its expiry
    return " ".join(filter(None, (f"{field.name}:", kind, field.key_type, field.type)))


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
    on_error: str = "fail"  # or "dead_letter"


class Union(Operator, frozen=True, kw_only=True, tag="union"):
    """The rows of several streams of one schema."""


class Watermark(Operator, frozen=True, kw_only=True, tag="watermark"):
    """Declares the event-time column, and by how much the stream may be out of order."""

    column: str
    delay: int  # microseconds
    idle: int = 0  # microseconds without rows after which the others are not held back; 0: for ever
    ahead: int = 0  # microseconds that a row may be ahead of the clock; 0: any
    punctuation: str = ""  # SQL: a row for which it holds says that nothing before it follows


class KeyedOperator(Operator, frozen=True, kw_only=True):
    """An operator with state: its rows have a key, and its groups have slots."""

    keys: tuple[str, ...]
    partition_by: str = ""  # SQL over the key: keys for which it is equal are in one group; "": the key itself
    slots: int = 0  # 0: as many as the cluster has cores
    asked: int | None = None  # slots that the script asks for, where the operator was rescaled since
    owners: tuple[int, ...] = ()  # group -> slot, on one host; none: dealt out in turn
    homes: tuple[str, ...] = ()  # group -> executor, on a cluster; none: spread evenly

    @property
    def signature(self) -> str:
        """The stored form of the state: two operators of one signature can read each other's."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its state is")


class Process(KeyedOperator, frozen=True, kw_only=True, tag="process"):
    """A `KeyedFunction` over keyed rows."""

    code: Code
    schema: str  # DDL of what it yields; "": that of its input
    state: tuple[StateField, ...] = ()
    order_by: tuple[str, ...] = ()
    base: int = 0  # where the entries of this form of the state begin, see state/keyed.py
    migration: Migration | None = None
    shared: tuple[StateField, ...] = ()  # the state of groups; it is not migrated
    told_by: tuple[str, ...] = ()  # the order of the rows that every group is told
    on_error: str = "fail"  # or "dead_letter"

    @property
    def signature(self) -> str:
        """The declared state."""
        return ", ".join(map(field_signature, self.state))

    @property
    def told(self) -> str | None:
        """The operator whose rows every group is told: the second input, if there is one."""
        return self.inputs[1] if len(self.inputs) > 1 else None


class Aggregate(KeyedOperator, frozen=True, kw_only=True, tag="aggregate"):
    """Declared aggregates over keyed rows."""

    aggregates: tuple[AggregateSpec, ...]

    @property
    def signature(self) -> str:
        """The accumulators."""
        return ", ".join(
            f"{a.name}: {a.function}({a.column}{''.join(f', {p}' for p in a.parameters)})" for a in self.aggregates
        )


class Window(Aggregate, frozen=True, kw_only=True, tag="window"):
    """Declared aggregates over the rows of a key, or of all, in each window of event time."""

    size: int  # microseconds; 0: a session
    slide: int
    gap: int = 0  # of sessions
    lateness: int = 0  # how long after its end a window takes rows
    emit: str = "watermark"  # or "update"
    punctuation: str = ""  # SQL: a row for which it holds ends the windows of its key that it is in

    @property
    def signature(self) -> str:
        """The accumulators, and what they are kept by."""
        return f"{self.spec.kept_in}: {super().signature}"

    @property
    def of(self) -> str:
        """The operator whose watermark counts: itself."""
        return self.id

    @property
    def is_session(self) -> bool:
        """Whether windows last as long as rows follow each other."""
        return self.gap > 0

    @property
    def spec(self) -> windows.AnyWindow:
        """Where the windows begin and end."""
        return windows.Session(self.gap) if self.gap else windows.Window(self.size, self.slide)


class Spread(Operator, frozen=True, kw_only=True, tag="spread"):
    """Each row once for every window that takes it, with the window's bounds, for a keyed function."""

    of: str  # the keyed function, whose watermark counts
    size: int  # microseconds
    slide: int

    @property
    def spec(self) -> windows.Window:
        """Where the windows begin and end."""
        return windows.Window(self.size, self.slide)

    @property
    def lateness(self) -> int:
        """How long after its end a window takes rows: the function has given it out."""
        return 0


class Late(Operator, frozen=True, kw_only=True, tag="late"):
    """The rows that the windows of an operator do not take, and why."""

    of: str


class Errors(Operator, frozen=True, kw_only=True, tag="errors"):
    """The rows and timers that the function of an operator has failed on, and why."""

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
    standbys: int | None = None


_NODES: dict[str, type[Operator]] = {}  # tag -> the node that plan files hold under it


def register_node(node: type[Operator]) -> None:
    """Let plans hold a node, also one that is defined elsewhere; its tag must be its own, for good."""
    tag = str(node.__struct_config__.tag)
    if _NODES.setdefault(tag, node).__qualname__ != node.__qualname__:
        raise PlanError(f"the tag {tag!r} of {node.__name__} is taken by {_NODES[tag].__name__}")
    _NODES[tag] = node


def node_of(tag: str) -> type[Operator]:
    """Return the node of a tag."""
    if tag not in _NODES:
        raise PlanError(
            f"the plan has an operator of kind {tag!r}, which nobody has registered: import the package that defines "
            "it before the job is started"
        )
    return _NODES[tag]


_Ours = Source | Transform | MapArrow | Union | Watermark | Process | Aggregate | Window | Spread | Late | Errors | Sink
AnyOperator = _Ours | KeyedOperator  # of other packages
for _node in get_args(_Ours):
    register_node(_node)


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
        """List the operators that read the output of `id`, as often as they do."""
        return [operator for operator in self.operators for input in operator.inputs if input == id]

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
    if isinstance(operator, KeyedOperator):
        return f"{kind} by {', '.join(operator.keys)}" if operator.keys else kind
    if isinstance(operator, Sink):
        return f"{kind}: {operator.describe}"
    return f"{kind} {operator.column}" if isinstance(operator, Watermark) else kind


def codes(plan: Plan) -> Iterator[Code]:
    """List all code in a plan."""
    for operator in plan.operators:
        if isinstance(operator, (Source, Transform, MapArrow, Process, Sink)) and operator.code is not None:
            yield operator.code
        if isinstance(operator, Aggregate):
            yield from (spec.code for spec in operator.aggregates if spec.code is not None)
        migration = operator.migration if isinstance(operator, Process) else None
        while migration is not None:
            yield migration.code
            migration = migration.before


def code_keys(plan: Plan) -> set[str]:
    """List the keys of all code in a plan."""
    return {code.key for code in codes(plan)}


def gives_errors(operator: AnyOperator) -> TypeGuard[Process | MapArrow]:
    """Whether rows that the function of an operator fails on are put aside."""
    return isinstance(operator, (Process, MapArrow)) and operator.on_error == "dead_letter"


def in_order(wanted: Sequence[AnyOperator]) -> tuple[AnyOperator, ...]:
    """Put operators behind their inputs, otherwise as they stand; what reads itself in a circle is refused."""
    found: list[AnyOperator] = []
    rest, waiting = list(wanted), {operator.id for operator in wanted}
    while rest:
        ready = next((operator for operator in rest if not waiting.intersection(operator.inputs)), None)
        if ready is None:
            raise PlanError(f"the operators {', '.join(repr(o.id) for o in rest)} read each other in a circle")
        found.append(ready)
        rest.remove(ready)
        waiting.discard(ready.id)
    return tuple(found)


def is_session(operator: AnyOperator) -> TypeGuard[Window]:
    """Whether an operator has windows that last as long as rows follow each other."""
    return isinstance(operator, Window) and operator.is_session


def windows_of(plan: Plan, id: str) -> Window | Spread | None:
    """The windows of event time that a keyed operator has; they may be another operator, before it."""
    return next((operator for operator in plan.of(Window, Spread) if operator.of == id), None)


def windows_late_for(plan: Plan, late: Late) -> Window | Spread:
    """The windows whose late rows these are; refuses those of what has none."""
    found = windows_of(plan, late.of)
    if found is None:
        raise PlanError(
            f"{late.id!r} are the late rows of {late.of!r}, which has no windows of event time in this plan"
        )
    return found
