"""The task of a session window against the definition of sessions, epoch by epoch; without Spark."""

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

from midstream import aggregates as ms
from midstream.aggregates import START as ROW_TIME
from midstream.aggregates import compile_aggregates, with_latest
from midstream.routing import Routing
from midstream.session_task import SessionTask
from midstream.slot import Epoch, Work
from midstream.state.cache import Head
from midstream.state.memory import MemoryStore
from midstream.state.portable import PortableSessions
from midstream.state.store import FIRST, LAST, Version
from midstream.windows import END_OF_TIME, Session
from tests.edits import Edits
from tests.unit.test_window_task import GROUPS, SCHEMA, SECOND, Stores, from_zero
from tests.windowing import Event, NaiveSessions, cut, some_events

COMPILED = with_latest(
    compile_aggregates(
        "sums",
        tuple(
            ms.AggregateSpec(name=name, function=function, column=column)
            for name, function, column in (("n", "count", ""), ("total", "sum", "price"), ("best", "max", "price"))
        ),
        {"user": "string", "price": "bigint"},
        "ts",
    )
)
KEYS = pa.schema([("user", pa.string()), (ROW_TIME, pa.int64())])


@dataclass
class Slot:
    """One slot that owns all groups, in memory: what the engine does from epoch to epoch."""

    gap: float
    delay: float = 0
    lateness: float = 0
    updates: bool = False
    combined: bool = False  # rows of one user and moment come as one
    stores: dict[int, MemoryStore] = field(default_factory=lambda: {g: MemoryStore() for g in range(GROUPS)})
    deadlines: dict[int, int | None] = field(default_factory=dict)
    greatest: int | None = None
    before: int | None = None
    late: int = 0

    def epoch(self, events: Sequence[Event], *, is_last: bool = False) -> Counter[Any]:
        mark = None if self.greatest is None else self.greatest - int(self.delay * SECOND)
        mark = END_OF_TIME if is_last else mark
        due = frozenset(g for g, at in self.deadlines.items() if mark is not None and at is not None and at <= mark)
        rows, groups = self.rows(events)
        head = Head("job", "sums", "", "", -1, (None,) * GROUPS, throw_away=True)
        task = SessionTask(
            "sums", head, Epoch(0, 0, "", mark, self.before, due=due), "", "", bytes(SCHEMA.serialize()),
            ("user", ROW_TIME), Routing.even(GROUPS, 1), compiled=COMPILED, combined=self.combined,
            session=Session(int(self.gap * SECOND)), lateness=int(self.lateness * SECOND), updates=self.updates,
        )  # fmt: skip
        work = Work(0, Stores(head, stores=self.stores))
        output = task.work(work, rows, groups, frozenset(range(GROUPS)))
        for group, changes in work.log.take().items():
            self.stores[group].apply([Edits(changes)], Version("job", 0, ""))
        self.deadlines.update({group: at for group, (at, _) in work.report.deadlines.items()})
        self.late += work.report.late
        times = [round(at * SECOND) for _, _, at in events if at is not None]
        self.greatest = max([*times, *([self.greatest] if self.greatest is not None else [])], default=None)
        self.before = mark if not is_last else self.before
        return Counter(tuple(row.values()) for batch in output for row in batch.to_pylist())

    def rows(self, events: Sequence[Event]) -> tuple[pa.RecordBatch, Any]:
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
            "latest": pa.array(times, pa.int64()),
        }
        if self.combined:
            columns["_rows"] = columns["count"] = pa.array(map(len, parts), pa.int64())
        groups = np.array([sum(map(ord, part[0][0] or "")) % GROUPS for part in parts], dtype=np.int32)
        return pa.RecordBatch.from_pydict(columns), groups

    def entries(self) -> dict[int, list[tuple[bytes, bytes]]]:
        found = {}
        for group, store in self.stores.items():
            with store.reader() as reader:
                found[group] = list(reader.scan(FIRST, LAST))
        return found

    def through_a_savepoint(self) -> None:
        """Write the state as tables and read it back: the same sessions, and none is due too late."""
        portable = PortableSessions(KEYS, COMPILED, pa.schema(list(SCHEMA)[3:]), int(self.gap * SECOND))
        for group, store in self.stores.items():
            with store.reader() as reader:
                (table,) = portable.dump(reader).values()
            self.stores[group] = MemoryStore()
            entries = [entry for batch in table.to_batches() for entry in portable.load("record", batch)]
            self.stores[group].apply([Edits(dict(entries))], Version("job", 0, ""))
            self.deadlines[group] = -(1 << 62)


@pytest.mark.parametrize("gap", [0.5, 2, 5])
@settings(max_examples=80, deadline=None)
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
)
def test_every_epoch_gives_out_what_the_definition_says(
    gap: float, seed: int, size: int, delay: int, lateness: int, disorder: float, per_second: float, decimals: int,
    combined: bool, saved: int | None,
) -> None:  # fmt: skip
    events = [(u, p, round(at or 0.0, decimals)) for u, p, at in some_events(seed, 60, disorder, per_second)]
    closing = Slot(gap, delay, lateness, combined=combined)
    updating = Slot(gap, delay, lateness, updates=True, combined=combined)
    naive = NaiveSessions(gap, delay, lateness)
    for number, rows in enumerate([*cut(events[:40], size), [], *cut(events[40:], size), [("ann", 1, None)]]):
        if number == saved:
            closing.through_a_savepoint()
        closed, changed = naive.epoch(rows)
        assert closing.epoch(rows) == from_zero(closed)
        assert updating.epoch(rows) == from_zero(changed)
    assert closing.epoch([], is_last=True) == from_zero(naive.epoch([], is_last=True)[0])
    assert updating.epoch([], is_last=True) == Counter()
    assert closing.late == updating.late == naive.late
    for slot in (closing, updating):
        assert not any(slot.entries().values()), "nothing is kept of sessions that are closed"


def test_rows_that_come_with_the_end_of_the_input_are_in_time() -> None:
    slot, naive = Slot(5), NaiveSessions(5)
    first: list[Event] = [("ann", 1, 1.0), ("bob", 1, 1.0), ("ann", 1, 30.0)]
    last: list[Event] = [("ann", 1, 33.0), ("bob", 1, 5.0), ("cid", 1, 2.0)]
    for rows, is_last in ((first, False), ([("ann", 1, 31.0)], False), (last, True)):
        assert slot.epoch(rows, is_last=is_last) == from_zero(naive.epoch(rows, is_last=is_last)[0])
    assert slot.late == naive.late == 2, "they were late in the epoch before"
    assert not any(slot.entries().values())


def test_a_session_may_begin_where_one_did_that_closes_in_the_same_epoch() -> None:
    slot, naive = Slot(5), NaiveSessions(5)
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
    slot = Slot(10)
    for second in range(5):
        slot.epoch([("ann", 1, float(second))])
    assert sum(map(len, slot.entries().values())) == 2, "the session, and its timer"
    ((group, entries),) = [(group, entries) for group, entries in slot.entries().items() if entries]
    assert slot.deadlines[group] == 10 * SECOND, "the end that it had at first: it is looked at then, and not before"
    assert entries[0][0][0] == 1
