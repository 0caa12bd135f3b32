"""The task of a window operator against the definition of windows, epoch by epoch; without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream import aggregates as ms
from midstream.aggregates import compile_aggregates
from midstream.briefing import END_OF_TIME
from midstream.routing import Routing
from midstream.slot import Epoch, Work
from midstream.state.cache import Cache, Head
from midstream.state.memory import MemoryStore
from midstream.state.store import FIRST, LAST, GroupStore, Version
from midstream.window_task import PANE, WindowTask
from midstream.windows import Window
from tests.edits import Edits
from tests.windowing import START, Event, Naive, cut, some_events

SECOND = 1_000_000
GROUPS = 4
COMPILED = compile_aggregates(
    "sums",
    tuple(
        ms.AggregateSpec(name=name, function=function, column=column)
        for name, function, column in (("n", "count", ""), ("total", "sum", "price"), ("best", "max", "price"))
    ),
    {"user": "string", "price": "bigint"},
    "ts",
)
SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("window_start", pa.timestamp("us", tz="UTC")),
        ("window_end", pa.timestamp("us", tz="UTC")),
        ("n", pa.int64()),
        ("total", pa.int64()),
        ("best", pa.int64()),
    ]
)


@dataclass
class Slot:
    """One slot that owns all groups, in memory: what the engine does from epoch to epoch."""

    window: Window
    delay: float = 0
    lateness: float = 0
    updates: bool = False
    stores: dict[int, MemoryStore] = field(default_factory=lambda: {g: MemoryStore() for g in range(GROUPS)})
    deadlines: dict[int, int | None] = field(default_factory=dict)
    greatest: int | None = None
    before: int | None = None
    late: int = 0

    def epoch(self, events: Sequence[Event], *, is_last: bool = False) -> Counter[Any]:
        mark = None if self.greatest is None else self.greatest - int(self.delay * SECOND)
        mark = END_OF_TIME if is_last else mark
        due = frozenset(g for g, at in self.deadlines.items() if mark is not None and at is not None and at <= mark)
        rows, groups = self.rows(events, mark)
        head = Head("job", "sums", "", "", -1, (None,) * GROUPS, throw_away=True)
        task = WindowTask(
            "sums", head, Epoch(0, 0, "", mark, self.before, due=due), "", "", bytes(SCHEMA.serialize()),
            (PANE, "user"), Routing.even(GROUPS, 1), compiled=COMPILED, combined=False, window=self.window,
            lateness=int(self.lateness * SECOND), updates=self.updates,
        )  # fmt: skip
        work = Work(0, Stores(head, stores=self.stores))
        output = task.work(work, rows, groups, frozenset(range(GROUPS)))
        for group, changes in work.log.take().items():
            self.stores[group].apply([Edits(changes)], Version("job", 0, ""))
        self.deadlines.update({group: at for group, (at, _) in work.report.deadlines.items()})
        self.late += work.report.late
        times = [int(at * SECOND) for _, _, at in events if at is not None]
        self.greatest = max([*times, *([self.greatest] if self.greatest is not None else [])], default=None)
        self.before = mark if not is_last else self.before
        return Counter(tuple(row.values()) for batch in output for row in batch.to_pylist())

    def rows(self, events: Sequence[Event], mark: int | None) -> tuple[pa.RecordBatch, Any]:
        """What the JVM makes of rows: pane, key and what is sent of the price."""
        panes: list[int | None] = []
        for _, _, at in events:
            time = None if at is None else int(at * SECOND)
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
        groups = np.array([sum(map(ord, user or "")) % GROUPS for user, _, _ in events], dtype=np.int32)
        return pa.RecordBatch.from_pydict(columns), groups


class Stores(Cache):
    def __init__(self, head: Head, stores: dict[int, MemoryStore]) -> None:
        super().__init__(head)
        self.stores = stores

    def view(self, group: int) -> GroupStore:
        return self.stores[group]


def from_zero(found: Counter[Any]) -> Counter[Any]:
    """The oracle's windows, in time since 1970 instead of since its start."""
    shift = timedelta(seconds=START.timestamp())
    return Counter({(u, s - shift, e - shift, *rest): n for (u, s, e, *rest), n in found.items()})


SHAPES = [(10, 10), (10, 2), (10, 4), (10, 7), (3, 1), (20, 1)]


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
    closing, updating = Slot(window, delay, lateness), Slot(window, delay, lateness, updates=True)
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
