"""One slot of a join in memory, epoch by epoch, and random streams of two sides; without Spark."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.operators.functions.declare import state_fields
from midstream.operators.joins.rules import BoundedJoin, Join
from midstream.operators.joins.task import JoinTask
from midstream.operators.task import Epoch, Work
from midstream.plan.code import Code, capture
from midstream.plan.routing import Routing
from midstream.state.entries import Stage
from midstream.state.history import Head
from midstream.state.stores.contract import FIRST, LAST, Version
from midstream.state.stores.memory import MemoryStore
from tests.support.edits import Edits

END_OF_TIME = 253_402_300_799_000_000
DELAY = 5
MOMENT = pa.timestamp("us", tz="UTC")
ROW = pa.struct([("n", pa.int64())])
KEPT = pa.struct([("time", MOMENT), ("matched", pa.bool_()), ("row", ROW)])
TYPES = ("struct<n: bigint>", "struct<n: bigint>")

Row = tuple[str, str | None, int | None, int]  # side, key, event time, a number


def bounded(how: str, **bounds: int) -> BoundedJoin:
    return BoundedJoin(widths=(1, 0 if how in ("semi", "anti") else 1), types=TYPES, how=how, **bounds)


class Runner:
    """Runs the task of a join over a store in memory, epoch by epoch."""

    def __init__(self, join: Join) -> None:
        self.join, self.store = join, MemoryStore()
        self.deadlines: tuple[int | None, int | None] = (None, None)

    def epoch(self, rows: Iterable[Row], watermark: int | None, now: int = 0) -> list[Any]:
        """Process rows; whatever is due by the watermark and the clock is done too."""
        reached = zip(self.deadlines, (watermark, now), strict=True)
        is_due = any(due is not None and at is not None and due <= at for due, at in reached)
        epoch = Epoch(1, now, "", watermark, due=frozenset({0} if is_due else ()))
        fields, kept = state_fields(self.join), KEPT if self.join.is_bounded else ROW
        types = pa.schema([(field.name, MOMENT if field.name in ("deadline", "latest") else kept) for field in fields])
        output = pa.schema([("key", pa.string()), *((f"n{i}", pa.int64()) for i in range(sum(self.join.widths)))])
        task = JoinTask(
            "j", Head("job", "j", "", "", 0, (None,)), epoch, "", "", bytes(output.serialize()), ("key",),
            Routing.even(1, 1), shipped(self.join),
            (Stage(fields, bytes(types.serialize()), 0, None),), ("_time",),
        )  # fmt: skip
        work = Work(0, Stores(self.store))  # type: ignore[arg-type]
        batch = in_common_form(list(rows))
        found = task.work(work, batch, np.zeros(batch.num_rows, np.int32), frozenset({0}))
        self.deadlines = work.report.deadlines.get(0, self.deadlines)
        self.store.apply([Edits(changes) for changes in work.log.take().values()], Version("job", 1, "c"))
        return [tuple(row.values()) for batch in found for row in batch.to_pylist()]

    def entries(self) -> int:
        with self.store.reader() as reader:
            return sum(1 for _ in reader.scan(FIRST, LAST))


@cache
def shipped(join: Join) -> Code:
    return capture(join, what="a join", shipped=True)


@dataclass
class Stores:
    """The cache of a slot that has one group."""

    store: MemoryStore

    def view(self, group: int) -> MemoryStore:
        assert group == 0
        return self.store


def in_common_form(rows: list[Row]) -> pa.RecordBatch:
    kept = {side: [{"n": row[3]} if row[0] == side else None for row in rows] for side in ("left", "right")}
    columns = {
        "key": pa.array([row[1] for row in rows], pa.string()),
        "_time": pa.array([row[2] for row in rows], pa.int64()).cast(MOMENT),
        "_left": pa.array(kept["left"], ROW),
        "_right": pa.array(kept["right"], ROW),
        "_tie": pa.array([zlib.crc32(repr(row).encode()) for row in rows], pa.int64()),
    }
    return pa.record_batch(columns)


def run_join(join: Join, epochs: list[list[Row]]) -> tuple[Runner, Any]:
    runner, seen, found = Runner(join), dict[str, int](), Counter[Any]()
    for rows in epochs:
        watermark = min(seen.values()) - DELAY if len(seen) == 2 else None
        found.update(runner.epoch(rows, watermark))
        for side, _, time, _ in rows:
            if time is not None:
                seen[side] = max(seen.get(side, time), time)
    found.update(runner.epoch([], END_OF_TIME))
    return runner, found


def stream(draw: Random) -> list[Row]:
    """Rows of both sides as they arrive: each out of order by the delay at most, one maybe far behind the other."""
    behind, span = draw.choice([0, 0, 25]), draw.choice([8, 30, 60])
    rows: list[tuple[int, Row]] = []
    for _ in range(draw.randrange(40)):
        side, key = draw.choice(["left", "right"]), draw.choice(["a", "a", "a", "b", None])
        time = None if draw.random() < 0.1 else draw.randrange(-span // 2, span // 2)
        arrives = (time or 0) + draw.randrange(DELAY + 1) + (behind if side == "right" else 0)
        rows.append((arrives, (side, key, time, draw.randrange(3))))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def cut(rows: list[Row], draw: Random) -> list[list[Row]]:
    """Cut a stream into epochs, some of them empty."""
    places = sorted(draw.randrange(len(rows) + 1) for _ in range(draw.choice([0, 1, 5, len(rows)])))
    return [rows[a:b] for a, b in pairwise([0, *places, len(rows)])]
