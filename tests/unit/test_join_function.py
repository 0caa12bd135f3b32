"""Joins and deduplication against nested loops over all rows; kind, outer sides, epochs and disorder are random."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from midstream.code import capture
from midstream.deduplication import Deduplicate
from midstream.functions import Context, KeyedFunction, state_fields
from midstream.join_function import BoundedJoin, UnboundedJoin
from midstream.state.forms import Form
from midstream.state.keyed import GroupState
from midstream.state.memory import MemoryStore
from midstream.state.store import FIRST, LAST, Version
from midstream.state.wire import moment_of
from tests.edits import Edits

END_OF_TIME = 253_402_300_799_000_000
DELAY = 5
ROW = pa.struct([("n", pa.int64())])
MANY = pa.list_(pa.struct([("row", ROW), ("matched", pa.bool_())]))
MOMENT = pa.timestamp("us", tz="UTC")
TYPES = {"deadline": MOMENT, "left": MANY, "right": MANY, "left key": MOMENT, "right key": MOMENT}
COMMON: dict[str, Any] = {"keys": 1, "widths": (1, 1), "types": ("struct<n: bigint>", "struct<n: bigint>")}

Row = tuple[str, str | None, int | None, int]  # side, key, event time, a number


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


def run_join(function: KeyedFunction, types: dict[str, pa.DataType], epochs: list[list[Row]]) -> tuple[Runner, Any]:
    runner, seen, found = Runner(function, types), dict[str, int](), Counter[Any]()
    for rows in epochs:
        watermark = min(seen.values()) - DELAY if len(seen) == 2 else None
        ordered = sorted(rows, key=lambda row: (row[2] is None, row[2] or 0, repr(row)))
        found.update(runner.epoch([(row[1], in_common_form(row)) for row in ordered], watermark))
        for side, _, time, _ in rows:
            if time is not None:
                seen[side] = max(seen.get(side, time), time)
    found.update(runner.epoch([], END_OF_TIME))
    return runner, found


def in_common_form(row: Row) -> tuple[Any, ...]:
    side, key, time, number = row
    kept = {"n": number}
    moment = None if time is None else moment_of(time)
    return key, side, moment, *((kept, None) if side == "left" else (None, kept))


def nested_loops(rows: list[Row], how: str, related: Callable[[int, int], bool]) -> Counter[Any]:
    """What the join is, by its definition."""
    lefts, rights = ([row for row in rows if row[0] == side] for side in ("left", "right"))

    def match(left: Row, right: Row) -> bool:
        if left[1] is None or left[1] != right[1] or left[2] is None or right[2] is None:
            return False
        return related(left[2], right[2])

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


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_an_interval_join_is_what_nested_loops_give(how: str) -> None:
    for seed in range(200):
        draw = Random(seed)
        rows, lower = stream(draw), draw.randrange(-8, 9)
        upper = lower + draw.randrange(10)
        function = BoundedJoin(**COMMON, how=how, lower=lower, upper=upper)
        runner, found = run_join(function, TYPES, cut(rows, draw))
        assert found == nested_loops(rows, how, within(lower, upper)), seed
        assert runner.entries() == 0, "at the end of the input nothing is kept"


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_a_window_join_is_what_nested_loops_give(how: str) -> None:
    for seed in range(200):
        draw = Random(seed)
        rows, size = stream(draw), draw.randrange(1, 12)
        runner, found = run_join(BoundedJoin(**COMMON, how=how, size=size), TYPES, cut(rows, draw))
        assert found == nested_loops(rows, how, one_window(size)), seed
        assert runner.entries() == 0, "at the end of the input nothing is kept"


def test_an_unbounded_join_gives_every_pair_once() -> None:
    for seed in range(200):
        draw = Random(seed)
        rows = [(side, key, 0, number) for side, key, _, number in stream(draw)]
        _, found = run_join(UnboundedJoin(**COMMON, ttl=0), {"left": ROW, "right": ROW}, cut(rows, draw))
        assert found == nested_loops(rows, "inner", lambda left, right: True), seed


def test_a_row_is_kept_as_long_as_the_watermark_allows_a_match_and_no_longer() -> None:
    runner = Runner(BoundedJoin(**COMMON, how="full", lower=-2, upper=3), TYPES)
    rows = [("left", "a", 10, 1), ("right", "b", 10, 2)]
    runner.epoch([(row[1], in_common_form(row)) for row in rows], None)
    assert runner.epoch([], 12) == []
    assert runner.epoch([], 13) == [("b", None, 2)]  # a left row of 12 could have come until now, at 10 - (-2)
    late = [("a", in_common_form(("right", "a", 13, 3)))]
    assert runner.epoch(late, 13) == [("a", 1, 3)]  # 13 is not before the watermark: it is in time
    assert runner.epoch([], 14) == []
    assert runner.entries() == 3  # the record with its deadline, the timer, and the right row: a left one may have 15
    assert runner.epoch([], 16) == []
    assert runner.entries() == 0


def test_a_late_row_that_can_find_nothing_any_more_comes_out_at_once_and_is_not_kept() -> None:
    runner = Runner(BoundedJoin(**COMMON, how="left", lower=0, upper=3), TYPES)
    assert runner.epoch([("a", in_common_form(("left", "a", 1, 7)))], 50) == [("a", 7, None)]
    assert runner.entries() == 0


def test_times_at_the_end_of_time_still_come_out_at_the_end_of_the_input() -> None:
    runner = Runner(BoundedJoin(**COMMON, how="full", lower=-(10**15), upper=10**15), TYPES)
    rows = [("left", "a", END_OF_TIME + 999_999, 1), ("right", "b", -62_135_596_800_000_000, 2)]
    assert runner.epoch([(row[1], in_common_form(row)) for row in rows], None) == []
    assert Counter(runner.epoch([], END_OF_TIME)) == Counter([("a", 1, None), ("b", None, 2)])
    assert runner.entries() == 0


def test_one_timer_is_kept_per_key_however_many_rows_wait() -> None:
    runner = Runner(BoundedJoin(**COMMON, how="left", lower=0, upper=100), TYPES)
    for time in (50, 20, 70, 10):
        runner.epoch([("a", in_common_form(("left", "a", time, time)))], None)
    assert runner.entries() == 4 + 2  # four rows, the record and the timer
    assert runner.epoch([], 121) == [("a", 10, None), ("a", 20, None)]
    assert runner.entries() == 2 + 2


@pytest.mark.parametrize(("before", "after"), [(3, 50), (50, 3)])
def test_a_join_whose_bounds_were_changed_still_drops_all_that_was_kept(before: int, after: int) -> None:
    runner = Runner(BoundedJoin(**COMMON, how="left", lower=0, upper=before), TYPES)
    for time in range(0, 100, 7):
        runner.epoch([("a", in_common_form(("left", "a", time, time)))], None)
    runner.function = BoundedJoin(**COMMON, how="left", lower=0, upper=after)
    for watermark in range(0, 160, 10):
        runner.epoch([], watermark)
    assert runner.entries() == 0


def test_rows_kept_by_an_inner_join_do_not_come_out_alone_after_it_became_a_left_one() -> None:
    runner = Runner(BoundedJoin(**COMMON, how="inner", lower=0, upper=5), TYPES)
    runner.epoch([("a", in_common_form(("left", "a", 1, 1)))], None)
    runner.function = BoundedJoin(**COMMON, how="left", lower=0, upper=5)
    runner.epoch([("a", in_common_form(("left", "a", 2, 2)))], None)
    assert runner.epoch([], 50) == [("a", 2, None)]


def test_a_ttl_ends_an_unbounded_wait() -> None:
    runner = Runner(UnboundedJoin(**COMMON, ttl=10), {"left": ROW, "right": ROW})
    row = in_common_form(("left", "a", None, 1)), in_common_form(("right", "a", None, 2))
    assert runner.epoch([("a", row[0])], None, now=100) == []
    assert runner.epoch([("a", row[1])], None, now=109) == [("a", 1, 2)]
    assert runner.epoch([("a", row[1])], None, now=110) == []
    assert runner.epoch([("a", row[0])], None, now=112) == [("a", 1, 2), ("a", 1, 2)]


def digest(function: KeyedFunction) -> str:
    return capture(function, what="a join", shipped=True).digest


def test_a_join_is_the_same_code_in_every_process_and_other_code_if_it_is_changed() -> None:
    program = (
        "from tests.unit.test_join_function import *\n"
        "print(digest(BoundedJoin(**COMMON, how='full', lower=1, upper=2)))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == digest(BoundedJoin(**COMMON, how="full", lower=1, upper=2))
    assert told.stdout.strip() != digest(BoundedJoin(**COMMON, how="full", lower=1, upper=3))
    assert digest(Deduplicate("1 hour")) == digest(Deduplicate("60 min")) != digest(Deduplicate("2 hours"))


# --- deduplication --------------------------------------------------------------------------------------------------


def deduplication(within: int, *, timed: bool) -> Runner:
    return Runner(Deduplicate(within / 1e6), {"passed": pa.list_(MOMENT)}, 0 if timed else None)


def test_of_rows_close_together_the_first_passes() -> None:
    for seed in range(200):
        draw = Random(seed)
        rows, span = [row for row in stream(draw) if row[0] == "left"], draw.randrange(1, 15)
        runner, passed, seen = deduplication(span, timed=True), list[int](), list[int]()
        for epoch in cut(rows, draw):
            times = sorted(time for _, _, time, _ in epoch if time is not None)
            watermark = max(seen) - DELAY if seen else None
            found = runner.epoch([("a", (moment_of(time), time)) for time in times], watermark)
            expected = []
            for time in times:  # the oracle forgets nothing
                if all(abs(time - other) >= span for other in passed):
                    passed.append(time)
                    expected.append(time)
            seen += times
            assert [row[1] for row in found] == expected, seed
        runner.epoch([], END_OF_TIME)
        assert runner.entries() == 0


def test_without_event_time_the_clock_of_the_epochs_counts() -> None:
    runner = deduplication(10, timed=False)
    given = [(now, runner.epoch([("a", ("row", now)), ("a", ("row", now))], None, now=now)) for now in (0, 9, 10, 15)]
    assert [(now, len(rows)) for now, rows in given] == [(0, 1), (9, 0), (10, 1), (15, 0)]
    runner.epoch([], None, now=20)
    assert runner.entries() == 0


def test_rows_without_a_time_always_pass() -> None:
    runner = deduplication(10, timed=True)
    assert len(runner.epoch([("a", (None, 1)), ("a", (None, 1)), ("a", (moment_of(3), 2))], None)) == 3
