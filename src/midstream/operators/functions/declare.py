"""Keyed functions: what a user writes to process the rows of one key, and the state it declares.

State is declared as class attributes, typed by a DDL type string, and belongs to the operator's id: another class
under the same id finds it again. While a key is processed the attributes read and write that key's state, or, where
another scope is declared, the state that all keys of its group share.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from midstream.durations import Duration, micros
from midstream.errors import StateError
from midstream.plan.plan import BROADCAST, GROUP, KEY
from midstream.state.timers import Timer

if TYPE_CHECKING:
    from midstream.plan.plan import StateField


class KeyState(Protocol):
    """What a declared attribute needs from the engine: the state of the current key."""

    def read(self, name: str) -> Any:
        """Return a value, a list or a map."""
        ...

    def write(self, name: str, value: Any) -> None:
        """Replace it."""
        ...


class StateDeclaration:
    """The common part of `value`, `list_of` and `map_of`: a typed, named piece of state with an optional TTL."""

    kind: str
    name: str = ""
    scope: str = KEY

    def __init__(self, type: str, *, ttl: Duration | None = None) -> None:
        self.type = type
        self.ttl = micros(ttl) if ttl is not None else 0

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: KeyedFunction | None, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return (instance._state or instance.bound_state(self.name)).read(self.name)

    def __set__(self, instance: KeyedFunction, value: Any) -> None:
        (instance._state or instance.bound_state(self.name)).write(self.name, value)


class ValueState(StateDeclaration):
    """One value per key."""

    kind = "value"

    def __init__(self, type: str, *, default: Any = None, ttl: Duration | None = None) -> None:
        super().__init__(type, ttl=ttl)
        if isinstance(default, (list, dict, set)):
            raise StateError("the default of a value state must be immutable; use list or map state instead")
        self.default = default


class ListState(StateDeclaration):
    """A list per key: append, iterate, `len`, index, `clear`; assign an iterable to replace it."""

    kind = "list"


class MapState(StateDeclaration):
    """A map per key: each entry is stored, read and expired on its own."""

    kind = "map"

    def __init__(self, key_type: str, type: str, *, ttl: Duration | None = None) -> None:
        super().__init__(type, ttl=ttl)
        self.key_type = key_type


class SharedDeclaration(StateDeclaration):
    """A value, list or map that is not of one key, but of all keys of a group, or of all groups."""

    def __init__(self, declared: StateDeclaration, scope: str) -> None:
        if scope not in (GROUP, BROADCAST):
            raise StateError(f"the scope of state is {KEY!r}, {GROUP!r} or {BROADCAST!r}, not {scope!r}")
        if declared.ttl:
            raise StateError(f"state with scope={scope!r} has no ttl: delete from it what is no longer needed")
        super().__init__(declared.type)
        self.kind, self.scope = declared.kind, scope
        self.key_type, self.default = getattr(declared, "key_type", ""), getattr(declared, "default", None)

    def __get__(self, instance: KeyedFunction | None, owner: type | None = None) -> Any:
        return self if instance is None else instance.bound_shared(self.name).read(self.name)

    def __set__(self, instance: KeyedFunction, value: Any) -> None:
        instance.bound_shared(self.name).write(self.name, value)


def value(type: str, *, default: Any = None, ttl: Duration | None = None, scope: str = KEY) -> Any:
    """Declare one value per key, e.g. `total = ms.value("double", default=0.0)`.

    `scope="group"`: one for all keys of a key-group; `scope="broadcast"`: one for all keys, see `on_broadcast`.
    """
    return _scoped(ValueState(type, default=default, ttl=ttl), scope)


def list_of(type: str, *, ttl: Duration | None = None, scope: str = KEY) -> Any:
    """Declare a list per key, e.g. `recent = ms.list("long")`; `scope` as for a value."""
    return _scoped(ListState(type, ttl=ttl), scope)


def map_of(key_type: str, type: str, *, ttl: Duration | None = None, scope: str = KEY) -> Any:
    """Declare a map per key, e.g. `seen = ms.map("string", "long", ttl="1 day")`; `scope` as for a value."""
    return _scoped(MapState(key_type, type, ttl=ttl), scope)


def _scoped(declared: StateDeclaration, scope: str) -> StateDeclaration:
    return declared if scope == KEY else SharedDeclaration(declared, scope)


class TimerState(Protocol):
    """What a context needs from the engine to keep timers."""

    def set(self, timer: Timer) -> None:
        """Set a timer of the current key."""
        ...

    def clear(self, timer: Timer) -> None:
        """Forget one."""
        ...


class Context:
    """What a keyed function may know and do besides its state, the same in every replay of an epoch.

    Promised: `epoch`, `now`, `watermark` and `random` are functions of what was journalled before the epoch ran.
    Not promised: `now` is the epoch's clock, not the wall clock of the executor.
    """

    __slots__ = ("_random", "_seed", "_time_at", "_timers", "epoch", "key", "now", "watermark")

    def __init__(
        self,
        epoch: int,
        now: datetime,
        watermark: datetime | None,
        seed: str,
        timers: TimerState,
        time_at: int | None = None,  # which column of a row has its event time
    ) -> None:
        self.epoch = epoch
        self.now = now
        self.watermark = watermark
        self.key: Any = None
        self._seed = seed
        self._timers = timers
        self._time_at = time_at
        self._random: tuple[Any, random.Random] | None = None

    @property
    def random(self) -> random.Random:
        """A generator seeded by epoch and key, the same one during all calls for the key."""
        if self._random is None or self._random[0] != self.key:
            self._random = (self.key, random.Random(f"{self._seed}/{self.key!r}"))
        return self._random[1]

    @property
    def has_event_time(self) -> bool:
        """Whether rows have an event time: there is a `with_watermark` above, and its column is still there."""
        return self._time_at is not None

    def event_time(self, row: Any) -> datetime | None:
        """Return the event time of a row, `None` if it has none."""
        return None if self._time_at is None else row[self._time_at]

    def set_event_timer(self, at: datetime) -> None:
        """Call `on_timer` once the watermark has reached `at`; setting the same timer twice is setting it once."""
        self._timers.set(Timer("event_time", at))

    def set_processing_timer(self, at: datetime) -> None:
        """Call `on_timer` in the first epoch whose clock has reached `at`."""
        self._timers.set(Timer("processing_time", at))

    def clear_event_timer(self, at: datetime) -> None:
        """Forget an event-time timer, if it is set."""
        self._timers.clear(Timer("event_time", at))

    def clear_processing_timer(self, at: datetime) -> None:
        """Forget a processing-time timer, if it is set."""
        self._timers.clear(Timer("processing_time", at))


class KeyedFunction:
    """Process the rows of one key at a time, with state.

    Promised: in an epoch `process` is called once per key that has rows, with its rows in a deterministic order
    (event time, then a stable tie-break), before `on_timer` is called for the timers that are due. State written
    is kept if and only if the epoch commits.
    Not promised: attributes other than declared state do not outlive an epoch.

    Example: a running total per key.

        class Total(ms.KeyedFunction):
            total = ms.value("double", default=0.0)

            def process(self, key, rows, ctx):
                self.total += sum(row.price for row in rows)
                yield key, self.total
    """

    _state: KeyState | None = None
    _shared: KeyState | None = None

    def process(self, key: Any, rows: list[Any], ctx: Context) -> Iterable[tuple[Any, ...]] | None:
        """Handle this epoch's rows of a key; yield output rows as tuples."""
        raise NotImplementedError(f"{type(self).__name__} has no process(key, rows, ctx) method")

    def on_timer(self, key: Any, timer: Timer, ctx: Context) -> Iterable[tuple[Any, ...]] | None:
        """Handle a timer that is due; yield output rows as tuples."""
        return None

    def on_broadcast(self, rows: list[Any], ctx: Context) -> None:
        """Take this epoch's rows of the stream in `process(..., broadcast=...)`, before any key of the epoch.

        Promised: each key-group gets all rows, in one order: event time, or `order_by`, then a stable tie-break.
        It is called once for each group, and may write state with `scope="broadcast"`, and nothing else: what it does
        must depend on these rows and that state alone, so that the copies stay equal.
        """
        raise NotImplementedError(f"{type(self).__name__} has no on_broadcast(rows, ctx) method")

    def bound_shared(self, name: str) -> KeyState:
        """Return the state of the current group; only the engine binds it."""
        if self._shared is None:
            raise StateError(
                f"{type(self).__name__}.{name} was read outside process(), on_timer() and on_broadcast(): state exists "
                "only while rows are being processed"
            )
        return self._shared

    def bound_state(self, name: str) -> KeyState:
        """Return the state of the current key; only the engine binds it."""
        if self._state is None:
            raise StateError(
                f"{type(self).__name__}.{name} was read outside process() or on_timer(): "
                "state of a key exists only while it is being processed"
            )
        return self._state

    @classmethod
    def declarations(cls) -> dict[str, StateDeclaration]:
        """List the declared state by name, base classes first, in the order of declaration."""
        found: dict[str, StateDeclaration] = {}
        for base in reversed(cls.__mro__):
            found.update((n, d) for n, d in vars(base).items() if isinstance(d, StateDeclaration))
        return found

    def declared(self) -> dict[str, StateDeclaration]:
        """List the state of this one function; a function whose types are known only per instance overrides it."""
        return type(self).declarations()


def state_fields(function: KeyedFunction) -> tuple[StateField, ...]:
    """Describe a function's declared state as plain data for the plan."""
    from midstream.plan.plan import StateField

    return tuple(
        StateField(
            name=name,
            kind=declared.kind,
            type=declared.type,
            key_type=getattr(declared, "key_type", ""),
            default=getattr(declared, "default", None),
            ttl=declared.ttl,
            scope=declared.scope,
        )
        for name, declared in function.declared().items()
    )
