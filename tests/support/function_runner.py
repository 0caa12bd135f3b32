"""Drives a keyed function without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from midstream.operators.functions.declare import Context, KeyedFunction, state_fields
from midstream.state.entries import Form
from midstream.state.keyed import GroupState
from midstream.state.stores.contract import FIRST, LAST, Version
from midstream.state.stores.memory import MemoryStore
from midstream.state.values import moment_of
from tests.support.edits import Edits


class Runner:
    """Drives a keyed function over a store in memory, epoch by epoch, as a slot does."""

    def __init__(self, function: KeyedFunction, types: dict[str, pa.DataType], time_at: int | None = None) -> None:
        self.function, self.store, self.time_at = function, MemoryStore(), time_at
        self.form = Form("j", state_fields(function), types)
        self.keys: dict[bytes, str | None] = {}

    def epoch(self, rows: Iterable[tuple[str | None, Any]], watermark: int | None, now: int = 0) -> list[Any]:
        """Process rows, given with their keys, in the order of this list; then timers."""
        by_key: dict[bytes, list[Any]] = {}
        for key, row in rows:
            self.keys[repr(key).encode()] = key
            by_key.setdefault(repr(key).encode(), []).append(row)
        produced: list[Any] = []
        with self.store.reader() as reader:
            state = GroupState(self.form, reader, now)
            moment = None if watermark is None else moment_of(watermark)
            context = Context(0, moment_of(now), moment, "", state, self.time_at)
            self.function._state = state
            for encoded, some in sorted(by_key.items()):
                state.bind(encoded)
                produced += self.function.process(self.keys[encoded], some, context) or ()
                state.release()
            for encoded, timer in state.take_due(watermark):
                state.bind(encoded)
                produced += self.function.on_timer(self.keys[encoded], timer, context) or ()
                state.release()
        self.store.apply([Edits(state.changes)], Version("job", 1, "c"))
        return produced

    def entries(self) -> int:
        with self.store.reader() as reader:
            return sum(1 for _ in reader.scan(FIRST, LAST))
