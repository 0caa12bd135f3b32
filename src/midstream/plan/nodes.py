"""The nodes of a plan: one for each kind of operator, as plain data. `operators` says what a kind means.

Pure: no pyspark, no files, no clock. User code is held as `Code`; sources hold only their id and schema, because a
streaming DataFrame belongs to the session that made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import msgspec

from midstream.errors import PlanError
from midstream.plan import windows
from midstream.plan.code import Code
from midstream.plan.node import KeyedOperator, Operator, StateField, field_signature, register_node

if TYPE_CHECKING:
    from typing_extensions import Self

MOST_FIELDS = 230  # numbers of fields and records, over all forms that the state of an operator has had


class AggregateSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One output column of a declared aggregate: `name = function(column, *parameters)`."""

    name: str
    function: str
    column: str = ""
    parameters: tuple[float, ...] = ()
    type: str = ""  # DDL of the result, where the user gives it
    code: Code | None = None  # of a user-defined one


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """How state of an older form is converted to the newer one, when a key is used: a function of dictionaries."""

    code: Code
    state: tuple[StateField, ...]  # of the older form
    base: int  # where the older form's entries begin
    before: Migration | None = None  # an older form still


class Source(Operator, frozen=True, kw_only=True, tag="source"):
    """Where rows come from."""

    schema: str
    code: Code | None = None  # a function of the session that makes it; without one only the script can

    stands_alone: ClassVar[bool] = False
    is_replaceable: ClassVar[bool] = False

    def compared(self) -> dict[str, Any]:
        """Return id and schema, by which it is known."""
        return _without_code(self)


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

    is_replaceable: ClassVar[bool] = False
    is_optional_reader: ClassVar[bool] = True

    @property
    def brought(self) -> tuple[str, ...]:
        """The other streams."""
        return self.inputs


class Watermark(Operator, frozen=True, kw_only=True, tag="watermark"):
    """Declares the event-time column, and by how much the stream may be out of order."""

    column: str
    delay: int  # microseconds
    idle: int = 0  # microseconds without rows after which the others are not held back; 0: for ever
    ahead: int = 0  # microseconds that a row may be ahead of the clock; 0: any
    punctuation: str = ""  # SQL: a row for which it holds says that nothing before it follows

    @property
    def described(self) -> str:
        """The column."""
        return f"{self.kind_name} {self.column}"


