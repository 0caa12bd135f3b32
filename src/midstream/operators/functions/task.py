"""The slot's task of a keyed function: the user's `process` and `on_timer`, key by key, in a deterministic order."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from midstream.errors import SchemaError, StateError
from midstream.operators.dead_letters import DeadLetters
from midstream.operators.functions.calls import Calls, GuardedCalls, YieldedRows
from midstream.operators.functions.declare import Context, KeyedFunction, TimerState
from midstream.operators.task import GROUP, SLOT, SlotTask, Work
from midstream.plan import code
from midstream.plan.code import Code
from midstream.plan.windows import BOUNDS
from midstream.spark.arrow_values import python_values
from midstream.state.entries import Stage, form_of
from midstream.state.expiry import expire
from midstream.state.keyed import GroupState
from midstream.state.keys import KeyCodec
from midstream.state.shared import SharedForms, SharedState
from midstream.state.stores.contract import Reader
from midstream.state.timers import Timer
from midstream.state.values import moment_of

ORDER, TIE, BROADCAST = "_order", "_tie", "_broadcast"
_HIDDEN = {SLOT, GROUP, ORDER, TIE, BROADCAST}


@dataclass(frozen=True, slots=True)
class _BroadcastRows:
    """The rows of the broadcast stream in one epoch, the same for all groups."""

    rows: list[Any]
    time_at: int | None  # which column has their event time
    groups: frozenset[int] = frozenset()  # that get them


_NOTHING = _BroadcastRows([], None)


@dataclass(frozen=True, slots=True)
class BroadcastForm:
    """How the rows of the broadcast stream come: each once for every group."""

    order_by: tuple[str, ...]
    event_time: str | None

    def ordered(self, rows: pa.RecordBatch, groups: npt.NDArray[np.int32]) -> _BroadcastRows:
        """Put the rows in order; those of one group stand for all."""
        if not rows.num_rows:
            return _NOTHING
        once = rows.column(BROADCAST).filter(pa.array(groups == groups.min()))
        found = pa.RecordBatch.from_struct_array(once)
        names = _names(found)
        ordered = found.take(pa.array(in_order(found, self.order_by)))
        time_at = names.index(self.event_time) if self.event_time in names else None
        return _BroadcastRows(list(_as_tuples(ordered)), time_at, frozenset(groups.tolist()))


@dataclass(frozen=True, slots=True)
class _NoTimers:
    """Timers belong to keys, and rows for every group have none."""

    operator: str

    def set(self, timer: Timer) -> None:
        raise StateError(f"on_broadcast of operator {self.operator!r}: a timer is set for a key, in process()")

    clear = set


@dataclass(frozen=True, slots=True)
class _Arrived:
    """The rows of a slot, by group and key, in their order."""

    rows: pa.RecordBatch
    values: list[Any]  # the same rows, as the function sees them
    keys: list[Any]  # as the function sees them
    encoded: list[bytes]  # the same keys
    edges: list[int]  # where the rows of each key begin, and where those of the last one end
    spans: dict[int, tuple[int, int]]  # group -> where its keys begin and end
    time_at: int | None  # which column has the event time


class _Tools:
    """What a slot works with, made once for all its groups."""

    def __init__(self, task: FunctionTask) -> None:
        self.function: KeyedFunction = code.load(task.code)
        self.form = form_of(task.operator, task.stages)
        self.codec = KeyCodec(pa.ipc.read_schema(pa.py_buffer(task.key_schema)))
        self.shared = SharedForms(task.operator, task.shared) if task.shared is not None else None
        schema = task.output_schema()
        self.letters = DeadLetters(schema, task.keys) if task.dead_letters else None
        self.output = YieldedRows(task.operator, schema if self.letters is None else self.letters.output)

    def calls(self, state: GroupState, shared: SharedState | None, context: Context, rows: pa.RecordBatch) -> Calls:
        """Call the function for one group; what it fails on is put aside, if that is wanted."""
        if self.letters is None:
            return Calls(self.function, state, context, self.output)
        return GuardedCalls(self.function, state, context, self.output, shared, self.letters, rows)


@dataclass(frozen=True)
class FunctionTask(SlotTask):
    """Calls a `KeyedFunction` for every key of a slot that has rows or timers due."""

    code: Code
    stages: tuple[Stage, ...]  # the forms of the state, newest first
    order_by: tuple[str, ...]
    key_schema: bytes
    event_time: str | None = None  # the column that has it
    shared: Stage | None = None  # the state of groups
    broadcast: BroadcastForm | None = None  # every group gets the rows of another stream
    in_windows: bool = False  # rows come with the bounds of a window
    dead_letters: bool = False  # what it fails on is emitted beside the rest; the schema has a column for it

    def work(
        self, work: Work, rows: pa.RecordBatch, groups: npt.NDArray[np.int32], owned: frozenset[int]
    ) -> list[pa.RecordBatch]:
        """Process the rows and timers of a slot."""
        tools = _Tools(self)
        broadcast, rows, groups = self._broadcast_rows(rows, groups)
        arrived = self._arrived(work, tools.codec, rows, groups)
        work.report.rows += len(arrived.values)
        work.lap("sort")
        for group in sorted({*arrived.spans, *(self.epoch.due & owned), *broadcast.groups}):
            store = work.cache.view(group)
            work.lap("apply")
            with store.reader() as reader:
                self._process(work, group, reader, tools, arrived, broadcast)
        batches = tools.output.batches()
        if tools.letters is not None:
            work.report.errors += len(tools.letters)
            batches = [*map(tools.letters.beside, batches), *tools.letters.taken()]
        work.lap("emit")
        return batches

    def _broadcast_rows(
        self, rows: pa.RecordBatch, groups: npt.NDArray[np.int32]
    ) -> tuple[_BroadcastRows, pa.RecordBatch, npt.NDArray[np.int32]]:
        """Separate the broadcast rows from the rows of keys."""
        if self.broadcast is None:
            return _NOTHING, rows, groups
        is_broadcast = rows.column(BROADCAST).is_valid().to_numpy(zero_copy_only=False)
        broadcast = self.broadcast.ordered(rows.filter(pa.array(is_broadcast)), groups[is_broadcast])
        return broadcast, rows.filter(pa.array(~is_broadcast)), groups[~is_broadcast]

    def _arrived(self, work: Work, codec: KeyCodec, rows: pa.RecordBatch, groups: npt.NDArray[np.int32]) -> _Arrived:
        """Sort rows, and arrange them by group and key."""
        sorting = in_order(rows, self.order_by)
        names = _names(rows)
        rows, groups = rows.take(pa.array(sorting)), groups[sorting]
        columns = [rows.column(key) for key in self.keys]
        arranged = codec.arrange(columns, groups)
        work.count_keys(columns, arranged)
        firsts = pa.array(arranged.order[arranged.starts])
        keys = _python_keys(self.keys, [column.take(firsts) for column in columns])
        rows = rows.take(pa.array(arranged.order))
        edges = np.append(arranged.starts, rows.num_rows).tolist()
        time_at = names.index(self.event_time) if self.event_time in names else None
        return _Arrived(rows, list(_as_tuples(rows)), keys, arranged.keys, edges, _spans(arranged.groups), time_at)

    def _process(
        self, work: Work, group: int, reader: Reader, tools: _Tools, arrived: _Arrived, broadcast: _BroadcastRows
    ) -> None:
        """Process the rows and timers of a group, and log what has changed."""
        function, clock = tools.function, self.epoch.clock
        state, shared = GroupState(tools.form, reader, clock), None
        if tools.shared is not None:
            function._shared = shared = SharedState(tools.shared, reader, clock)
            if group in broadcast.groups:
                self._receive(function, shared, broadcast)
        function._state = state
        start, stop = arrived.spans.get(group, (0, 0))
        state.prefetch(arrived.encoded[start:stop])
        if group in self.epoch.due and tools.form.expires:
            expire(state)
        work.lap("read")
        calls = tools.calls(state, shared, self._context(state, arrived.time_at), arrived.rows)
        calls.process(range(start, stop), arrived.encoded, arrived.keys, arrived.values, arrived.edges)
        if due := state.take_due(self.epoch.watermark):
            calls.fire(due, _python_keys(self.keys, tools.codec.decode([key for key, _ in due])))
        work.report.succeeded += calls.succeeded
        function._state = function._shared = None
        work.lap("process")
        log_changes(work, group, state.changes if shared is None else state.changes | shared.changes())
        work.report.deadlines[group] = state.next_deadlines()
        work.lap("log")

    def latest(self, rows: pa.RecordBatch) -> int | None:
        """The start of the latest window."""
        return pc.max(rows.column(BOUNDS[0]).cast(pa.int64())).as_py() if self.in_windows else None

    def _receive(self, function: KeyedFunction, shared: SharedState, broadcast: _BroadcastRows) -> None:
        """Let a group receive the broadcast rows."""
        shared.receiving = True
        receives: Callable[..., object] = function.on_broadcast
        gave = receives(broadcast.rows, self._context(_NoTimers(self.operator), broadcast.time_at))
        shared.receiving = False
        if gave is not None:
            raise SchemaError(
                f"on_broadcast of operator {self.operator!r} returned {type(gave).__name__}: it is called for every "
                "group, and emits nothing. Write no yield or return in it, and emit rows in process()"
            )

    def _context(self, state: TimerState, time_at: int | None) -> Context:
        epoch = self.epoch
        watermark = None if epoch.watermark is None else moment_of(epoch.watermark)
        seed = f"{epoch.seed}/{self.operator}"
        return Context(epoch.epoch, moment_of(epoch.clock), watermark, seed, state, time_at)


def in_order(rows: pa.RecordBatch, order_by: tuple[str, ...]) -> npt.NDArray[np.intp]:
    """Return the numbers of rows in their order: by some columns or event time, then by a hash."""
    if order_by:
        table = pa.Table.from_batches([rows])
        keys = [(name, "ascending") for name in (*order_by, TIE)]
        return pc.sort_indices(table, sort_keys=keys).to_numpy()  # type: ignore[no-any-return]
    tie = rows.column(TIE).to_numpy()
    return np.lexsort((tie, rows.column(ORDER).to_numpy()) if ORDER in rows.schema.names else (tie,))


def log_changes(work: Work, group: int, changes: dict[bytes, bytes | None]) -> None:
    """Log what has changed in the state of a group."""
    if changes:
        entries = sorted(changes)
        work.log.add(group, entries, [changes[entry] for entry in entries])


def _spans(groups: npt.NDArray[np.int32]) -> dict[int, tuple[int, int]]:
    """Where the keys of each group begin and end."""
    edges = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]
    return {int(groups[a]): (a, b) for a, b in pairwise(edges) if b > a}


def _names(rows: pa.RecordBatch) -> list[str]:
    """The columns that the user knows."""
    return [name for name in rows.schema.names if name not in _HIDDEN]


def _as_tuples(rows: pa.RecordBatch) -> Iterator[Any]:
    names = _names(rows)
    row = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    made = partial(tuple.__new__, row)  # what its `_make` does, without a call into Python for each row
    return map(made, zip(*(python_values(rows.column(name)) for name in names), strict=True))


def _python_keys(names: tuple[str, ...], columns: list[pa.Array]) -> list[Any]:
    """A key of one column is its value, a key of several a named tuple."""
    if len(names) == 1:
        return python_values(columns[0])
    key = namedtuple("Key", names, rename=True)  # type: ignore[misc]
    return list(map(key._make, zip(*map(python_values, columns), strict=True)))
