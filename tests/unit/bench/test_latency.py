"""Latency of rows at a constant rate: a row waits until an epoch that begins after it ends."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.bench.latency import EpochTimes, epochs_of, latencies, milliseconds, quantiles
from midstream.bench.oracle import ResultError


def one_by_one(epochs: list[EpochTimes], moments: Any) -> list[float]:
    """What each row waits, looked up in all epochs."""
    found = []
    for moment in moments:
        taking = [epoch for epoch in epochs if epoch.begin >= moment]
        if taking:
            found.append(min(taking, key=lambda epoch: epoch.begin).end - moment)
    return found


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(0, 300))
def test_a_row_is_taken_by_the_first_epoch_that_begins_after_it(lengths: list[int], start: int):
    edges = np.cumsum([0, *lengths]) / 10
    epochs = [EpochTimes(begin, end) for begin, end in pairwise(edges)]
    begin = start / 100
    found = latencies(epochs, begin, begin + 0.5)
    assert np.allclose(found, one_by_one(epochs, np.arange(begin, begin + 0.5, 0.01)))


def test_rows_that_no_epoch_has_taken_yet_have_none():
    assert len(latencies([EpochTimes(0, 1)], 0.5, 0.6)) == 0
    assert len(latencies([], 0.0, 1.0)) == 0


def test_quantiles_are_in_whole_milliseconds():
    found = np.arange(1, 101) / 1000
    assert quantiles(found) == {"p50_ms": 50, "p99_ms": 99, "max_ms": 100}
    assert quantiles(np.array([0.25])) == {"p50_ms": 250, "p99_ms": 250, "max_ms": 250}


def test_where_nothing_was_measured_no_figure_is_made_up():
    with pytest.raises(ResultError, match="no epoch ended in the stretch that was measured: the load is too high"):
        quantiles(np.array([]))


@pytest.mark.parametrize(("seconds", "expected"), [(0, 0), (0.0004, 0), (0.0006, 1), (1.5, 1500)])
def test_milliseconds_are_rounded(seconds: float, expected: int):
    assert milliseconds(seconds) == expected


def test_epochs_are_those_that_spark_has_finished():
    def progress(batch: int, **durations: int) -> dict[str, Any]:
        at = f"1970-01-01T00:00:0{batch}.500Z"
        return {"timestamp": at, "durationMs": durations, "batchId": batch, "numInputRows": 10 * batch}

    reported = [progress(1, triggerExecution=250), progress(2, latestOffset=3), progress(3, triggerExecution=100)]
    found = epochs_of(SimpleNamespace(recentProgress=reported))  # type: ignore[arg-type]
    assert found == [EpochTimes(1.5, 1.75, 1, 10), EpochTimes(3.5, 3.6, 3, 30)]
    assert found[0].seconds == 0.25
