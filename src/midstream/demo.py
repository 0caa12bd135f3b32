"""The demo: a live job over generated bids that prints its results as they come, and ends by itself."""

from __future__ import annotations

import shutil
import tempfile
import threading
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import midstream as ms
from midstream import events
from midstream.spark.session import quiet_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXPRESSIONS = [
    "pmod(xxhash64(value, 1), 20) as auction",
    "cast(exp(pmod(xxhash64(value, 2), 600) / 100.0) as double) as price",
    "timestamp",
]


class Hottest(ms.KeyedFunction):
    """Counts and adds up the bids of an auction, and remembers its best one."""

    bids = ms.value("long", default=0)
    turnover = ms.value("double", default=0.0)
    best = ms.value("double", default=0.0)

    def process(self, key: int, rows: list[Any], ctx: ms.Context) -> Any:
        """Take in this epoch's bids of an auction."""
        self.bids += len(rows)
        self.turnover += sum(row.price for row in rows)
        self.best = max(self.best, max(row.price for row in rows))
        yield key, self.bids, self.turnover, self.best


class Picky(Hottest):
    """A bad idea: it fails in the first real epoch, when there is state."""

    def process(self, key: int, rows: list[Any], ctx: ms.Context) -> Any:
        """Refuse auctions that have had bids before."""
        if self.bids:
            raise ValueError(f"auction {key} has bids already")
        yield from super().process(key, rows, ctx)


def big(limit: int) -> Any:
    """Return the filter that keeps bids above a limit."""
    return lambda df: df.where(f"price > {limit}")


def run(epochs: int = 20, rate: int = 2000, console: Console | None = None) -> int:
    """Run the demo; return the exit code."""
    console = console or Console()
    console.print("[bold]Midstream[/] starts a local Spark session …")
    directory = tempfile.mkdtemp(prefix="midstream-demo-")
    try:
        with quiet_session("midstream-demo") as spark:
            return _run(spark, directory, epochs, rate, console)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(spark: SparkSession, directory: str, epochs: int, rate: int, console: Console) -> int:
    spark.sparkContext.setLogLevel("OFF")  # one of the modifications below fails, on purpose
    out, timeline = ms.sinks.memory(), Timeline(console, epochs)
    bids = spark.readStream.format("rate").option("rowsPerSecond", rate).load().selectExpr(*EXPRESSIONS)
    flow = ms.Flow("auctions")
    stream = flow.source("bids", bids).with_watermark("timestamp", "5 seconds")
    schema = "auction long, bids long, turnover double, best double"
    hottest = stream.transform("big", big(2)).key_by("auction").process("hottest", Hottest(), schema=schema)
    hottest.sink("out", out)
    console.print(f"a job over {rate} generated bids a second; state and results in {directory}")
    with timeline.bar:
        job = flow.start(
            f"{directory}/checkpoint",
            trigger=ms.every("1 second"),
            cache=f"{directory}/cache",
            listener=timeline.listen,
        )
        _change(job, timeline, out)
        timeline.wait(job, epochs)
        job.stop()
    if job.exception is not None:
        console.print(f"[red]{job.exception}")
        return 1
    console.print(timeline.table(job))
    counted = {row.auction: row.bids for row in out.rows()}
    console.print(
        f"done: {job.status.epoch + 1} epochs committed, {sum(counted.values())} bids counted in "
        f"{len(counted)} auctions, {len(job.modifications)} modifications, the job never stopped"
    )
    return 0


def _change(job: ms.Job, timeline: Timeline, out: Any) -> None:
    """Change the job while it runs: four modifications, a few epochs apart; one is bad, one is an undo."""
    fair = ms.transform(lambda df: df.withColumn("price", F.expr("least(price, 200)")))
    steps: list[tuple[int, str, Any]] = [
        (4, "replace the filter: only bids above 20", lambda: job.modify(ms.replace("big", big(20)))),
        (8, "insert an operator: cap prices at 200", lambda: job.modify(ms.insert("fair", fair, after="big"))),
        (12, "replace the function by one that fails", lambda: job.modify(ms.replace("hottest", Picky()))),
        (16, "undo the insertion", lambda: job.modifications[1].undo()),
    ]
    for epoch, what, modify in steps:
        timeline.wait(job, epoch)
        timeline.say(_table(out, timeline.progress[-1]))
        timeline.say(f"[bold]{what}")
        modification = modify()
        try:
            modification.wait(60)
            timeline.say(f"  [green]{modification.phase.value}[/], cut at epoch {modification.cut.epoch}")
        except ms.ModificationError:
            error = modification.error.splitlines()[0]
            timeline.say(f"  [yellow]{modification.phase.value}[/]: {error} – the job goes on under the old plan")


class Timeline:
    """What happened when: a line per epoch, with the cuts."""

    def __init__(self, console: Console, epochs: int) -> None:
        self.progress: list[events.Progress] = []
        self._marks: dict[int, str] = {}  # epoch -> what happened in it
        self._committed = threading.Condition()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("epoch {task.completed}/{task.total}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._task = self.bar.add_task("running", total=epochs)

    def listen(self, event: events.Event) -> None:
        """Note an epoch, or a modification that was rolled back in the current epoch."""
        if isinstance(event, events.Modifying) and event.phase == ms.Phase.ROLLED_BACK.value:
            self._marks[len(self.progress)] = f"{event.number} rolled back, run again"
        if isinstance(event, events.Progress):
            with self._committed:
                self.progress.append(event)
                self.bar.update(self._task, completed=event.epoch + 1)
                self._committed.notify_all()

    def wait(self, job: ms.Job, epochs: int) -> None:
        """Wait until this many epochs are committed."""
        with self._committed:
            while len(self.progress) < epochs and job.is_active:
                self._committed.wait(1)

    def say(self, text: Any) -> None:
        """Print above the bar."""
        self.bar.console.print(text)

    def table(self, job: ms.Job) -> Table:
        """Show all epochs, with the cuts marked."""
        marks = self._marks | {m.cut.epoch: f"cut: {m}" for m in job.modifications if m.cut is not None}
        table = Table(title="epochs and cuts")
        for name in ("epoch", "plan", "rows", "latency"):
            table.add_column(name, justify="right")
        table.add_column("")
        longest = max(event.durations["total"] for event in self.progress)
        for event in self.progress:
            seconds = event.durations["total"]
            bar = "█" * round(seconds / longest * 20)
            mark = f" ◄ {marks[event.epoch]}" if event.epoch in marks else ""
            rows = str(sum(event.rows.values()))
            table.add_row(str(event.epoch), f"v{event.version}", rows, f"{seconds * 1000:.0f} ms", bar + mark)
        return table


def _table(out: Any, event: events.Progress) -> Table:
    latest = {row.auction: row for row in out.rows()}
    table = Table(title=f"epoch {event.epoch}: {event.rows['hottest']} rows in {event.durations['total']:.2f} s")
    for name in ("auction", "bids", "turnover", "best"):
        table.add_column(name, justify="right")
    for row in sorted(latest.values(), key=lambda row: -row.turnover)[:5]:
        table.add_row(str(row.auction), str(row.bids), f"{row.turnover:,.2f}", f"{row.best:,.2f}")
    return table
