"""The task of a window operator against the definition of windows, epoch by epoch; without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.slot import SlotTask
from midstream.state.store import FIRST, LAST
from midstream.window_task import PANE, WindowTask
from midstream.windows import Window
from tests.unit.window_slot import COMPILED, SECOND, Slot, from_zero, group_of
from tests.windowing import Event, Naive, cut, some_events

SHAPES = [(10, 10), (10, 2), (10, 4), (10, 7), (3, 1), (20, 1)]


@dataclass
class WindowSlot(Slot):
    window: Window = field(kw_only=True)

    def task(self, **common: Any) -> SlotTask:
        return WindowTask(**common, keys=(PANE, "user"), compiled=COMPILED, combined=False, window=self.window)

    def rows(self, events: Sequence[Event], mark: int | None) -> tuple[pa.RecordBatch, Any]:
        """What the JVM makes of rows: pane, key and what is sent of the price."""
        panes: list[int | None] = []
        for _, _, at in events:
            time = None if at is None else round(at * SECOND)
            closed = (
                time is not None
                and mark is not None
                and (self.window.last_end(time) + int(self.lateness * SECOND) <= mark)
            )
            panes.append(None if time is None or closed else time // self.window.pane * self.window.pane)
        columns = {
            PANE: pa.array(panes, pa.int64()),
            "user": pa.array([user for user, _, _ in events], pa.string()),
            "count price": pa.array([int(price is not None) for _, price, _ in events], pa.int64()),
            "sum price": pa.array([price or 0 for _, price, _ in events], pa.int64()),
            "max price": pa.array([-(1 << 63) if price is None else price for _, price, _ in events], pa.int64()),
        }
        groups = np.array([group_of(user) for user, _, _ in events], dtype=np.int32)
        return pa.RecordBatch.from_pydict(columns), groups


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    size=st.sampled_from([3, 10, 60]),
    delay=st.sampled_from([0, 5]),
    lateness=st.sampled_from([0, 6, 15]),
    disorder=st.sampled_from([0.0, 4.0, 25.0]),
)
def test_every_epoch_gives_out_what_the_definition_says(
    shape: tuple[int, int], seed: int, size: int, delay: int, lateness: int, disorder: float
) -> None:
    window = Window(shape[0] * SECOND, shape[1] * SECOND)
    lists = cut(some_events(seed, 40, disorder), size)
    closing, updating = (WindowSlot(delay, lateness, updates=updates, window=window) for updates in (False, True))
    naive = Naive(*shape, delay=delay, lateness=lateness)
    for events in [*lists, [("ann", 1, None)]]:
        closed, changed = naive.epoch(events)
        assert closing.epoch(events) == from_zero(closed)
        assert updating.epoch(events) == from_zero(changed)
    assert closing.epoch([], is_last=True) == from_zero(naive.epoch([], is_last=True)[0])
    assert updating.epoch([], is_last=True) == Counter()
    assert closing.late == updating.late == naive.late.total()
    for slot in (closing, updating):
        for store in slot.stores.values():
            with store.reader() as reader:
                assert list(reader.scan(FIRST, LAST)) == [], "nothing is kept of windows that are closed"
