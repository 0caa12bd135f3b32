"""The task of a session window against the definition of sessions, epoch by epoch; without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.operators.aggregates.declare import CLOSES, with_end
from midstream.operators.aggregates.declare import START as ROW_TIME
from midstream.operators.tables import PortableSessions
from midstream.operators.task import SlotTask
from midstream.operators.windows.sessions import SessionTask
from midstream.plan.windows import LONG_AGO
from tests.support.window_slot import COMPILED as PLAIN
from tests.support.window_slot import (
    GROUPS,
    RESULTS,
    SECOND,
    Slot,
    assert_as_defined,
    endings,
    from_zero,
    group_of,
)  # fmt: skip
from tests.support.windowing import Event, NaiveSessions, cut, some_events

COMPILED = with_end(PLAIN, 0)  # the gap is only in its SQL
KEYS = pa.schema([("user", pa.string()), (ROW_TIME, pa.int64())])


@dataclass
class SessionSlot(Slot):
    gap: float = 1
    combined: bool = False  # rows of one user and moment come as one

    def task(self, **common: Any) -> SlotTask:
        return SessionTask(**common, keys=("user", ROW_TIME), compiled=COMPILED, combined=self.combined)

    def rows(self, events: Sequence[Event], mark: int | None) -> tuple[pa.RecordBatch, Any]:
        """What the JVM makes of rows: time, key and what is sent of the price, folded or not."""
        plain = [(user, price, None if at is None else round(at * SECOND)) for user, price, at in events]
        parts = [[row] for row in plain]
        if self.combined:
            parts = [[row for row in plain if (row[0], row[2]) == one] for one in {(r[0], r[2]): 0 for r in plain}]
        prices = [[price for _, price, _ in part if price is not None] for part in parts]
        times = [part[0][2] for part in parts]
        columns = {
            "user": pa.array([part[0][0] for part in parts], pa.string()),
            ROW_TIME: pa.array(times, pa.int64()),
            "count price": pa.array(map(len, prices), pa.int64()),
            "sum price": pa.array(map(sum, prices), pa.int64()),
            "max price": pa.array([max(some, default=-(1 << 63)) for some in prices], pa.int64()),
            "end": pa.array([None if t is None else t + int(self.gap * SECOND) for t in times], pa.int64()),
        }
        if self.combined:
            columns["_rows"] = columns["count"] = pa.array(map(len, parts), pa.int64())
        if self.ends:
            columns[CLOSES] = endings(prices)
        groups = np.array([group_of(part[0][0]) for part in parts], dtype=np.int32)
        return pa.RecordBatch.from_pydict(columns), groups


@pytest.mark.parametrize("gap", [0.5, 2, 5])
@given(
    seed=st.integers(0, 10_000),
    size=st.sampled_from([2, 5, 20]),
    delay=st.sampled_from([0, 5]),
    lateness=st.sampled_from([0, 1, 6, 15]),
    disorder=st.sampled_from([0.0, 4.0, 25.0]),
    per_second=st.sampled_from([1.0, 4.0]),
    decimals=st.sampled_from([0, 3]),
    combined=st.booleans(),
    saved=st.sampled_from([None, 3]),
    ends=st.booleans(),
)
def test_every_epoch_gives_out_what_the_definition_says(
    gap: float, seed: int, size: int, delay: int, lateness: int, disorder: float, per_second: float, decimals: int,
    combined: bool, saved: int | None, ends: bool,
) -> None:  # fmt: skip
    events = [(u, p, round(at or 0.0, decimals)) for u, p, at in some_events(seed, 60, disorder, per_second)]
    closing = SessionSlot(delay, lateness, ends=ends, gap=gap, combined=combined)
    updating = SessionSlot(delay, lateness, updates=True, ends=ends, gap=gap, combined=combined)
    naive = NaiveSessions(gap, delay, lateness, ends=ends)

    def epochs() -> Iterator[list[Event]]:
        for number, rows in enumerate([*cut(events[:40], size), [], *cut(events[40:], size), [("ann", 1, None)]]):
            if number == saved:
                closing.through_a_savepoint(PortableSessions(KEYS, COMPILED, RESULTS))
            yield rows

    assert_as_defined(closing, updating, naive, epochs())


@given(
    gaps=st.lists(st.sampled_from([0.5, 2, 5, 9]), min_size=2, max_size=6),
    seed=st.integers(0, 10_000),
    delay=st.sampled_from([0, 5]),
    lateness=st.sampled_from([0, 1, 6]),
    disorder=st.sampled_from([0.0, 4.0, 25.0]),
    combined=st.booleans(),
)
def test_a_gap_that_is_changed_is_that_of_rows_to_come(
    gaps: list[float], seed: int, delay: int, lateness: int, disorder: float, combined: bool
) -> None:
    closing = SessionSlot(delay, lateness, gap=gaps[0], combined=combined)
    updating = SessionSlot(delay, lateness, updates=True, gap=gaps[0], combined=combined)
    naive = NaiveSessions(gaps[0], delay, lateness)

    def epochs() -> Iterator[list[Event]]:
        for number, rows in enumerate(cut(some_events(seed, 60, disorder, per_second=1.0), 5)):
            if number % 2:
                naive.change(gaps[number // 2 % len(gaps)])
                for slot in (closing, updating):
                    slot.gap = gaps[number // 2 % len(gaps)]
                    slot.deadlines = dict.fromkeys(range(GROUPS), LONG_AGO)  # the engine looks into all groups
            yield rows

    assert_as_defined(closing, updating, naive, epochs())


def test_rows_that_come_with_the_end_of_the_input_are_in_time() -> None:
    slot, naive = SessionSlot(gap=5), NaiveSessions(5)
    first: list[Event] = [("ann", 1, 1.0), ("bob", 1, 1.0), ("ann", 1, 30.0)]
    last: list[Event] = [("ann", 1, 33.0), ("bob", 1, 5.0), ("cid", 1, 2.0)]
    for rows, is_last in ((first, False), ([("ann", 1, 31.0)], False), (last, True)):
        assert slot.epoch(rows, is_last=is_last) == from_zero(naive.epoch(rows, is_last=is_last)[0])
    assert slot.late == naive.late.total() == 2, "they were late in the epoch before"
    assert not any(slot.entries().values())


def test_a_session_may_begin_where_one_did_that_closes_in_the_same_epoch() -> None:
    slot, naive = SessionSlot(gap=5), NaiveSessions(5)
    lists: list[list[Event]] = [
        [("ann", 1, 0.0), ("ann", 1, 4.0), ("bob", 1, 10.0)],
        [("ann", 1, 0.0), ("ann", 1, 4.0), ("ann", 1, 8.0)],
        [],
    ]
    for rows in lists:
        closed = from_zero(naive.epoch(rows)[0])
        assert slot.epoch(rows) == closed
        assert len(closed) == (1 if rows is lists[1] else 0)
    last = slot.epoch([], is_last=True)
    assert last == from_zero(naive.epoch([], is_last=True)[0])
    assert {row[3] for row in last} == {1, 3}
    assert not any(slot.entries().values())


def test_a_session_that_grows_writes_one_entry_an_epoch() -> None:
    slot = SessionSlot(gap=10)
    for second in range(5):
        slot.epoch([("ann", 1, float(second))])
    assert sum(map(len, slot.entries().values())) == 2, "the session, and its timer"
    ((group, entries),) = [(group, entries) for group, entries in slot.entries().items() if entries]
    assert slot.deadlines[group] == 10 * SECOND, "the end that it had at first: it is looked at then, and not before"
    assert entries[0][0][0] == 1
