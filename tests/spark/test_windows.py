"""Windows of event time over real Spark, compared with the definition in plain Python."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.operators.resolve import resolve
from tests.support.slow import slow
from tests.support.windowing import SCHEMA, START, Naive, bounds, cut, expected, late_rows, rows_of, some_events, utc

AGGREGATES = {"n": ms.count(), "total": ms.sum("price"), "best": ms.max("price")}
SHAPES = {"tumbling": (10, 10), "sliding": (10, 4)}


@pytest.mark.parametrize(("size", "slots"), [slow(9, 3), (40, 1), slow(200, 2)])
def test_windows_are_what_their_definition_says(spark: SparkSession, size: int, slots: int) -> None:
    events = some_events(seed=size, count=90)
    lists = cut(events, size)

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        timed = rows.with_watermark("ts", "5 seconds")
        for name, (length, slide) in SHAPES.items():
            window = ms.sliding(length, slide)
            keyed = timed.key_by("user").window(window).aggregate(name, slots=slots, **AGGREGATES)
            keyed.sink(f"{name}.out", ms.sinks.memory())
            keyed.late.sink(f"{name}.late.out", ms.sinks.memory())
            updates = timed.key_by("user").window(window).aggregate(f"{name}.updates", emit="update", **AGGREGATES)
            updates.sink(f"{name}.updates.out", ms.sinks.memory())
        timed.window(ms.tumbling(10)).aggregate("all", **AGGREGATES).sink("all.out", ms.sinks.memory())

    found = testing.run(spark, build, end_of_input=True, state=True, rows=testing.batches(SCHEMA, *map(rows_of, lists)))
    for name, (length, slide) in SHAPES.items():
        closed, updates = expected(Naive(length, slide, delay=5), lists)
        assert Counter(map(utc, found.rows(f"{name}.out"))) == closed, name
        assert Counter(map(utc, found.rows(f"{name}.updates.out"))) == updates, name
        assert found.rows(f"{name}.late.out") == []
        assert found.state[name]["record"] == [], "nothing is kept of windows that are closed"
    assert Counter(map(utc, found.rows("all.out"))) == expected(Naive(10, 10, delay=5, keyed=False), lists)[0]


@pytest.mark.parametrize("lateness", [slow(0), 6])
def test_late_rows_are_counted_and_given_out_with_a_reason(spark: SparkSession, lateness: int) -> None:
    events = [*some_events(seed=5, count=100, disorder=20.0), ("eve", 1, None), (None, None, None)]
    lists = cut(events, 34)

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        timed = rows.with_watermark("ts", "1 second")
        for name, (length, slide) in SHAPES.items():
            windows = timed.key_by("user").window(ms.sliding(length, slide))
            made = windows.aggregate(name, lateness=lateness, **AGGREGATES)
            made.sink(f"{name}.out", ms.sinks.memory())
            made.late.sink(f"{name}.late.out", ms.sinks.memory())

    found = testing.run(spark, build, end_of_input=True, rows=testing.batches(SCHEMA, *map(rows_of, lists)))
    for name, (length, slide) in SHAPES.items():
        naive = Naive(length, slide, delay=1, lateness=lateness)
        closed, _ = expected(naive, lists)
        assert Counter(map(utc, found.rows(f"{name}.out"))) == closed, name
        late = late_rows(naive)
        assert Counter(map(utc, found.rows(f"{name}.late.out"))) == late, name
        assert sum(epoch.late[name] for epoch in found.epochs()) == late.total() > 2


def test_windows_go_on_after_crashes(spark: SparkSession) -> None:
    lists = cut(some_events(seed=11, count=100), 20)
    faults: list[Any] = []
    for number, events in enumerate(lists):
        faults += [testing.Crash()] if number in (1, 3) else []
        faults.append(rows_of(events))

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        windows = rows.with_watermark("ts", "5 seconds").key_by("user").window(ms.sliding(10, 2))
        windows.aggregate("sums", **AGGREGATES).sink("out", ms.sinks.memory())

    found = testing.run(spark, build, end_of_input=True, rows=testing.batches(SCHEMA, *faults))
    assert found.crashes == 2
    assert Counter(map(utc, found.rows("out"))) == expected(Naive(10, 2, delay=5), lists)[0]


@pytest.mark.parametrize("size", [slow(9), 200])
def test_the_top_of_a_window_is_what_sorting_all_of_it_gives(spark: SparkSession, size: int) -> None:
    events = some_events(seed=21, count=90)
    lists = cut(events, size)

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        timed = rows.with_watermark("ts", "5 seconds")
        counts = timed.key_by("user").window(ms.sliding(10, 2)).aggregate("counts", n=ms.count())
        counts.top("busiest", 2, by="n").sink("busiest.out", ms.sinks.memory())
        timed.window(ms.tumbling(10)).top("best", 1, by="price").sink("best.out", ms.sinks.memory())
        timed.key_by("user").window(ms.sliding(10, 5)).top("two", 2, by="price").sink("two.out", ms.sinks.memory())
        timed.window(ms.tumbling(10)).top("one", 1, by="price", ties=False).sink("one.out", ms.sinks.memory())

    found = testing.run(spark, build, end_of_input=True, rows=testing.batches(SCHEMA, *map(rows_of, lists)))
    counted = Counter[Any]()
    for user, _, at in events:
        counted.update((user, start) for start in Naive(10, 2).windows(at or 0.0))
    busiest = [(*utc((user, *bounds(start, 10))), n) for (user, start), n in leading(counted.items(), 2, per=1)]
    assert Counter(map(utc, found.rows("busiest.out"))) == Counter(busiest)
    assert Counter(map(utc, found.rows("best.out"))) == raw_top(events, 10, 10, 1, keyed=False)
    assert Counter(map(utc, found.rows("two.out"))) == raw_top(events, 10, 5, 2, keyed=True)
    ones = Counter(map(utc, found.rows("one.out")))
    first: dict[Any, Any] = {}  # of equal rows of a window
    for row in sorted(raw_top(events, 10, 10, 1, keyed=False), key=lambda row: [(v is not None, v) for v in row]):
        first.setdefault(row[-1], row)
    assert ones == Counter(first.values())


@pytest.mark.parametrize("often", [{"lateness": 5}, {"emit": "update"}])
def test_what_takes_windows_once_is_refused_where_they_come_out_again(spark: SparkSession, often: Any) -> None:
    def counts(**options: Any) -> Any:
        rows = spark.readStream.format("rate").load().selectExpr("value % 3 as user", "timestamp as ts")
        timed = ms.Flow("flow").source("rows", rows).with_watermark("ts", 0)
        return timed.key_by("user").window(ms.tumbling(10)).aggregate("counts", n=ms.count(), **options)

    some = counts(**often).transform("some", lambda df: df.where("n > 1"))
    some.window(ms.tumbling(20)).aggregate("sums", n=ms.sum("n"))
    with pytest.raises(ms.PlanError, match="'sums' takes each window of 'counts' once"):
        resolve(spark, some.flow.plan())
    top = counts(**often).top("busiest", by="n")
    with pytest.raises(ms.PlanError, match="'busiest' takes each window of 'counts' once"):
        resolve(spark, top.flow.plan())
    top = counts().top("busiest", by="n")
    resolve(spark, top.flow.plan())
    later = ms.replace("counts", ms.key_by("user").window(ms.tumbling(10)).aggregate(n=ms.count(), **often))
    with pytest.raises(ms.PlanError, match="'busiest' takes each window of 'counts' once"):
        resolve(spark, later.apply(top.flow.plan()))


@pytest.mark.parametrize("slide", [10, slow(5)])
def test_rows_that_come_too_late_for_the_top_of_a_window_are_seen_and_counted(spark: SparkSession, slide: int) -> None:
    lists = cut([*some_events(seed=22, count=90, disorder=15.0), ("eve", 99, None)], 13)

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        timed = rows.with_watermark("ts", "1 second")
        best = timed.key_by("user").window(ms.sliding(10, slide)).top("best", by="price")
        best.sink("out", ms.sinks.memory())
        best.late.sink("late.out", ms.sinks.memory())

    found = testing.run(spark, build, end_of_input=True, rows=testing.batches(SCHEMA, *map(rows_of, lists)))
    naive = Naive(10, slide, delay=1)
    expected(naive, lists)
    assert Counter(map(utc, found.rows("late.out"))) == late_rows(naive)
    assert sum(epoch.late["best"] for epoch in found.epochs()) == naive.late.total() > 5
    wanted = Counter[Any]()
    for (user, start), prices in naive.kept.items():
        best = max((price for price in prices if price is not None), default=None)
        wanted[(user, best, *utc(bounds(start, 10)))] += prices.count(best)
    assert Counter((row.user, row.price, *utc(row[-2:])) for row in found.rows("out")) == wanted


def leading(items: Any, n: int, per: int) -> list[Any]:
    """The items with at most n - 1 greater ones among those of their window."""
    items = list(items)
    return [one for one in items if sum(o[0][per] == one[0][per] and o[1] > one[1] for o in items) < n]


def raw_top(events: list[Any], size: int, slide: int, n: int, *, keyed: bool) -> Counter[Any]:
    placed = [(event, start) for event in events for start in Naive(size, slide).windows(event[2])]
    found = Counter[Any]()
    for event, start in placed:
        rivals = [e for e, s in placed if s == start and (not keyed or e[0] == event[0])]
        worth = -1000 if event[1] is None else event[1]
        if sum((-1000 if rival[1] is None else rival[1]) > worth for rival in rivals) < n:
            found[(*utc(rows_of([event])[0]), *bounds(start, size))] += 1
    return found


def test_windows_that_are_open_go_on_from_a_savepoint(spark: SparkSession, tmp_path: Path) -> None:
    lists = cut(some_events(seed=31, count=80), 20)
    out = ms.sinks.memory()

    def flow(files: int, sink: Any) -> ms.Flow:
        made = ms.Flow("windows")
        rows = testing.source(spark, str(tmp_path / "rows"), SCHEMA, [rows_of(events) for events in lists[:files]])
        windows = made.source("rows", rows).with_watermark("ts", "5 seconds").key_by("user").window(ms.sliding(10, 2))
        windows.aggregate("sums", **AGGREGATES).sink("out", sink)
        return made

    options: dict[str, Any] = {"cache": tmp_path / "cache"}
    first = flow(2, out).start(tmp_path / "first", trigger=ms.available_now(), **options)
    first.await_termination()
    saved = first.savepoint(tmp_path / "saved")
    rest = ms.sinks.memory()
    second = flow(4, rest).start(
        tmp_path / "second", trigger=ms.available_now(end_of_input=True), savepoint=saved, groups=7, **options
    )
    second.await_termination()
    found = Counter(map(utc, [*out.rows(), *rest.rows()]))
    assert out.rows()
    assert found == expected(Naive(10, 2, delay=5), lists)[0]


def test_windows_of_windows_and_of_what_timers_give_out_at_the_end_lose_nothing(spark: SparkSession) -> None:
    lists = cut(some_events(seed=3, count=60, disorder=3.0, per_second=1.0), 30)

    class AtTheEnd(ms.KeyedFunction):
        n = ms.value("long", default=0)

        def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> None:
            self.n += len(rows)
            ctx.set_event_timer(START + timedelta(days=1))

        def on_timer(self, key: Any, timer: ms.Timer, ctx: ms.Context) -> Any:
            yield key, timer.at, self.n

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        timed = rows.with_watermark("ts", "3 seconds")
        seconds = timed.key_by("user").window(ms.tumbling(1)).aggregate("seconds", n=ms.count())
        for name, window in {"same": ms.tumbling(1), "ten": ms.tumbling(10), "slides": ms.sliding(4, 2)}.items():
            again = seconds.key_by("user").window(window)
            again.aggregate(name, n=ms.sum("n")).sink(f"{name}.out", ms.sinks.memory())
            again.aggregate(f"{name}.up", n=ms.sum("n"), emit="update").sink(f"{name}.up.out", ms.sinks.memory())
        last = timed.key_by("user").process("last", AtTheEnd(), schema="user string, ts timestamp, n long")
        last.key_by("user").window(ms.tumbling(1)).aggregate("end", n=ms.sum("n")).sink("end.out", ms.sinks.memory())

    batches = testing.batches(SCHEMA, *map(rows_of, lists))
    found = testing.run(spark, build, end_of_input=True, state=True, rows=batches)
    for name, (size, slide) in {"same": (1, 1), "ten": (10, 10), "slides": (4, 2)}.items():
        counted = Counter[Any]()
        for user, _, at in (event for events in lists for event in events):
            counted.update((user, *utc(bounds(start, size))) for start in Naive(size, slide).windows(int(at or 0)))
        assert Counter(map(utc, found.rows(f"{name}.out"))) == Counter((*key, n) for key, n in counted.items()), name
        assert {utc(row)[:3]: row.n for row in found.rows(f"{name}.up.out")} == counted, name
        assert found.state[name]["record"] == found.state[f"{name}.up"]["record"] == [], name
    assert sum(row.n for row in found.rows("end.out")) == 60
