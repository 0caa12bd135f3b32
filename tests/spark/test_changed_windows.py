"""Windows whose size is changed while they are open, over real Spark, compared with the rule in plain Python."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import midstream as ms
from midstream import testing
from midstream.operators.watermarks import varying
from midstream.plan.window_regimes import Regime, pane_sql
from midstream.plan.windows import CountWindow, TimeWindow
from midstream.testing import Live
from tests.support.counting import Naive as Counted
from tests.support.windowing import (
    SCHEMA,
    Changing,
    Event,
    NaiveSessions,
    bounds,
    cut,
    pane_of,
    rows_of,
    some_events,
    utc,
)

AGGREGATES = {"n": ms.count(), "total": ms.sum("price"), "best": ms.max("price")}
END: Event = ("eve", 1, 1000.0)  # closes all windows before it


@pytest.mark.parametrize("forgotten", [None, -3, 21, 44, 70])
def test_the_jvm_gives_each_row_the_pane_that_the_regimes_say(spark: SparkSession, forgotten: int | None) -> None:
    chains = [
        [Regime(TimeWindow(10, 5))],
        [Regime(TimeWindow(10, 10), until=45), Regime(TimeWindow(15, 15), since=45)],
        [Regime(TimeWindow(20, 4), -8, 14), Regime(TimeWindow(7, 7), 14, 28), Regime(TimeWindow(6, 3), 30)],
    ]
    times = [*range(-30, 90), None]
    frame = spark.createDataFrame([(time,) for time in times], "t long")
    moment = None if forgotten is None else varying(forgotten, "t")
    found = frame.selectExpr("t", *(f"({pane_sql(c, 't', moment)}) as c{i}" for i, c in enumerate(chains))).collect()
    for row in found:
        assert row[1:] == tuple(None if row.t is None else pane_of(chain, row.t, forgotten) for chain in chains)


class Shaped:
    """A window operator, how it is changed, and what it must give out."""

    def __init__(self, emit: str, lateness: int, *shapes: tuple[int, int]) -> None:
        self.emit, self.lateness, self.shapes = emit, lateness, list(shapes)
        self.naive = Changing(*shapes[0], delay=2, lateness=lateness)
        self.out, self.late = ms.sinks.memory(), ms.sinks.memory()
        self.expected = Counter[Any]()

    def build(self, keyed: Any, id: str) -> Any:
        return keyed.window(ms.sliding(*self.shapes[0])).aggregate(
            id, lateness=self.lateness, emit=self.emit, **AGGREGATES
        )

    def replacement(self, id: str) -> Any:
        self.shapes.append(self.shapes.pop(0))
        windows = ms.key_by("user").window(ms.sliding(*self.shapes[0]))
        return ms.replace(id, windows.aggregate(lateness=self.lateness, emit=self.emit, **AGGREGATES))

    def took(self, events: list[Event]) -> None:
        self.expected += self.naive.epoch(events)[0 if self.emit == "watermark" else 1]

    def check(self, id: str) -> None:
        assert Counter(map(utc, self.out.rows())) == self.expected, id
        if id != "tens":
            return
        late = Counter((*utc(rows_of([event[:3]])[0]), event[3]) for event in self.naive.late.elements())
        assert Counter(map(utc, self.late.rows())) == late, id


def test_what_is_open_keeps_its_size_through_changes_an_undo_and_a_restart(spark: SparkSession) -> None:
    lists = cut(some_events(seed=8, count=60, disorder=25.0, per_second=1.0), 10)
    shaped = {
        "tens": Shaped("watermark", 0, (10, 10), (15, 15)),
        "slides": Shaped("watermark", 0, (12, 3), (10, 4)),
        "ups": Shaped("update", 6, (20, 5), (10, 5)),  # in panes of the same length
    }

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        keyed = rows.with_watermark("ts", 2).key_by("user")
        for id, each in shaped.items():
            made = each.build(keyed, id)
            made.sink(f"{id}.out", each.out)
            if id == "tens":
                made.late.sink("late", each.late)

    with Live(spark, build, options={"on_drift": "keep"}, rows=SCHEMA) as live:

        def feed(events: list[Event]) -> None:
            live.feed("rows", rows_of(events))
            for each in shaped.values():
                each.took(events)

        def regimes(id: str) -> int:
            assert live.job._engine.history.last is not None
            return len(live.job._engine.history.last.operators[id].regimes)

        for events in lists[:3]:
            feed(events)
        live.modify(*(each.replacement(id) for id, each in shaped.items()))
        for each in shaped.values():
            each.naive.change(*each.shapes[0])
        feed(lists[3])
        assert {id: regimes(id) for id in shaped} == dict.fromkeys(shaped, 2)
        live.job.stop()
        for each in shaped.values():  # what the restart must not ask for is the shape in the script
            each.shapes.append(each.shapes.pop(0))
        live.job = live._start()
        feed(lists[4])
        live.job.modifications[0].undo().wait(60)
        live.modify(ms.rescale("tens", slots=3))
        for each in shaped.values():
            each.naive.change(*each.shapes[0])
        feed(lists[5])
        feed([END])
        feed([])
        live.next_epoch()
        assert {id: regimes(id) for id in shaped} == dict.fromkeys(shaped, 1), "what is past is forgotten"
    for id, each in shaped.items():
        each.check(id)
    assert shaped["tens"].naive.late


def test_a_change_that_is_rolled_back_leaves_the_windows_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    calls, out = str(tmp_path / "calls"), ms.sinks.memory()

    def fails_in_its_first_epoch(df: DataFrame) -> DataFrame:
        with open(calls, "a+") as file:
            file.write(".")
            file.seek(0)
            if len(file.read()) > 2:  # it is tried on no rows, then on some
                raise ValueError("only now")
        return df

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        timed = rows.with_watermark("ts", 0).transform("same", lambda df: df)
        timed.key_by("user").window(ms.tumbling(10)).aggregate("tens", n=ms.count()).sink("out", out)

    with Live(spark, build, rows=SCHEMA) as live:
        live.feed("rows", rows_of([("ann", 1, 12.0)]))
        other = ms.key_by("user").window(ms.tumbling(15)).aggregate(n=ms.count())
        bad = live.job.modify(ms.replace("tens", other), ms.replace("same", fails_in_its_first_epoch))
        with pytest.raises(ms.ModificationError, match="only now"):
            bad.wait(60)
        live.feed("rows", rows_of([("ann", 1, 25.0), ("ann", 1, 34.0)]))
        live.feed("rows", rows_of([END]))
        live.next_epoch()
        assert live.job._engine.history.last is not None
        assert live.job._engine.history.last.operators["tens"].regimes == (Regime(TimeWindow(10_000_000, 10_000_000)),)
    assert sorted(row.window_start.second for row in out.rows()) == [10, 20, 30]


def test_a_savepoint_has_the_windows_of_every_size(spark: SparkSession, tmp_path: Path) -> None:
    """The flow that starts from the savepoint has another size than the one that wrote it."""
    lists = cut(some_events(seed=17, count=60, disorder=2.0, per_second=1.0), 20)
    rest, out = ms.sinks.memory(), ms.sinks.memory()

    def flow(files: int, size: int, sink: Any) -> ms.Flow:
        made = ms.Flow("windows")
        rows = testing.source(spark, str(tmp_path / "rows"), SCHEMA, [rows_of(events) for events in lists[:files]])
        windows = made.source("rows", rows).with_watermark("ts", 2).key_by("user").window(ms.tumbling(size))
        windows.aggregate("sums", **AGGREGATES).sink("out", sink)
        return made

    options: dict[str, Any] = {"cache": tmp_path / "cache"}
    once = ms.available_now()
    flow(1, 10, out).start(tmp_path / "first", trigger=once, **options).await_termination()
    first = flow(2, 15, out).start(tmp_path / "first", trigger=once, on_drift="apply", **options)
    first.await_termination()
    saved = first.savepoint(tmp_path / "saved")
    last = ms.available_now(end_of_input=True)
    flow(3, 12, rest).start(tmp_path / "second", trigger=last, savepoint=saved, **options).await_termination()
    naive = Changing(10, 10, delay=2)
    expected = naive.epoch(lists[0])[0]
    for size, events in ((15, lists[1]), (12, lists[2])):
        naive.change(size, size)
        expected += naive.epoch(events)[0]
    expected += naive.epoch([], is_last=True)[0]
    assert Counter(map(utc, [*out.rows(), *rest.rows()])) == expected == naive.of_all_rows()


def test_the_tops_of_windows_that_are_open_keep_their_size(spark: SparkSession) -> None:
    """Changed, undone, and restarted in between; some rows come too late for any window."""
    lists = cut(some_events(seed=31, count=70, disorder=20.0, per_second=1.0), 10)
    shapes = {"best": [(12, 3), (15, 15)], "tens": [(10, 10), (8, 4)]}
    naive = {id: Changing(*first, delay=2, keyed=id == "tens") for id, (first, _) in shapes.items()}
    out = {name: ms.sinks.memory() for name in ("best", "tens", "late")}

    def top(timed: ms.Stream, id: str, shape: tuple[int, int]) -> Any:
        rows = timed.key_by("user") if id == "tens" else timed
        return rows.window(ms.sliding(*shape)).top(id, 2, by="price")

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        timed = rows.with_watermark("ts", 2)
        for id, (first, _) in shapes.items():
            top(timed, id, first).sink(f"{id}.out", out[id])
        flow.stream("best").late.sink("best.late.out", out["late"])  # type: ignore[attr-defined]

    with Live(spark, build, options={"on_drift": "keep"}, rows=SCHEMA) as live:

        def feed(events: list[Event]) -> None:
            live.feed("rows", rows_of(events))
            for each in naive.values():
                each.epoch(events)

        def change(to: int) -> None:
            for id, each in naive.items():
                each.change(*shapes[id][to])

        for events in lists[:3]:
            feed(events)
        others = {id: ms.built(lambda timed, id=id: top(timed, id, shapes[id][1])) for id in shapes}  # type: ignore[misc]
        live.modify(*(ms.replace(id, other) for id, other in others.items()))
        change(to=1)
        feed(lists[3])
        live.job.stop()
        live.job = live._start()
        feed(lists[4])
        live.job.modifications[0].undo().wait(60)
        change(to=0)
        for events in (*lists[5:], [END], []):
            feed(events)
        live.next_epoch()
        assert live.job._engine.history.last is not None
        assert [len(live.job._engine.history.last.operators[id].regimes) for id in shapes] == [1, 1], (
            "what is past is forgotten"
        )
    for id, each in naive.items():
        wanted = Counter[Any]()
        for (user, start), prices in each.kept.items():
            for price in prices:
                worth = -1000 if price is None else price
                if each.end(start) < END[2] and sum((-1000 if p is None else p) > worth for p in prices) < 2:
                    wanted[(user, price, *utc(bounds(start, each.end(start) - start)))] += 1
        found = Counter((row.user if each.keyed else "all", row.price, *utc(row[-2:])) for row in out[id].rows())
        assert found == wanted, id
    late = Counter((*utc(rows_of([event[:3]])[0]), event[3]) for event in naive["best"].late.elements())
    assert Counter(map(utc, out["late"].rows())) == late
    assert late


def test_windows_by_count_that_are_open_keep_their_size(spark: SparkSession) -> None:
    lists = cut(some_events(seed=5, count=60), 10)
    out, naive = ms.sinks.memory(), Counted(CountWindow(7, 3, 0))

    def sums(timed: ms.Stream) -> Any:
        window = ms.count_window(naive.window.size, naive.window.step)
        return timed.key_by("user").window(window).aggregate("sums", n=ms.count(), total=ms.sum("price"))

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        sums(rows.with_watermark("ts", 0)).sink("out", out)

    expected = Counter[Any]()
    with Live(spark, build, rows=SCHEMA) as live:
        for shape, events in zip([(7, 3), (7, 3), (4, 4), (4, 4), (9, 2), (9, 2)], lists, strict=True):
            if shape != (naive.window.size, naive.window.step):
                naive.window = CountWindow(*shape, 0)
                live.modify(ms.replace("sums", ms.built(sums)))
            live.feed("rows", rows_of(events))
            timed = sorted(events, key=lambda event: event[2] or 0.0)
            expected += naive.epoch([(user, price, None) for user, price, _ in timed], None)
    assert Counter(map(tuple, out.rows())) == Counter((*row[:3], row[4]) for row in expected.elements())


def test_a_gap_that_is_changed_is_that_of_rows_to_come(spark: SparkSession) -> None:
    lists = cut(some_events(seed=3, count=50, disorder=6.0, per_second=1.0), 10)
    out, naive = ms.sinks.memory(), NaiveSessions(4, delay=2)

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        visits = rows.with_watermark("ts", 2).key_by("user").window(ms.session(4))
        visits.aggregate("visits", **AGGREGATES).sink("out", out)

    with Live(spark, build, rows=SCHEMA) as live:
        expected = Counter[Any]()
        for gap, events in zip((4, 9, 2, 9), [lists[0] + lists[1], lists[2], lists[3], lists[4]], strict=True):
            if gap != naive.gap / 1e6:
                live.modify(ms.replace("visits", ms.key_by("user").window(ms.session(gap)).aggregate(**AGGREGATES)))
                naive.change(gap)
            live.feed("rows", rows_of(events))
            expected += naive.epoch(events)[0]
        live.feed("rows", rows_of([END]))
        live.next_epoch()
        expected += naive.epoch([END])[0] + naive.epoch([])[0]
    assert Counter(map(utc, out.rows())) == expected


def test_a_shadow_changes_windows_from_where_the_job_is_and_leaves_those_of_the_job(spark: SparkSession) -> None:
    out = ms.sinks.memory()

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        tens = rows.with_watermark("ts", 0).key_by("user").window(ms.tumbling(10))
        tens.aggregate("tens", n=ms.count()).sink("out", out)

    with Live(spark, build, rows=SCHEMA) as live:
        live.feed("rows", rows_of([("ann", 1, 12.0)]))
        other = ms.key_by("user").window(ms.tumbling(15)).aggregate(n=ms.count())
        shadow = live.job.shadow(ms.replace("tens", other))
        live.feed("rows", rows_of([("ann", 1, 25.0), ("ann", 1, 34.0), ("ann", 1, 41.0)]))
        live.feed("rows", rows_of([END]))
        live.next_epoch()
        found = shadow.differences["out"]
        shadow.discard()
        assert shadow.error == ""
        assert live.job._engine.history.last is not None
        assert live.job._engine.history.last.operators["tens"].regimes == (Regime(TimeWindow(10_000_000, 10_000_000)),)
    assert sorted(row.window_start.second for row in out.rows()) == [10, 20, 30, 40]
    assert (found.missing, found.extra) == (2, 1), "[30, 40) and [40, 50) against [30, 45)"
