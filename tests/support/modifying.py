"""A short job that is modified before a chosen epoch, and a model of what it must leave, which shares no code with it.

`doomed` is a driver that modifies its job and goes no further than a point that it is told, see `faults.killing`.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import midstream as ms
from midstream.events import After, Before, Event, Exchanging, Modifying, Step
from midstream.testing import source
from tests.faults.killing import Arrive

SCHEMA = "key long, price long"
Row = tuple[int, int]
EPOCHS = 4
AT = 2  # the epoch before which it is modified, where it does not matter


def rows(epoch: int) -> list[Row]:
    """Make the rows of an epoch: every key comes in each."""
    return [((i * 7 + epoch) % 5, i * 10 + epoch) for i in range(24)]


EXTRA = [[(i % 5, 100 + 10 * file + i) for i in range(7)] for file in range(3)]  # of a second source


def cuts(kind: str, at: int) -> tuple[int, ...]:
    """Where the cut may be: an epoch that Spark has decided on goes before an added source."""
    return (at, at + 1, at + 2) if kind == "add source" else (at,)


class Total(ms.KeyedFunction):
    total = ms.value("long", default=0)

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        self.total += sum(row.price for row in rows)
        yield key, self.total


class Negative(ms.KeyedFunction):
    """Keeps the same state as `Total`."""

    total = ms.value("long", default=0)

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        self.total += sum(row.price for row in rows)
        yield key, -self.total


class Limit(ms.KeyedFunction):
    """Lets seven rows of each key pass."""

    seen = ms.value("long", default=0)

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        for row in rows:
            self.seen += 1
            if self.seen <= 7:
                yield row.key, row.price


def big(df: DataFrame) -> DataFrame:
    return df.where("price >= 50")


def small(df: DataFrame) -> DataFrame:
    return df.where("price < 120")


def doubled(df: DataFrame) -> DataFrame:
    return df.selectExpr("key", "price * 2 as price")


def lethal(df: DataFrame) -> DataFrame:
    """Kills the driver in an epoch that counts."""
    if any(frame.function == "__call__" and frame.filename.endswith("attempt.py") for frame in inspect.stack()):
        os.kill(os.getpid(), signal.SIGKILL)
    return small(df)


def lethal_when_tried(df: DataFrame) -> DataFrame:
    """Kills the driver in the dry run, while the job runs on."""
    if any(frame.function == "without_sinks" and frame.filename.endswith("attempt.py") for frame in inspect.stack()):
        os.kill(os.getpid(), signal.SIGKILL)
    return small(df)


LIMITED = ms.key_by("key").process(Limit(), schema=SCHEMA, order_by="price")


def twice_limited(stream: ms.Stream) -> ms.Stream:
    """A subtree with state of its own."""
    return stream.transform("twice", doubled).key_by("key").process("few", Limit(), schema=SCHEMA, order_by="price")


def flow(spark: SparkSession, root: str, kind: str) -> ms.Flow:
    """The flow as first written."""
    built = ms.Flow("modified")
    frame = source(spark, os.path.join(root, "input"), SCHEMA, [rows(epoch) for epoch in range(EPOCHS)])
    if kind == "remove source":
        extra = source(spark, os.path.join(root, "extra"), SCHEMA, EXTRA)
        stream = built.source("rows", frame).union("all", built.source("extra", extra)).transform("big", big)
    else:
        stream = built.source("rows", frame).transform("big", big)
    if kind == "remove stateful":
        stream = stream.key_by("key").process("limit", Limit(), schema=SCHEMA, order_by="price")
    if kind == "remove sink":
        stream.sink("copy", ms.sinks.files(f"{root}/copy", format="json"))
    totals = stream.key_by("key").process("totals", Total(), schema=SCHEMA)
    totals.sink("out", ms.sinks.files(f"{root}/out", format="json"))
    return built


def other_flow(spark: SparkSession, root: str) -> ms.Flow:
    built = ms.Flow("modified")
    frame = source(spark, os.path.join(root, "input"), SCHEMA, [])
    stream = built.source("rows", frame).transform("doubled", doubled)
    totals = stream.key_by("key").process("totals", Negative(), schema=SCHEMA)
    totals.sink("out", ms.sinks.files(f"{root}/out", format="json"))
    return built


def steps(spark: SparkSession, root: str, kind: str) -> list[Any]:
    """The modification of each kind."""
    copies = ms.sinks.files(f"{root}/copy", format="json")
    copy = ms.add_sink("copy", copies, after="big")
    extra = os.path.join(root, "extra")
    return {
        "replace stateless": lambda: [ms.replace("big", small)],
        "replace stateful": lambda: [ms.replace("totals", Negative())],
        "insert stateless": lambda: [ms.insert("doubled", doubled, after="big")],
        "insert stateful": lambda: [ms.insert("limit", LIMITED, before="totals")],
        "remove stateless": lambda: [ms.remove("big")],
        "remove stateful": lambda: [ms.remove("limit")],
        "add sink": lambda: [copy],
        "remove sink": lambda: [ms.remove_sink("copy")],
        "branch": lambda: [ms.branch("big", lambda big: twice_limited(big).sink("copy", copies))],
        "add source": lambda: [
            ms.add_source("extra", lambda spark: source(spark, extra, SCHEMA, EXTRA)),
            ms.insert("all", ms.union("extra"), after="rows"),
        ],
        "remove source": lambda: [ms.remove_source("extra")],
        "tune": lambda: [ms.tune(rows_per_arrow_batch=3)],
        "rescale": lambda: [ms.rescale("totals", slots=5)],
        "several": lambda: [ms.replace("totals", Negative()), ms.insert("doubled", doubled, after="big"), copy],
        "whole flow": lambda: [other_flow(spark, root)],
        "lethal": lambda: [ms.replace("big", lethal)],
        "lethal when tried": lambda: [ms.replace("big", lethal_when_tried)],
        "none": list,
    }[kind]()


KINDS = (
    "replace stateless", "replace stateful", "insert stateless", "insert stateful", "remove stateless",
    "remove stateful", "add sink", "remove sink", "several", "whole flow", "add source", "remove source", "tune",
    "rescale", "branch",
)  # fmt: skip


Files = list[tuple[range, range]]  # epoch -> the files that it has of `rows` and of `extra`


def one_by_one(kind: str, cut: int | None, last: int) -> Files:
    """A file of each source in each epoch; of an added one from the cut on."""
    begin = {"remove source": 0, "add source": last if cut is None else cut}.get(kind, last)
    end = max(last, begin + len(EXTRA)) if kind == "add source" and cut is not None else last
    return [
        (range(epoch, min(epoch + 1, EPOCHS)), range(max(epoch - begin, 0), min(epoch - begin + 1, len(EXTRA))))
        for epoch in range(end)
    ]


def files_read(root: str) -> Files:
    """Which files each epoch has, by Spark's offset log: a query may put what the one before had noticed into one."""
    found: Files = []
    before = [-1, -1]
    for epoch in range(len([name for name in os.listdir(f"{root}/checkpoint/spark/offsets") if name.isdigit()])):
        with open(f"{root}/checkpoint/spark/offsets/{epoch}") as file:
            lines = [line for line in file.read().splitlines()[2:] if line.startswith("{")]
        now = [json.loads(line)["logOffset"] for line in lines] + [-1] * (2 - len(lines))
        found.append((range(before[0] + 1, now[0] + 1), range(before[1] + 1, now[1] + 1)))
        before = now
    return found


