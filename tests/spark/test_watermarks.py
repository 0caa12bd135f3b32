"""What moves the watermark: the slowest source that is awake, punctuations, and no row from a bad clock."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from tests.support.windowing import ENDS, SCHEMA, START, Naive, NaiveSessions, cut, expected, rows_of, some_events, utc


def counts(stream: ms.Stream, id: str) -> Any:
    return stream.window(ms.tumbling(10)).aggregate(id, n=ms.count())


def closed(found: testing.Result, sink: str) -> dict[int, list[tuple[int, int]]]:
    """Epoch -> (start of a window in seconds, rows)."""
    return {
        epoch: sorted(((row.window_start.astimezone() - START).seconds, row.n) for row in rows)
        for epoch, rows in found.outputs[sink].items()
        if rows
    }


def test_a_source_without_rows_holds_others_back_until_it_is_idle(spark: SparkSession) -> None:
    busy = [[("ann", 1, 5.0 + 10 * epoch)] for epoch in range(8)]
    quiet: list[Any] = [[("bob", 1, 5.0)], *([] for _ in range(7))]

    def build(flow: ms.Flow, busy: ms.Stream, quiet: ms.Stream) -> None:
        for id, idle_after in (("patient", 0), ("brisk", "2.5 seconds")):
            one = busy.with_watermark("ts", 0, id=f"{id}.busy")
            other = quiet.with_watermark("ts", 0, idle_after=idle_after, id=f"{id}.quiet")
            counts(one.union(f"{id}.both", other), id).sink(f"{id}.out", ms.sinks.memory())

    inputs = {name: testing.batches(SCHEMA, *map(rows_of, lists)) for name, lists in (("busy", busy), ("quiet", quiet))}
    found = testing.run(spark, build, end_of_input=True, **inputs)
    everything = [(0, 2), *((10 * n, 1) for n in range(1, 8))]
    assert closed(found, "patient.out") == {8: everything}
    # The clock goes on a second per epoch: in epoch 3 the quiet one has been so for three seconds.
    assert closed(found, "brisk.out") == {
        3: [(0, 2), (10, 1)], 4: [(20, 1)], 5: [(30, 1)], 6: [(40, 1)], 7: [(50, 1)], 8: [(60, 1), (70, 1)],
    }  # fmt: skip


def test_a_punctuation_closes_windows_at_once(spark: SparkSession) -> None:
    lists = [[("ann", 1, 5.0), ("bob", 1, 15.0)], [("end", 0, 20.0)], [("cid", 1, 25.0)], [("dan", 1, 26.0)]]

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        timed = rows.with_watermark("ts", "1 hour", punctuation="user = 'end'")
        counts(timed, "n").sink("out", ms.sinks.memory())

    found = testing.run(spark, build, end_of_input=True, rows=testing.batches(SCHEMA, *map(rows_of, lists)))
    assert closed(found, "out") == {2: [(0, 1), (10, 1)], 4: [(20, 3)]}


def test_a_row_ends_the_window_of_its_key_and_no_other(spark: SparkSession) -> None:
    lists = cut(some_events(seed=3, count=90), 15)
    faults: list[Any] = [*map(rows_of, lists[:3]), testing.Crash(), *map(rows_of, lists[3:])]
    aggregates = {"n": ms.count(), "total": ms.sum("price"), "best": ms.max("price")}

    windows = {
        "tumbling": (ms.tumbling(10), Naive(10, 10, 5, ends=True)),
        "sliding": (ms.sliding(10, 2), Naive(10, 2, 5, ends=True)),
        "sessions": (ms.session(2), NaiveSessions(2, 5, ends=True)),
    }

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        keyed = rows.with_watermark("ts", "5 seconds").key_by("user")
        for name, (window, _) in windows.items():
            ended = keyed.window(window).with_punctuation(f"price >= {ENDS}")
            ended.aggregate(name, slots=2, **aggregates).sink(f"{name}.out", ms.sinks.memory())

    found = testing.run(spark, build, end_of_input=True, state=True, rows=testing.batches(SCHEMA, *faults))
    for name, (_, naive) in windows.items():
        assert Counter(map(utc, found.rows(f"{name}.out"))) == expected(naive, lists)[0], name
        assert {kind: rows for kind, rows in found.state[name].items() if rows} == {}, "nothing is kept of what is over"
    for name in ("tumbling", "sliding"):
        early = {row.user for row in found.outputs[f"{name}.out"][0]}
        assert early == {user for user, price, _ in lists[0] if (price or 0) >= ENDS} != set(), f"{name}: at once"


def test_a_row_ends_all_windows_of_its_key_that_a_top_has_for_it(spark: SparkSession) -> None:
    lists = cut(some_events(seed=8, count=90), 15)
    shapes = {"keyed": (10, 5, True), "all": (8, 8, False)}
    faults: list[Any] = [*map(rows_of, lists[:3]), testing.Crash(), *map(rows_of, lists[3:])]

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        timed = rows.with_watermark("ts", "5 seconds")
        for name, (size, slide, keyed) in shapes.items():
            stream = timed.key_by("user") if keyed else timed
            windows = stream.window(ms.sliding(size, slide)).with_punctuation(f"price >= {ENDS}")
            windows.top(name, 2, by="price", slots=2).sink(f"{name}.out", ms.sinks.memory())

    found = testing.run(spark, build, end_of_input=True, state=True, rows=testing.batches(SCHEMA, *faults))
    for name, (size, slide, keyed) in shapes.items():
        given = Counter(
            (row.user if keyed else "all", row.price, utc([row.window_start])[0]) for row in found.rows(f"{name}.out")
        )
        assert given == expected(NaiveTop(size, slide, 5, keyed=keyed, ends=True), lists)[0], name
        assert {kind: rows for kind, rows in found.state[name].items() if rows} == {}, "nothing is kept of what is over"


class NaiveTop(Naive):
    """The two greatest prices of each window, and those that are equal."""

    def shown(self, keys: set[tuple[Any, int]]) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for user, start in keys:
            worth = [-1000 if price is None else price for price in self.kept[user, start]]
            for price, its in zip(self.kept[user, start], worth, strict=True):
                found[user, price, START + timedelta(seconds=start)] += sum(other > its for other in worth) < 2
        return +found


def test_punctuations_of_windows_that_cannot_be_are_refused(spark: SparkSession) -> None:
    def build(window: Any, predicate: str) -> Any:
        def flow(flow: ms.Flow, rows: ms.Stream) -> None:
            windows = rows.with_watermark("ts", 0).key_by("user").window(window).with_punctuation(predicate)
            windows.aggregate("n", n=ms.count()).sink("out", ms.sinks.memory())

        return flow

    for window, predicate, complaint in (
        (ms.count_window(10), "prise = 1", "window 'n': the punctuation 'prise = 1' is not a condition on a row"),
        (ms.tumbling(10), "prise = 1", "the punctuation 'prise = 1' is not a condition on a row"),
    ):
        with pytest.raises(ms.PlanError, match=complaint):
            testing.run(spark, build(window, predicate), rows=testing.batches(SCHEMA, []))


def test_one_bad_clock_does_not_close_every_window(spark: SparkSession) -> None:
    lists = [[("ann", 1, 5.0), ("bad", 1, 86_400.0 * 365)], [("bob", 1, 6.0)], [("cid", 1, 15.0)], [("dan", 1, 16.0)]]

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        made = counts(rows.with_watermark("ts", 0, ahead="1 hour"), "n")
        made.sink("out", ms.sinks.memory())
        made.late.sink("late", ms.sinks.memory())

    clock = testing.ManualClock(START, step="1 second")
    found = testing.run(
        spark, build, end_of_input=True, clock=clock, rows=testing.batches(SCHEMA, *map(rows_of, lists))
    )
    assert closed(found, "out") == {3: [(0, 2)], 4: [(10, 2)]}
    (late,) = found.rows("late")
    assert (late.user, late.late_reason) == ("bad", "too far ahead")
    assert late.ts.astimezone() == START + timedelta(days=365)
    assert sum(epoch.late["n"] for epoch in found.epochs()) == 1


def test_a_punctuation_that_is_no_condition_is_refused(spark: SparkSession) -> None:
    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        counts(rows.with_watermark("ts", 0, punctuation="usr = 'end'"), "n").sink("out", ms.sinks.memory())

    with pytest.raises(ms.PlanError, match="the punctuation \"usr = 'end'\" is not a condition on a row"):
        testing.run(spark, build, rows=testing.batches(SCHEMA, []))
