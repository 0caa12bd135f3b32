"""Deduplication against a loop over all rows; epochs and disorder are random."""

from __future__ import annotations

from random import Random

import pyarrow as pa

from midstream.operators.functions.deduplicate import Deduplicate
from midstream.state.values import moment_of
from tests.support.function_runner import Runner
from tests.support.join_slot import DELAY, END_OF_TIME, MOMENT, cut, stream


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
