"""The calls of a keyed function for one group, key by key, and what it yields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from midstream.errors import SchemaError
from midstream.operators.dead_letters import DeadLetters
from midstream.operators.functions.declare import Context, KeyedFunction
from midstream.operators.task import OF_THE_HOST
from midstream.state.keyed import GroupState
from midstream.state.shared import SharedState
from midstream.state.timers import Timer
from midstream.state.values import micros_of

_CHUNK = 1 << 16


class Calls:
    """Calls a function; what it raises is raised."""

    succeeded = 0  # calls, counted where others may fail

    def __init__(self, function: KeyedFunction, state: GroupState, context: Context, output: YieldedRows) -> None:
        self._function, self._state, self._context, self._output = function, state, context, output

    def process(
        self, numbers: range, encoded: Sequence[bytes], keys: Sequence[Any], rows: list[Any], edges: Sequence[int]
    ) -> None:
        """Process the rows of some keys; those of key `i` begin at `edges[i]`."""
        function, state, context, output = self._function, self._state, self._context, self._output
        for i in numbers:
            state.bind(encoded[i])
            context.key = key = keys[i]
            output.add(function.process(key, rows[edges[i] : edges[i + 1]], context))
            state.release()

    def fire(self, due: Sequence[tuple[bytes, Timer]], keys: Sequence[Any]) -> None:
        """Fire timers."""
        for (encoded, timer), key in zip(due, keys, strict=True):
            self._state.bind(encoded)
            self._context.key = key
            self._output.add(self._function.on_timer(key, timer, self._context))
            self._state.release()


class GuardedCalls(Calls):
    """Calls a function so that a call which raises leaves no trace: its rows, or its timer, are put aside.

    Promised: state of the key and of its group, timers and output are as before the call. A call that yields rows which
    do not fit the schema has failed too. Not promised: other attributes of the function, and anything outside it.
    """

    def __init__(
        self,
        function: KeyedFunction,
        state: GroupState,
        context: Context,
        output: YieldedRows,
        shared: SharedState | None,
        letters: DeadLetters,
        arrived: pa.RecordBatch,
    ) -> None:
        super().__init__(function, state, context, output)
        self._states: list[GroupState | SharedState] = [state] if shared is None else [state, shared]
        self._letters, self._arrived = letters, arrived

    def process(
        self, numbers: range, encoded: Sequence[bytes], keys: Sequence[Any], rows: list[Any], edges: Sequence[int]
    ) -> None:
        """Process the rows of some keys, or put them aside."""
        for i in numbers:
            first, last = edges[i], edges[i + 1]
            error = self._error_of(encoded[i], keys[i], self._function.process, rows[first:last])
            if error is not None:
                self._letters.add(error, self._arrived.slice(first, last - first))

    def fire(self, due: Sequence[tuple[bytes, Timer]], keys: Sequence[Any]) -> None:
        """Fire timers, or put them aside."""
        for (encoded, timer), key in zip(due, keys, strict=True):
            error = self._error_of(encoded, key, self._function.on_timer, timer)
            if error is not None:
                self._letters.add_timer(error, key, micros_of(timer.at))

    def _error_of(self, encoded: bytes, key: Any, call: Callable[..., Any], subject: Any) -> Exception | None:
        for state in self._states:
            state.mark()
        try:
            self._state.bind(encoded)  # which may migrate it
            self._context.key = key
            made = call(key, subject, self._context)
            made = [] if made is None else list(made)
            self._output.check(made)
            self._state.release()
        except OF_THE_HOST:
            raise
        except Exception as error:
            for state in self._states:
                state.take_back()
            return error
        self._output.add(made)
        self.succeeded += 1
        return None


def _unsure(value: Any) -> bool:
    return False


_SURELY: dict[pa.DataType, Callable[[Any], bool]] = {  # quick checks for the most common types
    pa.int64(): lambda value: type(value) is int and -(1 << 63) <= value < 1 << 63,
    pa.int32(): lambda value: type(value) is int and -(1 << 31) <= value < 1 << 31,
    pa.float64(): lambda value: type(value) is float,
    pa.string(): lambda value: type(value) is str and value.isascii(),
    pa.bool_(): lambda value: type(value) is bool,
}


class YieldedRows:
    """Collects what a function yields, and checks it against the declared schema."""

    def __init__(self, operator: str, schema: pa.Schema) -> None:
        self._operator, self._schema, self._width = operator, schema, len(schema)
        self._fits = [_SURELY.get(type, _unsure) for type in schema.types]
        self._rows: list[tuple[Any, ...]] = []

    def check(self, produced: list[tuple[Any, ...]]) -> None:
        """Refuse rows that do not fit; ask Arrow, which takes longer, only where a quick check does not decide."""
        for row in produced:
            self._check_width(row)
            for at, value in enumerate(row):
                if value is not None and not self._fits[at](value):
                    self._array(at, [value])

    def add(self, produced: Iterable[tuple[Any, ...]] | None) -> None:
        """Take rows."""
        if produced is not None:
            self._rows.extend(produced)

    def batches(self) -> list[pa.RecordBatch]:
        """Return everything that was yielded; refuse what does not fit."""
        return [self._batch(self._rows[at : at + _CHUNK]) for at in range(0, len(self._rows), _CHUNK)]

    def _batch(self, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        if {*map(type, rows)} != {tuple} or {*map(len, rows)} != {self._width}:  # all at once, the common case
            for row in rows:
                self._check_width(row)
        arrays = [self._array(i, [row[i] for row in rows]) for i in range(len(self._schema))]
        return pa.record_batch(arrays, schema=self._schema)

    def _check_width(self, row: Any) -> None:
        if not isinstance(row, (tuple, list)) or len(row) != self._width:
            raise SchemaError(
                f"operator {self._operator!r} yielded {row!r}, but its schema has {self._width} columns "
                f"({', '.join(self._schema.names)}); yield one tuple per output row"
            )

    def _array(self, at: int, values: list[Any]) -> pa.Array:
        field = self._schema.field(at)
        try:
            return pa.array(values, field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            for value in values:
                try:
                    pa.array([value], field.type)
                except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                    raise SchemaError(
                        f"operator {self._operator!r} yielded {value!r} ({type(value).__name__}) for column "
                        f"{field.name!r} of type {field.type}: {error}. Convert it, or change the declared schema"
                    ) from None
            raise
