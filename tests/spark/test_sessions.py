"""Session windows over real Spark, compared with the definition in plain Python."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.testing import Live
from tests.support.windowing import SCHEMA, NaiveSessions, cut, expected, late_rows, rows_of, some_events, utc

AGGREGATES = {"n": ms.count(), "total": ms.sum("price"), "best": ms.max("price")}


def test_sessions_are_what_their_definition_says_through_crashes(spark: SparkSession) -> None:
    lists = cut([*some_events(seed=5, count=90, disorder=12.0, per_second=2.0), ("eve", 1, None)], 23)
    faults: list[Any] = []
    for number, events in enumerate(lists):
        faults += [testing.Crash()] if number in (1, 3) else []
        faults.append(rows_of(events))

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        timed = rows.with_watermark("ts", 0)
        sessions = timed.key_by("user").window(ms.session("1.5 seconds"))
        plain = sessions.aggregate("plain", slots=2, **AGGREGATES)
        plain.sink("plain.out", ms.sinks.memory())
        plain.late.sink("plain.late.out", ms.sinks.memory())
        sessions.aggregate("patient", lateness=2, **AGGREGATES).sink("patient.out", ms.sinks.memory())
        sessions.aggregate("eager", emit="update", lateness=2, **AGGREGATES).sink("eager.out", ms.sinks.memory())
        timed.window(ms.session(0.6)).aggregate("all", lateness=20, **AGGREGATES).sink("all.out", ms.sinks.memory())
        several = {"who": ms.max("user"), "middle": ms.quantiles("price", 0.5), "earliest": ms.first("ts")}
        objects = timed.window(ms.session(0.6)).aggregate("objects", lateness=20, n=ms.count(), **several)
        objects.sink("objects.out", ms.sinks.memory())
        folded = sessions.aggregate("folded", middle=ms.quantiles("price", 0.5), lateness=2)  # by the JVM, before
        folded.late.sink("folded.late.out", ms.sinks.memory())

    found = testing.run(spark, build, end_of_input=True, state=True, rows=testing.batches(SCHEMA, *faults))
    assert found.crashes == 2
    for name, lateness in {"plain": 0, "patient": 2, "eager": 2}.items():
        naive = NaiveSessions(1.5, lateness=lateness)
        closed, updates = expected(naive, lists)
        assert Counter(map(utc, found.rows(f"{name}.out"))) == (updates if name == "eager" else closed), name
        assert sum(epoch.late[name] for epoch in found.epochs()) == naive.late.total() > 1, name
        late = {"plain": "plain", "patient": "folded"}.get(name)
        assert not late or Counter(map(utc, found.rows(f"{late}.late.out"))) == late_rows(naive), name
        assert found.state[name]["record"] == [], "nothing is kept of sessions that are closed"
    closed = expected(NaiveSessions(0.6, lateness=20, keyed=False), lists)[0]
    assert Counter(map(utc, found.rows("all.out"))) == closed
    assert len(closed) > 4
    objects = [utc(row) for row in found.rows("objects.out")]
    assert Counter(row[:3] for row in objects) == Counter(row[:3] for row in closed.elements())
    assert all(row[0] == row[-1] for row in objects), "a session begins with its first row"


def test_a_job_goes_on_with_the_open_sessions_of_a_savepoint(spark: SparkSession, tmp_path: Path) -> None:
    lists = cut(some_events(seed=8, count=80, disorder=6.0), 10)

    def start(name: str, lists: list[Any], **options: Any) -> tuple[ms.Job, Any]:
        flow, out = ms.Flow("sessions"), ms.sinks.memory()
        source = testing.source(spark, str(tmp_path / "input"), SCHEMA, list(map(rows_of, lists)))
        windows = flow.source("rows", source).with_watermark("ts", "2 seconds").key_by("user").window(ms.session(2))
        windows.aggregate("visits", lateness=1, slots=2, **AGGREGATES).sink("out", out)
        job = flow.start(tmp_path / name, cache=tmp_path / f"{name}-cache", **options)
        job.await_termination()
        return job, out

    def rows(out: Any) -> Counter[Any]:
        return Counter(utc(row) for epoch in out.epochs() for row in out.rows(epoch))

    naive = NaiveSessions(2, delay=2, lateness=1)
    before = sum((naive.epoch(events)[0] for events in lists[:4]), Counter[Any]())
    kept = naive.shown(naive.sessions(naive.kept))
    after = expected(naive, lists[4:])[0]
    job, out = start("first", lists[:4], trigger=ms.available_now())
    assert rows(out) == before
    job.savepoint(tmp_path / "saved")
    table = spark.read.parquet(str(tmp_path / "saved" / "state" / "visits" / "record"))
    starts = table.selectExpr("user", "timestamp_micros(_start)", "timestamp_micros(_end)", "n", "total")
    assert Counter(utc(row) for row in starts.collect()) == Counter(row[:5] for row in kept.elements())
    last = ms.available_now(end_of_input=True)
    _, out = start("second", lists, savepoint=tmp_path / "saved", trigger=last, groups=5)
    assert rows(out) == after


def test_what_sessions_cannot_do_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow = ms.Flow("refused")
    frame = spark.readStream.format("rate").load().selectExpr("'ann' as user", "value as price", "timestamp as ts")
    timed = flow.source("rows", frame).with_watermark("ts", 0)
    visits = timed.key_by("user").window(ms.session("5 minutes")).aggregate("visits", n=ms.count())
    with pytest.raises(ms.PlanError, match="the rows of other windows are not kept"):
        timed.window(ms.session(5)).top("best", by="price")
    visits.window(ms.session("1 hour")).aggregate("again", n=ms.count())
    with pytest.raises(ms.PlanError, match=r"would take the windows of 'visits' by their start.*'window_end'"):
        flow.start(tmp_path)


def test_sessions_of_windows_take_them_by_their_end(spark: SparkSession) -> None:
    lists = cut(some_events(seed=3, count=60, disorder=3.0, per_second=1.0), 7)

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        seconds = rows.with_watermark("ts", "3 seconds").key_by("user").window(ms.tumbling(1))
        ended = seconds.aggregate("seconds", n=ms.count()).with_watermark("window_end", 0)
        ended.key_by("user").window(ms.session(4)).aggregate("busy", n=ms.sum("n")).sink("out", ms.sinks.memory())

    found = testing.run(spark, build, end_of_input=True, rows=testing.batches(SCHEMA, *map(rows_of, lists)))
    whole = [(user, price, float(int(at) + 1)) for events in lists for user, price, at in events if at is not None]
    naive = NaiveSessions(4)
    closed = naive.epoch(whole)[0] + naive.epoch([], is_last=True)[0]
    assert Counter(map(utc, found.rows("out"))) == Counter(row[:4] for row in closed.elements())


def test_late_rows_have_the_columns_that_sessions_get(spark: SparkSession) -> None:
    out = ms.sinks.memory()

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        visits = rows.with_watermark("ts", 0).key_by("user").window(ms.session(2)).aggregate("visits", n=ms.count())
        visits.sink("visits.out", ms.sinks.noop())
        visits.late.transform("seen", lambda df: df.select("*")).sink("late.out", out)

    with Live(spark, build, rows=SCHEMA) as live:
        fewer = ms.insert("fewer", lambda df: df.drop("price"), before="visits")
        with pytest.raises(ms.ModificationError, match=r"sink 'late\.out' gets rows of struct<user.*and would get"):
            live.modify(fewer)
        live.modify(ms.insert("twice", lambda df: df.selectExpr("user", "2 * price as price", "ts"), before="visits"))
        live.feed("rows", rows_of([("ann", 1, 10.0)]))
        live.feed("rows", rows_of([("bob", 4, 3.0)]))
    assert [(row.user, row.price, row.late_reason) for row in out.rows()] == [("bob", 8, "late")]
