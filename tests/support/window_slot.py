"""One slot of a window operator in memory: what the engine does from epoch to epoch, without Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import pyarrow as pa

from midstream.operators.aggregates import declare as ms
from midstream.operators.aggregates.declare import compile_aggregates
from midstream.operators.tables import Portable
from midstream.operators.task import Epoch, SlotTask, Work
from midstream.plan.routing import Routing
from midstream.plan.windows import END_OF_TIME, LONG_AGO
from midstream.state.cache import Cache
from midstream.state.history import Head
from midstream.state.stores.contract import FIRST, LAST, GroupStore, Version
from midstream.state.stores.memory import MemoryStore
from tests.support.edits import Edits
from tests.support.windowing import ENDS, START, Event

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
RESULTS = pa.schema(list(SCHEMA)[3:])


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


def endings(prices: Sequence[Sequence[int | None]]) -> pa.Array:
    """Whether rows of these prices end their window."""
    return pa.array([any(price is not None and price >= ENDS for price in some) for some in prices], pa.bool_())


def group_of(user: str | None) -> int:
    return sum(map(ord, user or "")) % GROUPS


@dataclass
class Slot(ABC):
    """One slot that owns all groups; which task it runs, and over which rows, a subclass says."""

    delay: float = 0
    lateness: float = 0
    updates: bool = False
    ends: bool = False  # whether rows may end their window
    stores: dict[int, MemoryStore] = field(default_factory=lambda: {g: MemoryStore() for g in range(GROUPS)})
    deadlines: dict[int, int | None] = field(default_factory=dict)
    greatest: int | None = None
    before: int | None = None
    late: int = 0

    @abstractmethod
    def rows(self, events: Sequence[Event], mark: int | None) -> tuple[pa.RecordBatch, Any]:
        """What the JVM makes of rows, and their groups."""

    @abstractmethod
    def task(self, **common: Any) -> SlotTask:
        """The task of an epoch."""

    def epoch(self, events: Sequence[Event], *, is_last: bool = False) -> Counter[Any]:
        mark = None if self.greatest is None else self.greatest - int(self.delay * SECOND)
        mark = END_OF_TIME if is_last else mark
        due = frozenset(g for g, at in self.deadlines.items() if mark is not None and at is not None and at <= mark)
        rows, groups = self.rows(events, mark)
        head = Head("job", "sums", "", "", -1, (None,) * GROUPS, throw_away=True)
        task = self.task(
            operator="sums", head=head, epoch=Epoch(0, 0, "", mark, self.before, due=due), directory="", aside="",
            schema=bytes(SCHEMA.serialize()), routing=Routing.even(GROUPS, 1),
            lateness=int(self.lateness * SECOND), updates=self.updates,
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

    def through_a_savepoint(self, portable: Portable) -> None:
        """Write the state as tables and read it back: the same, and nothing is due too late."""
        for group, store in self.stores.items():
            with store.reader() as reader:
                tables = portable.dump(reader)
            self.stores[group] = MemoryStore()
            entries = [
                entry
                for name, table in tables.items()
                for batch in table.to_batches()
                for entry in portable.load(name, batch)
            ]
            self.stores[group].apply([Edits(dict(entries))], Version("job", 0, ""))
            self.deadlines[group] = LONG_AGO

    def entries(self) -> dict[int, list[tuple[bytes, bytes]]]:
        found = {}
        for group, store in self.stores.items():
            with store.reader() as reader:
                found[group] = list(reader.scan(FIRST, LAST))
        return found


class Definition(Protocol):
    """What windows are, without a slot."""

    late: Counter[Any]

    def epoch(self, events: Sequence[Event], *, is_last: bool = False) -> tuple[Counter[Any], Counter[Any]]:
        """Windows that close, and windows that change."""


def assert_as_defined(
    closing: Slot, updating: Slot, naive: Definition, epochs: Iterable[Sequence[Event]]
) -> Counter[Any]:
    """Let slots go through epochs, to the end of the input, beside the definition; return all windows it closes."""
    given_out = Counter[Any]()
    for events in epochs:
        closed, changed = naive.epoch(events)
        assert closing.epoch(events) == from_zero(closed)
        assert updating.epoch(events) == from_zero(changed)
        given_out += closed
    closed, _ = naive.epoch([], is_last=True)
    assert closing.epoch([], is_last=True) == from_zero(closed)
    assert updating.epoch([], is_last=True) == Counter()
    assert closing.late == updating.late == naive.late.total()
    for slot in (closing, updating):
        assert not any(slot.entries().values()), "nothing is kept of windows that are closed"
    return given_out + closed
