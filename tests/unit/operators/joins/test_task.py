"""Joins against nested loops over all rows; kind, outer sides, epochs and disorder are random."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from midstream.operators.functions.declare import KeyedFunction, state_fields
from midstream.operators.functions.deduplicate import Deduplicate
from midstream.operators.joins.rules import BoundedJoin, Join, UnboundedJoin
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


def nested_loops(rows: list[Row], how: str, related: Callable[[int, int], bool]) -> Counter[Any]:
    """What the join is, by its definition."""
    lefts, rights = ([row for row in rows if row[0] == side] for side in ("left", "right"))

    def match(left: Row, right: Row) -> bool:
        if left[1] is None or left[1] != right[1] or left[2] is None or right[2] is None:
            return False
        return related(left[2], right[2])

    if how in ("semi", "anti"):
        has_match = [any(match(left, right) for right in rights) for left in lefts]
        return Counter((left[1], left[3]) for left, has in zip(lefts, has_match, strict=True) if has == (how == "semi"))
    found = Counter((left[1], left[3], right[3]) for left in lefts for right in rights if match(left, right))
    if how in ("left", "full"):
        found.update((left[1], left[3], None) for left in lefts if not any(match(left, right) for right in rights))
    if how in ("right", "full"):
        found.update((right[1], None, right[3]) for right in rights if not any(match(left, right) for left in lefts))
    return found


def within(lower: int, upper: int) -> Callable[[int, int], bool]:
    return lambda left, right: lower <= right - left <= upper


def one_window(size: int) -> Callable[[int, int], bool]:
    return lambda left, right: left // size == right // size


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


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_an_interval_join_is_what_nested_loops_give(how: str) -> None:
    for seed in range(80):
        draw = Random(seed)
        rows, lower = stream(draw), draw.randrange(-8, 9)
        upper = lower + draw.randrange(10)
        runner, found = run_join(bounded(how, lower=lower, upper=upper), cut(rows, draw))
        assert found == nested_loops(rows, how, within(lower, upper)), seed
        assert runner.entries() == 0, "at the end of the input nothing is kept"


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_a_window_join_is_what_nested_loops_give(how: str) -> None:
    for seed in range(80):
        draw = Random(seed)
        rows, size = stream(draw), draw.randrange(1, 12)
        runner, found = run_join(bounded(how, size=size), cut(rows, draw))
        assert found == nested_loops(rows, how, one_window(size)), seed
        assert runner.entries() == 0, "at the end of the input nothing is kept"


def test_an_unbounded_join_gives_every_pair_once() -> None:
    for seed in range(80):
        draw = Random(seed)
        rows = [(side, key, 0, number) for side, key, _, number in stream(draw)]
        _, found = run_join(UnboundedJoin(widths=(1, 1), types=TYPES, ttl=0), cut(rows, draw))
        assert found == nested_loops(rows, "inner", lambda left, right: True), seed


def test_a_row_is_kept_as_long_as_the_watermark_allows_a_match_and_no_longer() -> None:
    runner = Runner(bounded("full", lower=-2, upper=3))
    rows = [("left", "a", 10, 1), ("right", "b", 10, 2)]
    runner.epoch(rows, None)
    assert runner.epoch([], 12) == []
    assert runner.epoch([], 13) == [("b", None, 2)]  # a left row of 12 could have come until now, at 10 - (-2)
    late = [("right", "a", 13, 3)]
    assert runner.epoch(late, 13) == [("a", 1, 3)]  # 13 is not before the watermark: it is in time
    assert runner.epoch([], 14) == []
    assert runner.entries() == 3  # the record with its deadline, the timer, and the right row: a left one may have 15
    assert runner.epoch([], 16) == []
    assert runner.entries() == 0


def test_a_late_row_that_can_find_nothing_any_more_comes_out_at_once_and_is_not_kept() -> None:
    runner = Runner(bounded("left", lower=0, upper=3))
    assert runner.epoch([("left", "a", 1, 7)], 50) == [("a", 7, None)]
    assert runner.entries() == 0


def test_times_at_the_end_of_time_still_come_out_at_the_end_of_the_input() -> None:
    runner = Runner(bounded("full", lower=-(10**15), upper=10**15))
    rows = [("left", "a", END_OF_TIME + 999_999, 1), ("right", "b", -62_135_596_800_000_000, 2)]
    assert runner.epoch(rows, None) == []
    assert Counter(runner.epoch([], END_OF_TIME)) == Counter([("a", 1, None), ("b", None, 2)])
    assert runner.entries() == 0


def test_one_timer_is_kept_per_key_however_many_rows_wait() -> None:
    runner = Runner(bounded("left", lower=0, upper=100))
    for time in (50, 20, 70, 10):
        runner.epoch([("left", "a", time, time)], None)
    assert runner.entries() == 4 + 2  # four rows, the record and the timer
    assert sorted(runner.epoch([], 121)) == [("a", 10, None), ("a", 20, None)]
    assert runner.entries() == 2 + 2


@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize(("before", "after"), [(3, 50), (50, 3)])
def test_a_join_whose_bounds_were_changed_still_drops_all_that_was_kept(how: str, before: int, after: int) -> None:
    runner = Runner(bounded(how, lower=0, upper=before))
    for time in range(0, 100, 7):
        runner.epoch([("left", "a", time, time)], None)
    runner.join = bounded(how, lower=0, upper=after)
    for watermark in range(0, 160, 10):
        runner.epoch([], watermark)
    assert runner.entries() == 0


def test_rows_that_wider_bounds_still_need_are_kept_when_the_old_bounds_have_passed() -> None:
    runner = Runner(bounded("inner", lower=0, upper=3))
    runner.epoch([("left", "a", 10, 1)], None)
    runner.join = bounded("inner", lower=0, upper=50)
    assert runner.epoch([], 30) == []
    assert runner.epoch([("right", "a", 40, 2)], 30) == [("a", 1, 2)]


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_of_rows_of_the_right_that_match_the_same_one_is_kept(how: str) -> None:
    runner = Runner(bounded(how, size=10))
    runner.epoch([("right", "a", time, time) for time in (1, 5, 9, 11, 12)], None)
    assert runner.entries() == 2 + 2  # one row for each window, the record and the timer
    found = runner.epoch([("left", "a", 8, 8), ("left", "a", 18, 18), ("left", "a", 28, 28)], None)
    assert sorted(found) == ([("a", 8), ("a", 18)] if how == "semi" else [])
    assert runner.epoch([], 100) == ([("a", 28)] if how == "anti" else [])
    assert runner.entries() == 0


def test_rows_kept_by_an_inner_join_do_not_come_out_alone_after_it_became_a_left_one() -> None:
    runner = Runner(bounded("inner", lower=0, upper=5))
    runner.epoch([("left", "a", 1, 1)], None)
    runner.join = bounded("left", lower=0, upper=5)
    runner.epoch([("left", "a", 2, 2)], None)
    assert runner.epoch([], 50) == [("a", 2, None)]


def test_a_ttl_ends_an_unbounded_wait() -> None:
    runner = Runner(UnboundedJoin(widths=(1, 1), types=TYPES, ttl=10))
    row = ("left", "a", None, 1), ("right", "a", None, 2)
    assert runner.epoch([row[0]], None, now=100) == []
    assert runner.epoch([row[1]], None, now=109) == [("a", 1, 2)]
    assert runner.epoch([row[1]], None, now=110) == []
    assert runner.epoch([row[0]], None, now=112) == [("a", 1, 2), ("a", 1, 2)]


def digest(function: KeyedFunction) -> str:
    return capture(function, what="a join", shipped=True).digest


def test_a_join_is_the_same_code_in_every_process_and_other_code_if_it_is_changed() -> None:
    program = "from tests.unit.operators.joins.test_task import *\nprint(digest(bounded('full', lower=1, upper=2)))"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == digest(bounded("full", lower=1, upper=2))
    assert told.stdout.strip() != digest(bounded("full", lower=1, upper=3))
    assert digest(Deduplicate("1 hour")) == digest(Deduplicate("60 min")) != digest(Deduplicate("2 hours"))