class Process(KeyedOperator, frozen=True, kw_only=True, tag="process"):
    """A `KeyedFunction` over keyed rows."""

    code: Code
    schema: str  # DDL of what it yields; "": that of its input
    state: tuple[StateField, ...] = ()
    order_by: tuple[str, ...] = ()
    base: int = 0  # where the entries of this form of the state begin, see state/keyed.py
    migration: Migration | None = None
    shared: tuple[StateField, ...] = ()  # the state of groups; it is not migrated
    broadcast_order: tuple[str, ...] = msgspec.field(default=(), name="told_by")  # stored by its first name
    on_error: str = "fail"  # or "dead_letter"

    is_migratable: ClassVar[bool] = True

    @property
    def signature(self) -> str:
        """The declared state."""
        return ", ".join(map(field_signature, self.state))

    @property
    def streams(self) -> tuple[str, ...]:
        """The first input."""
        return self.inputs[:1]

    @property
    def brought(self) -> tuple[str, ...]:
        """Its input, and what is broadcast to it."""
        return self.inputs

    @property
    def codes(self) -> tuple[Code, ...]:
        """The function, and those that migrate its state."""
        return (self.code, *(each.code for each in self._migrations))

    @property
    def group_state(self) -> tuple[StateField, ...]:
        """State of groups, and state of all of them."""
        return self.shared

    @property
    def forms(self) -> tuple[tuple[int, tuple[StateField, ...]], ...]:
        """The declared one, and those that it was migrated from."""
        return (self.base, self.state), *((each.base, each.state) for each in self._migrations)

    @property
    def _migrations(self) -> Iterator[Migration]:
        migration = self.migration
        while migration is not None:
            yield migration
            migration = migration.before

    def compared(self) -> dict[str, Any]:
        """Return defaults of state too, which may not be plain data."""
        plain = msgspec.to_builtins(msgspec.structs.replace(self, state=(), shared=(), migration=None))
        fields = [repr(field) for field in (*self.state, *self.shared)]
        return {**plain, "state": fields, "migration": repr(self.migration)}

    def with_fields(self, convert: Callable[[StateField], StateField]) -> Self:
        """Convert those of older forms too."""

        def older(migration: Migration | None) -> Migration | None:
            if migration is None:
                return None
            state = tuple(map(convert, migration.state))
            return msgspec.structs.replace(migration, state=state, before=older(migration.before))

        return msgspec.structs.replace(
            self,
            state=tuple(map(convert, self.state)),
            shared=tuple(map(convert, self.shared)),
            migration=older(self.migration),
        )

    def migrated(self, before: Operator, code: Code) -> Self:
        """Keep how older forms are read."""
        if not isinstance(before, Process):
            return super().migrated(before, code)
        migration = Migration(code=code, state=before.state, base=before.base, before=before.migration)
        return msgspec.structs.replace(self, migration=migration)

    def inheriting(self, before: Operator) -> Self:
        """Read the state where it is."""
        is_new = self.migration is None and self.base == 0
        if isinstance(before, Process) and is_new and self.signature == before.signature:
            return msgspec.structs.replace(self, base=before.base, migration=before.migration)
        return self

    def placed(self, top: int) -> Self:
        """Put a migrated form after all others."""
        if self.migration is None or self.base:
            return self
        if top + len(self.state) > MOST_FIELDS:
            raise PlanError(
                f"the state of operator {self.id!r} has been migrated too often; write a savepoint, and start from it "
                "with a new checkpoint"
            )
        return msgspec.structs.replace(self, base=top)

    @property
    def broadcast(self) -> str | None:
        """The operator whose rows are broadcast to every group: the second input, if there is one."""
        return self.inputs[1] if len(self.inputs) > 1 else None


class Aggregate(KeyedOperator, frozen=True, kw_only=True, tag="aggregate"):
    """Declared aggregates over keyed rows."""

    aggregates: tuple[AggregateSpec, ...]

    @property
    def codes(self) -> tuple[Code, ...]:
        """Those of user-defined ones."""
        return tuple(spec.code for spec in self.aggregates if spec.code is not None)

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
        return windows.Session(self.gap) if self.gap else windows.TimeWindow(self.size, self.slide)


class Spread(Operator, frozen=True, kw_only=True, tag="spread"):
    """Each row once for every window that takes it, with the window's bounds, for a keyed function."""

    of: str  # the keyed function, whose watermark counts
    size: int  # microseconds
    slide: int

    stands_alone: ClassVar[bool] = False

    @property
    def spec(self) -> windows.TimeWindow:
        """Where the windows begin and end."""
        return windows.TimeWindow(self.size, self.slide)

    @property
    def lateness(self) -> int:
        """How long after its end a window takes rows: not at all, the function has emitted it."""
        return 0


class Late(Operator, frozen=True, kw_only=True, tag="late"):
    """The rows that the windows of an operator do not take, and why."""

    of: str


class Errors(Operator, frozen=True, kw_only=True, tag="errors"):
    """The rows and timers that the function of an operator has failed on, and why."""

    of: str

    stands_alone: ClassVar[bool] = False
    belongs_to_input: ClassVar[bool] = True


class Sink(Operator, frozen=True, kw_only=True, tag="sink"):
    """Where rows go."""

    code: Code
    describe: str

    @property
    def described(self) -> str:
        """The target."""
        return f"{self.kind_name}: {self.describe}"

    def compared(self) -> dict[str, Any]:
        """Return the description, by which it is known."""
        return _without_code(self)


def _without_code(operator: Source | Sink) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(operator)
    plain.pop("code")
    return plain


_Ours = Source | Transform | MapArrow | Union | Watermark | Process | Aggregate | Window | Spread | Late | Errors | Sink
AnyOperator = _Ours | KeyedOperator  # of other packages
for _node in get_args(_Ours):
    register_node(_node)
