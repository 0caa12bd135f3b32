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
from midstream.operators.functions.calls import Calls, GuardedCalls, Output
from midstream.operators.functions.declare import Context, KeyedFunction, TimerState
from midstream.operators.task import (
    GROUP,
    SLOT,
    SlotTask,
    Work,
)
from midstream.plan import code
from midstream.plan.code import Code
from midstream.plan.windows import BOUNDS
from midstream.spark.arrow_values import python_values
from midstream.state.entries import Stage, form_of
from midstream.state.keyed import GroupState
from midstream.state.keys import KeyCodec
from midstream.state.shared import SharedForms, SharedState
from midstream.state.timers import Timer
from midstream.state.values import moment_of

ORDER, TIE, BROADCAST = "_order", "_tie", "_broadcast"
_HIDDEN = {SLOT, GROUP, ORDER, TIE, BROADCAST}


@dataclass(frozen=True, slots=True)
class _Heard:
    """The rows of the broadcast stream in one epoch, the same for all groups."""

    rows: list[Any]
    time_at: int | None  # which column has their event time


_NOTHING = _Heard([], None)


@dataclass(frozen=True, slots=True)
class Told:
    """How the rows of the broadcast stream come: each once for every group."""

    order_by: tuple[str, ...]
    event_time: str | None

    def heard(self, rows: pa.RecordBatch, groups: npt.NDArray[np.int32]) -> _Heard:
        """Put the rows in order; those of one group stand for all."""
        if not rows.num_rows:
            return _NOTHING
        once = rows.column(BROADCAST).filter(pa.array(groups == groups.min()))
        found = pa.RecordBatch.from_struct_array(once)
        names = _names(found)
        ordered = found.take(pa.array(in_order(found, self.order_by)))
        return _Heard(list(_as_tuples(ordered)), names.index(self.event_time) if self.event_time in names else None)


@dataclass(frozen=True, slots=True)
class _NoTimers:
    """Timers belong to keys, and rows for every group have none."""

    operator: str

    def set(self, timer: Timer) -> None:
        raise StateError(f"on_broadcast of operator {self.operator!r}: a timer is set for a key, in process()")

    clear = set


@dataclass(frozen=True)
class FunctionTask(SlotTask):
    """Calls a `KeyedFunction` for every key of a slot that has rows or timers due."""

    code: Code
    stages: tuple[Stage, ...]  # the forms of the state, newest first
    order_by: tuple[str, ...]
    key_schema: bytes
    event_time: str | None = None  # the column that has it
    shared: Stage | None = None  # the state of groups
    told: Told | None = None  # every group gets the rows of another stream
    in_windows: bool = False  # rows come with the bounds of a window
    dead_letters: bool = False  # what it fails on is given out beside the rest; the schema has a column for it

    def work(
        self, work: Work, rows: pa.RecordBatch, groups: npt.NDArray[np.int32], owned: frozenset[int]
    ) -> list[pa.RecordBatch]:
        """Process the rows and timers of a slot."""
        function: KeyedFunction = code.load(self.code)
        form = form_of(self.operator, self.stages)
        codec = KeyCodec(pa.ipc.read_schema(pa.py_buffer(self.key_schema)))
        shared_forms = SharedForms(self.operator, self.shared) if self.shared is not None else None
        letters = DeadLetters(self.output_schema(), self.keys) if self.dead_letters else None
        output = Output(self.operator, self.output_schema() if letters is None else letters.output)
        heard, hearing = _NOTHING, frozenset[int]()  # what groups are told, and which
        if self.told is not None:
            is_told = rows.column(BROADCAST).is_valid().to_numpy(zero_copy_only=False)
            hearing = frozenset(groups[is_told].tolist())
            heard = self.told.heard(rows.filter(pa.array(is_told)), groups[is_told])
            rows, groups = rows.filter(pa.array(~is_told)), groups[~is_told]
        sorting = in_order(rows, self.order_by)
        names = _names(rows)
        time_at = names.index(self.event_time) if self.event_time in names else None
        rows, groups = rows.take(pa.array(sorting)), groups[sorting]
        arranged = codec.arrange([rows.column(key) for key in self.keys], groups)
        arrived = rows.take(pa.array(arranged.order))
        values = list(_as_tuples(arrived))
        keys = _python_keys(
            self.keys, [rows.column(k).take(pa.array(arranged.order[arranged.starts])) for k in self.keys]
        )
        edges = np.append(arranged.starts, len(values)).tolist()
        work.report.rows += len(values)
        work.report.keys += len(keys)
        work.lap("sort")
        spans = _spans(arranged.groups)
        for group in sorted({*spans, *(self.epoch.due & owned), *hearing}):
            store = work.cache.view(group)
            work.lap("apply")
            with store.reader() as reader:
                state = GroupState(form, reader, self.epoch.clock)
                context, shared = self._context(state, time_at), None
                if shared_forms is not None:
                    function._shared = shared = SharedState(shared_forms, reader, self.epoch.clock)
                    if group in hearing:
                        self._tell(function, shared, heard)
                function._state = state
                start, stop = spans.get(group, (0, 0))
                state.prefetch(arranged.keys[start:stop])
                if group in self.epoch.due and form.expires:
                    state.expire()
                work.lap("read")
                calls = Calls(function, state, context, output)
                if letters is not None:
                    calls = GuardedCalls(function, state, context, output, shared, letters, arrived)
                calls.process(range(start, stop), arranged.keys, keys, values, edges)
                if due := state.take_due(self.epoch.watermark):
                    calls.fire(due, _python_keys(self.keys, codec.decode([key for key, _ in due])))
                if isinstance(calls, GuardedCalls):
                    work.report.succeeded += calls.succeeded
                function._state = function._shared = None
                work.lap("process")
                changes = state.changes if shared is None else state.changes | shared.changes()
                log_changes(work, group, changes)
                work.report.deadlines[group] = state.next_deadlines()
                work.lap("log")
        batches = output.batches()
        if letters is not None:
            work.report.errors += len(letters)
            batches = [*map(letters.beside, batches), *letters.taken()]
        work.lap("emit")
        return batches

    def latest(self, rows: pa.RecordBatch) -> int | None:
        """The start of the latest window."""
        return pc.max(rows.column(BOUNDS[0]).cast(pa.int64())).as_py() if self.in_windows else None

    def _tell(self, function: KeyedFunction, shared: SharedState, heard: _Heard) -> None:
        """Let a group hear what all are told."""
        shared.receiving = True
        hears: Callable[..., object] = function.on_broadcast
        gave = hears(heard.rows, self._context(_NoTimers(self.operator), heard.time_at))
        shared.receiving = False
        if gave is not None:
            raise SchemaError(
                f"on_broadcast of operator {self.operator!r} gave {type(gave).__name__}: it is called for every group, "
                "and gives nothing out. Write no yield or return in it, and give rows out in process()"
            )

    def _context(self, state: TimerState, time_at: int | None) -> Context:
        epoch = self.epoch
        watermark = None if epoch.watermark is None else moment_of(epoch.watermark)
        seed = f"{epoch.seed}/{self.operator}"
        return Context(epoch.epoch, moment_of(epoch.clock), watermark, seed, state, time_at)


def in_order(rows: pa.RecordBatch, order_by: tuple[str, ...]) -> npt.NDArray[np.intp]:
    """Return the numbers of rows in the order in which they count: by some columns or event time, then by a hash."""
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
