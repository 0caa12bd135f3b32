"""Rules that every key obeys, changed while the job runs; and state that the keys of a group share."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.checkpoint import retention
from midstream.events import Before, Event, Step
from midstream.operators.task import Relocation
from midstream.placement.assignment import Assignment, Serving
from midstream.testing import Live

ROWS, RULES = "user string, item string, price long", "item string, most long, version long"
OUT = "user string, item string, price long, alerts long"
GROUPS = {"groups": 8}
Rows = list[tuple[Any, ...]]


class Alerts(ms.KeyedFunction):
    """Numbers the rows of a user that are dearer than the rule of their item allows."""

    most = ms.map("string", "long", scope="broadcast")
    rules = ms.value("long", default=0, scope="broadcast")  # how many have come
    items = ms.list("string", scope="broadcast")  # of the rules that have come
    alerts = ms.value("long", default=0)

    def on_broadcast(self, rows: list[Any], ctx: ms.Context) -> None:
        for row in rows:
            self.rules += 1
            self.items.append(row.item)
            if row.most is None:
                self.most.pop(row.item, None)
            else:
                self.most[row.item] = row.most

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        assert len(self.items) == self.rules
        for row in rows:
            if row.price > self.most.get(row.item, row.price):
                self.alerts += 1
                yield key, row.item, self.mark(row.price), self.alerts

    def mark(self, price: int) -> int:
        return price


class Marked(Alerts):
    """Has the same state, and shows prices otherwise."""

    def mark(self, price: int) -> int:
        return -price


def rows_of(epoch: int) -> Rows:
    return [(f"user {(i + epoch) % 6}", f"item {i % 3}", (i * 7 + epoch) % 50) for i in range(30)]


RULES_OF = [  # by epoch; two of one item in an epoch: the greater version counts
    [("item 0", 20, 1)],
    [],
    [("item 1", 30, 2), ("item 0", 40, 3), ("item 1", 5, 4)],
    [("item 0", None, 5), ("item 2", 45, 6)],
    [],
]


class Oracle:
    """What must come out, epoch by epoch, in plain Python."""

    def __init__(self) -> None:
        self.rules: dict[str, int] = {}
        self.alerts: Counter[str] = Counter()

    def epoch(self, rows: Rows, rules: Iterable[tuple[Any, ...]] = (), sign: int = 1) -> Counter[Any]:
        for item, most, _ in sorted(rules, key=lambda rule: rule[2]):
            self.rules[item] = most
        found: Counter[tuple[Any, ...]] = Counter()
        for user, item, price in sorted(rows, key=lambda row: row[2]):
            most = self.rules.get(item)
            if most is not None and price > most:
                self.alerts[user] += 1
                found[user, item, sign * price, self.alerts[user]] += 1
        return found


def alerts(function: Alerts | None = None) -> Any:
    def build(flow: ms.Flow, rows: ms.Stream, rules: ms.Stream, out: Any = None, slots: int = 3) -> None:
        told = rules.broadcast(order_by="version")
        found = rows.key_by("user").process(
            "alerts", function or Alerts(), schema=OUT, slots=slots, order_by="price", broadcast=told
        )
        found.sink("out", ms.sinks.memory() if out is None else out)

    return build


def as_counters(outputs: dict[int, list[Any]]) -> list[Counter[Any]]:
    return [Counter(map(tuple, rows)) for _, rows in sorted(outputs.items())]


def test_rules_hold_for_the_rows_of_their_epoch_and_after(spark: SparkSession) -> None:
    result = testing.run(
        spark,
        alerts(),
        options=GROUPS,
        state=True,
        rows=testing.batches(ROWS, *([*rows_of(e)] for e in range(3)), testing.Crash(), *map(rows_of, range(3, 5))),
        rules=testing.batches(RULES, *RULES_OF),
    )
    assert result.crashes == 1
    oracle = Oracle()
    expected = [oracle.epoch(rows_of(epoch), RULES_OF[epoch]) for epoch in range(5)]
    assert as_counters(result.outputs["out"]) == expected
    assert sum(map(len, expected)) > 20
    state = result.state["alerts"]
    assert {row.map_key: row.value for row in state["broadcast-most"]} == {"item 1": 5, "item 2": 45}
    assert [row.value for row in state["broadcast-rules"]] == [6]
    assert [len(row.value) for row in state["broadcast-items"]] == [6]


def flow_over(spark: SparkSession, directory: Path, epochs: int, out: Any) -> ms.Flow:
    flow = ms.Flow("alerts")
    rows = testing.source(spark, str(directory / "rows"), ROWS, [rows_of(epoch) for epoch in range(epochs)])
    rules = testing.source(spark, str(directory / "rules"), RULES, RULES_OF[:epochs])
    alerts()(flow, flow.source("rows", rows), flow.source("rules", rules), out=out)
    return flow


@pytest.mark.parametrize("groups", [None, 8, 5], ids=["checkpoint", "savepoint", "savepoint with other groups"])
def test_rules_outlive_the_job(groups: int | None, spark: SparkSession, tmp_path: Path) -> None:
    first, second = ms.sinks.memory(), ms.sinks.memory()
    job = flow_over(spark, tmp_path, 3, first).start(
        tmp_path / "job", trigger=ms.available_now(), groups=8, cache=tmp_path / "cache"
    )
    job.await_termination()
    if groups is None:
        where: dict[str, Any] = {"checkpoint": tmp_path / "job"}
    else:
        where = {"checkpoint": tmp_path / "other", "savepoint": job.savepoint(tmp_path / "saved"), "groups": groups}
    again = flow_over(spark, tmp_path, 5, second).start(**where, trigger=ms.available_now(), cache=tmp_path / "new")
    again.await_termination()
    oracle = Oracle()
    expected = [oracle.epoch(rows_of(epoch), RULES_OF[epoch]) for epoch in range(5)]
    found = {**{e: first.rows(e) for e in first.epochs()}, **{e: second.rows(e) for e in second.epochs()}}
    assert as_counters(found) == expected


class Retyped(Alerts):
    most = ms.map("string", "double", scope="broadcast")


def test_rules_stay_while_a_job_is_rescaled_and_its_function_replaced(spark: SparkSession) -> None:
    out, oracle, expected, epochs = ms.sinks.memory(), Oracle(), Counter[Any](), count()

    def build(flow: ms.Flow, rows: ms.Stream, rules: ms.Stream) -> None:
        alerts()(flow, rows, rules, out=out)

    def feed(rules: Rows, *, sign: int = 1) -> None:
        """Rules, and rows of a later epoch."""
        rows = rows_of(next(epochs))
        live.feed("rules", rules)
        live.feed("rows", rows)
        expected.update(oracle.epoch(rows, rules, sign))
        assert Counter(map(tuple, out.rows())) == expected

    with Live(spark, build, options=GROUPS, rows=ROWS, rules=RULES) as live:
        feed(RULES_OF[0])
        live.modify(ms.rescale("alerts", slots=5))
        feed(RULES_OF[2])
        replaced = live.modify(ms.replace("alerts", Marked()))
        feed([], sign=-1)
        with pytest.raises(ms.ModificationError, match="declare it under another name"):
            live.modify(ms.replace("alerts", Retyped()))
        replaced.undo().wait(60)
        feed(RULES_OF[3])
    assert len(expected) > 20


def test_a_running_job_gets_rules(spark: SparkSession) -> None:
    """A branch with rules is added to a running plan, and taken out with what it knows."""
    out, rows = ms.sinks.memory(), rows_of(0)

    def build(flow: ms.Flow, rows: ms.Stream, rules: ms.Stream) -> None:
        rows.sink("plain", ms.sinks.noop())
        rules.sink("known", ms.sinks.noop())

    def obeying(stream: ms.Stream) -> None:
        told = ms.broadcast("rules", order_by="version")
        found = stream.key_by("user").process("alerts", Alerts(), schema=OUT, order_by="price", broadcast=told)
        found.sink("out", out)

    with Live(spark, build, options=GROUPS, rows=ROWS, rules=RULES) as live:
        live.feed("rules", [("item 2", 0, 0)])  # nobody hears it
        live.modify(ms.branch("rows", obeying))
        live.feed("rules", [("item 0", 20, 1)])
        live.feed("rows", rows)
    assert Counter(map(tuple, out.rows())) == Oracle().epoch(rows, [("item 0", 20, 1)])


def test_groups_that_sit_epochs_out_hear_the_rules_in_order(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, really, begun = ms.sinks.memory(), Assignment.serving, list[int]()

    def serving(self: Assignment, resolved: Any, id: str) -> Serving:
        """As if the host were a cluster that has lost its executors, with a store that is far: one group an epoch."""
        told = really(self, resolved, id)
        drop = {slot: told.routing.groups_of(slot) for slot in range(told.routing.slots)} if begun[-1] == 2 else {}
        return dataclasses.replace(told, relocation=Relocation(drop=drop, defers=True))

    def listen(event: Event) -> None:
        if isinstance(event, Before) and event.step is Step.RUN:
            begun.append(event.epoch)

    monkeypatch.setattr(retention, "MAX_AGE", 1)
    far = {"store_bytes_per_second": 1 << 40, "prefetch_budget": 1, "groups": 8, "cache": tmp_path / "cache"}
    with monkeypatch.context() as patched:
        patched.setattr(Assignment, "serving", serving)
        job = flow_over(spark, tmp_path, 4, out).start(
            tmp_path / "job", listener=listen, trigger=ms.available_now(), **far
        )
        job.await_termination()
        last = job._engine.history.last
        assert last is not None
        assert last.operators["alerts"].backlog, "some groups still wait"
    again = flow_over(spark, tmp_path, 5, out).start(tmp_path / "job", trigger=ms.available_now(), cache=far["cache"])
    again.await_termination()
    oracle, expected = Oracle(), Counter[Any]()
    for epoch in range(5):
        expected.update(oracle.epoch(rows_of(epoch), RULES_OF[epoch]))
    assert Counter(map(tuple, out.rows())) == expected


class Timed(ms.KeyedFunction):
    """Says what it was told last, once the watermark has come to the time of a row."""

    told = ms.value("string", default="", scope="broadcast")

    def on_broadcast(self, rows: list[Any], ctx: ms.Context) -> None:
        assert [ctx.event_time(row) for row in rows] == sorted(row.at for row in rows)
        self.told += "".join(row.word for row in rows)

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> None:
        ctx.set_event_timer(rows[0].at)

    def on_timer(self, key: Any, timer: ms.Timer, ctx: ms.Context) -> Any:
        yield key, self.told


def test_a_broadcast_stream_has_its_own_time_and_holds_nobody_back(spark: SparkSession) -> None:
    def build(flow: ms.Flow, rows: ms.Stream, words: ms.Stream) -> None:
        told = words.with_watermark("at", 0).broadcast()
        keyed = rows.with_watermark("at", 0).key_by("user")
        keyed.process("timed", Timed(), schema="user string, told string", broadcast=told).sink(
            "out", ms.sinks.memory()
        )

    times = [datetime(2026, 1, 1, 0, 0, second, tzinfo=timezone.utc) for second in range(10)]
    result = testing.run(
        spark,
        build,
        options=GROUPS,
        rows=testing.batches("user string, at timestamp", [("ann", times[5])], [("bob", times[9])], []),
        words=testing.batches("word string, at timestamp", [("c", times[2]), ("a", times[0]), ("b", times[1])], [], []),
    )
    found = {epoch: [tuple(row) for row in rows] for epoch, rows in result.outputs["out"].items() if rows}
    assert found == {1: [("ann", "abc")], 2: [("bob", "abc")]}


class Known(ms.KeyedFunction):
    """Says how many users there are, of all keys."""

    users = ms.map("string", "boolean", scope="broadcast")

    def on_broadcast(self, rows: list[Any], ctx: ms.Context) -> None:
        self.users.update({row.user: True for row in rows})

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        yield key, len(self.users)


def test_a_stream_may_be_broadcast_to_itself(spark: SparkSession) -> None:
    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        known = rows.key_by("user").process("known", Known(), schema="user string, n long", broadcast=rows.broadcast())
        known.sink("out", ms.sinks.memory())

    users = [[("ann",), ("bob",)], [("cid",)]]
    result = testing.run(spark, build, options=GROUPS, rows=testing.batches("user string", *users))
    assert as_counters(result.outputs["out"]) == [Counter([("ann", 2), ("bob", 2)]), Counter([("cid", 3)])]


# --- state that the keys of a group share ---


class Numbered(ms.KeyedFunction):
    """Numbers the rows of a group, and counts its keys."""

    number = ms.value("long", default=0, scope="group")
    users = ms.map("string", "long", scope="group")

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        for row in rows:
            self.number += 1
            self.users[key] = self.users.get(key, 0) + 1
            yield key, row.item, self.number, len(self.users)


def numbered(spark: SparkSession, directory: Path, slots: int, out: Any, epochs: int = 3) -> ms.Flow:
    flow = ms.Flow("numbered")
    lists = [rows_of(epoch) for epoch in range(epochs)]
    rows = flow.source("rows", testing.source(spark, str(directory / "rows"), ROWS, lists))
    found = rows.key_by("user").process("numbered", Numbered(), schema=OUT, slots=slots, order_by=("price", "item"))
    found.sink("out", out)
    return flow


def numbers(spark: SparkSession, epochs: int) -> Counter[Any]:
    """What must come out: keys of a group in their order, each with its rows in theirs."""
    users = sorted({user for user, *_ in rows_of(0)})
    frame = spark.createDataFrame([(user,) for user in users], "user string")
    group = {row[0]: row[1] for row in frame.selectExpr("user", "pmod(xxhash64(user), 4L)").collect()}
    assert len(set(group.values())) < len(users), "some keys share a group"
    number: Counter[int] = Counter()
    known, found = defaultdict[int, set[str]](set), Counter[Any]()
    for epoch in range(epochs):
        for user, item, _ in sorted(rows_of(epoch), key=lambda row: (row[0], row[2], row[1])):
            number[group[user]] += 1
            known[group[user]].add(user)
            found[user, item, number[group[user]], len(known[group[user]])] += 1
    return found


@pytest.mark.parametrize("slots", [1, 3])
def test_what_a_group_counts_does_not_depend_on_slots(slots: int, spark: SparkSession, tmp_path: Path) -> None:
    out = ms.sinks.memory()
    flow = numbered(spark, tmp_path, slots, out)
    flow.start(tmp_path / "job", trigger=ms.available_now(), groups=4, cache=tmp_path / "cache").await_termination()
    assert Counter(map(tuple, out.rows())) == numbers(spark, 3)


def test_a_savepoint_has_the_state_of_groups_for_as_many_groups(spark: SparkSession, tmp_path: Path) -> None:
    first, second = ms.sinks.memory(), ms.sinks.memory()
    job = numbered(spark, tmp_path, 3, first, epochs=2).start(
        tmp_path / "job", trigger=ms.available_now(), groups=4, cache=tmp_path / "cache"
    )
    job.await_termination()
    saved = job.savepoint(tmp_path / "saved")
    read = spark.read.parquet(f"{saved}/state/numbered/group-number").collect()
    assert sum(row.value for row in read) == 60
    with pytest.raises(ms.PlanError, match="'number' of operator 'numbered' is shared by the keys of a group"):
        numbered(spark, tmp_path, 3, second).start(
            tmp_path / "other", savepoint=saved, trigger=ms.available_now(), groups=5
        )
    again = numbered(spark, tmp_path, 2, second).start(
        tmp_path / "other", savepoint=saved, trigger=ms.available_now(), cache=tmp_path / "cache"
    )
    again.await_termination()
    assert Counter(map(tuple, [*first.rows(), *second.rows()])) == numbers(spark, 3)