def limited(stream: list[Row], seen: Counter[int]) -> list[Row]:
    """What `Limit` lets pass, `seen` being its state."""
    passed = []
    for key, price in sorted(stream, key=lambda row: row[1]):
        seen[key] += 1
        if seen[key] <= 7:
            passed.append((key, price))
    return passed


def expected(kind: str, cut: int | None, files: Files | int = EPOCHS) -> dict[str, Counter[tuple[Any, ...]]]:
    """What the sinks must hold, and the totals at the end: old code before the cut, new code from it."""
    out: Counter[tuple[Any, ...]] = Counter()
    copy: Counter[tuple[Any, ...]] = Counter()
    totals: Counter[int] = Counter()
    seen: Counter[int] = Counter()
    read = one_by_one(kind, cut, files) if isinstance(files, int) else files
    for epoch, (ours, extra) in enumerate(read):
        new = kind if cut is not None and epoch >= cut else ""
        stream = [row for file in ours for row in rows(file)]
        if new == "add source" or (kind == "remove source" and not new):
            stream += [row for file in extra for row in EXTRA[file]]
        if new in ("replace stateless", "lethal"):
            stream = [(key, price) for key, price in stream if price < 120]
        elif new not in ("remove stateless", "whole flow"):
            stream = [(key, price) for key, price in stream if price >= 50]
        if (kind == "remove sink" and not new) or new in ("add sink", "several"):
            copy.update((*row, epoch) for row in stream)
        if new in ("insert stateless", "several", "whole flow"):
            stream = [(key, price * 2) for key, price in stream]
        if (kind == "remove stateful" and not new) or new == "insert stateful":
            stream = limited(stream, seen)
        if new == "branch":
            copy.update((*row, epoch) for row in limited([(key, price * 2) for key, price in stream], seen))
        for key, price in stream:
            totals[key] += price
        sign = -1 if new in ("replace stateful", "several", "whole flow") else 1
        out.update((key, sign * totals[key], epoch) for key in {key for key, _ in stream})
    return {"out": out, "copy": copy, "totals": Counter(dict.fromkeys(totals.items(), 1))}


