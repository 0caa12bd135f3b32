"""The task of a window operator against the definition of windows, epoch by epoch; without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.operators.aggregates.declare import CLOSES
from midstream.operators.tables import PortableWindows
from midstream.operators.task import SlotTask
from midstream.operators.windows.task import PANE, WindowTask
from midstream.plan.window_regimes import Regime, succeeded, without_past
from midstream.plan.windows import LONG_AGO, TimeWindow
from tests.support.window_slot import (
    COMPILED,
    GROUPS,
    RESULTS,
    SECOND,
    Slot,
    assert_as_defined,
    endings,
    group_of,
)  # fmt: skip
from tests.support.windowing import Changing, Event, Naive, cut, pane_of, some_events

KEYS = pa.schema([(PANE, pa.int64()), ("user", pa.string())])
SHAPES = [(10, 10), (10, 2), (10, 4), (10, 7), (3, 1), (20, 1)]


@dataclass
class WindowSlot(Slot):
    window: TimeWindow = field(kw_only=True)
    regimes: tuple[Regime, ...] = ()
    latest: int | None = None

    def change(self, window: TimeWindow) -> None:
        """Go on with windows of another shape; the engine looks into all groups then."""
        self.window = window
        self.deadlines = dict.fromkeys(range(GROUPS), LONG_AGO)

    def epoch(self, events: Sequence[Event], *, is_last: bool = False) -> Counter[Any]:
        self.regimes = succeeded(self.regimes, self.window, self.latest)
        found = super().epoch(events, is_last=is_last)
        if self.before is not None:
            self.regimes = without_past(self.regimes, self.before - int(self.lateness * SECOND))
        return found

    def task(self, **common: Any) -> SlotTask:
        return WindowTask(**common, keys=(PANE, "user"), compiled=COMPILED, combined=False, regimes=self.regimes)

    def rows(self, events: Sequence[Event], mark: int | None) -> tuple[pa.RecordBatch, Any]:
        """What the JVM makes of rows: pane, key and what is sent of the price."""
        forgotten = None if mark is None else mark - int(self.lateness * SECOND)
        times = [None if at is None else round(at * SECOND) for _, _, at in events]
        panes = [None if time is None else pane_of(self.regimes, time, forgotten) for time in times]
        self.latest = max([pane for pane in (*panes, self.latest) if pane is not None], default=None)
        columns = {
            PANE: pa.array(panes, pa.int64()),
            "user": pa.array([user for user, _, _ in events], pa.string()),
            "count price": pa.array([int(price is not None) for _, price, _ in events], pa.int64()),
            "sum price": pa.array([price or 0 for _, price, _ in events], pa.int64()),
            "max price": pa.array([-(1 << 63) if price is None else price for _, price, _ in events], pa.int64()),
        }
        if self.ends:
            columns[CLOSES] = endings([[price] for _, price, _ in events])
        groups = np.array([group_of(user) for user, _, _ in events], dtype=np.int32)
        return pa.RecordBatch.from_pydict(columns), groups


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@given(
    seed=st.integers(0, 10_000),
    size=st.sampled_from([3, 10, 60]),
    delay=st.sampled_from([0, 5]),
    lateness=st.sampled_from([0, 6, 15]),
    disorder=st.sampled_from([0.0, 4.0, 25.0]),
    ends=st.booleans(),
    saved=st.sampled_from([None, 3]),
)
def test_every_epoch_gives_out_what_the_definition_says(
    shape: tuple[int, int], seed: int, size: int, delay: int, lateness: int, disorder: float, ends: bool,
    saved: int | None,
) -> None:  # fmt: skip
    window = TimeWindow(shape[0] * SECOND, shape[1] * SECOND)
    lists = cut(some_events(seed, 40, disorder), size)
    closing, updating = (WindowSlot(delay, lateness, updates, ends, window=window) for updates in (False, True))
    naive = Naive(*shape, delay=delay, lateness=lateness, ends=ends)

    def epochs() -> Iterator[list[Event]]:
        for number, events in enumerate([*lists, [("ann", 1, None)]]):
            if number == saved:
                closing.through_a_savepoint(PortableWindows(KEYS, COMPILED, RESULTS))
            yield events

    assert_as_defined(closing, updating, naive, epochs())


@given(
    shapes=st.lists(st.sampled_from(SHAPES), min_size=1, max_size=5),
    at=st.data(),
    seed=st.integers(0, 10_000),
    size=st.sampled_from([3, 10, 20]),
    delay=st.sampled_from([0, 5]),
    lateness=st.sampled_from([0, 6, 15]),
    disorder=st.sampled_from([0.0, 4.0, 25.0]),
    ends=st.booleans(),
)
def test_windows_that_are_changed_keep_what_is_open(
    shapes: list[tuple[int, int]],
    at: st.DataObject,
    seed: int,
    size: int,
    delay: int,
    lateness: int,
    disorder: float,
    ends: bool,
) -> None:
    first, *others = shapes
    window = TimeWindow(first[0] * SECOND, first[1] * SECOND)
    lists = cut(some_events(seed, 60, disorder, per_second=2.0), size)
    changes = [at.draw(st.integers(0, len(lists)), label="the epoch before which it is changed") for _ in others]
    closing, updating = (WindowSlot(delay, lateness, updates, ends, window=window) for updates in (False, True))
    naive = Changing(*first, delay=delay, lateness=lateness, ends=ends)

    def epochs() -> Iterator[list[Event]]:
        for number, events in enumerate([*lists, []]):
            for change, shape in zip(sorted(changes), others, strict=True):
                if change == number:
                    naive.change(*shape)
                    for slot in (closing, updating):
                        slot.change(TimeWindow(shape[0] * SECOND, shape[1] * SECOND))
            yield events

    given_out = assert_as_defined(closing, updating, naive, epochs())
    if disorder <= delay and not lateness and not ends:
        assert given_out == naive.of_all_rows(), "a window holds the rows within its bounds, no more, no less"


def test_rows_from_before_a_change_stay_late_when_the_lateness_is_raised() -> None:
    """Their windows are forgotten, and new ones do not begin there."""
    slot = WindowSlot(window=TimeWindow(10 * SECOND, 10 * SECOND))
    slot.epoch([("ann", 1, 12.0)])
    slot.change(TimeWindow(15 * SECOND, 15 * SECOND))
    for at in (31.0, 50.0):
        slot.epoch([("ann", 1, at)])
    slot.epoch([])
    assert slot.regimes == (Regime(TimeWindow(15 * SECOND, 15 * SECOND), 30 * SECOND),)
    slot.lateness = 100
    assert slot.epoch([("ann", 1, 29.0), ("ann", 1, 30.0)]).total() == 1
    assert slot.late == 1