@dataclass
class Modified:
    """A run with a modification, armed before epoch `at`."""

    spark: SparkSession
    root: str
    kind: str
    at: int = AT
    steps: list[Any] | None = None
    on_event: Callable[[Event], None] = lambda event: None
    modification: ms.Modification | None = None
    _job: ms.Job | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def start(self, **options: Any) -> ms.Job:
        """Start the job; it is modified by itself."""
        todo = steps(self.spark, self.root, self.kind) if self.steps is None else self.steps
        known = threading.Event()

        def listen(event: Event) -> None:
            if isinstance(event, After):
                known.wait()
            if event == After(Step.PUBLISH, self.at - 1) and self.modification is None and todo:
                self.modification = self.job.modify(*todo)
                settled(self.modification)
            self.on_event(event)

        self._job = flow(self.spark, self.root, self.kind).start(
            os.path.join(self.root, "checkpoint"),
            trigger=ms.available_now(),
            listener=listen,
            cache=os.path.join(self.root, "cache"),
            groups=8,
            **{**self.options, **options},
        )
        known.set()
        return self._job

    @property
    def job(self) -> ms.Job:
        """The job, once it is started."""
        assert self._job is not None
        return self._job

    def run(self, **options: Any) -> ms.Job:
        """Run to the end of the input."""
        job = self.start(**options)
        assert job.await_termination(120)
        return job


def settled(modification: ms.Modification) -> None:
    """Wait until a modification is armed, or has come to an end."""
    modification.reached(ms.Phase.ARMED, 600)  # others come to their point meanwhile


def records(spark: SparkSession, run: Modified, operator: str) -> list[Any]:
    """The records that an operator keeps at the end."""
    saved = run.job.savepoint(os.path.join(run.root, f"saved-{operator}"))
    return spark.read.parquet(f"{saved}/state/{operator}/record").collect()


def outcome(spark: SparkSession, root: str, job: ms.Job) -> dict[str, Counter[tuple[Any, ...]]]:
    """What the sinks hold, and the totals at the end."""
    state = job.savepoint(os.path.join(root, "savepoint"))
    totals = spark.read.parquet(f"{state}/state/totals/record").select("key", "total").collect()
    return {
        "out": written(spark, f"{root}/out"),
        "copy": written(spark, f"{root}/copy"),
        "totals": Counter(map(tuple, totals)),
    }


def written(spark: SparkSession, directory: str) -> Counter[tuple[Any, ...]]:
    """What a file sink holds, with the epoch of each row, as a multiset."""
    if not os.path.isdir(directory) or not any(name.startswith("epoch=") for name in os.listdir(directory)):
        return Counter()
    found = spark.read.schema(f"{SCHEMA}, epoch long").json(directory).collect()
    return Counter(map(tuple, found))


# --- the driver that is killed ---


def doomed(spark: SparkSession, root: str, parameters: list[str], arrive: Arrive) -> None:
    """Run the job to a point: `before Armed`, `after Armed`, `before run 2`, `after commit 2`."""
    kind, point = parameters

    def on_event(event: Event) -> None:
        if isinstance(event, Modifying):
            name = f"{'after' if event.written else 'before'} {event.phase}"
        elif isinstance(event, Exchanging):
            name = f"after {event.step}" if modified.modification is not None else ""
        elif isinstance(event, (Before, After)):
            name = f"{type(event).__name__.lower()} {event.step.value} {event.epoch}"
        else:
            return
        if name == point:
            arrive(name)

    modified = Modified(spark, root, kind, on_event=on_event, options={"cut_deadline": "10 minutes"})
    modified.run(on_drift="keep")
