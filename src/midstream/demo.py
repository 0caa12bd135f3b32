"""The demo: a live job over generated bids, its results printed as they come, ended by itself."""

from __future__ import annotations

import shutil
import tempfile
import threading
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import midstream as ms
from midstream import events
from midstream.sessions import local_session

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


def run(epochs: int = 20, rate: int = 2000, console: Console | None = None) -> int:
    """Run the demo; gives the exit code."""
    console = console or Console()
    console.print("[bold]Midstream[/] starts a local Spark session …")
    spark = local_session("midstream-demo")
    directory = tempfile.mkdtemp(prefix="midstream-demo-")
    done = threading.Event()
    out = ms.sinks.memory()
    bids = spark.readStream.format("rate").option("rowsPerSecond", rate).load().selectExpr(*EXPRESSIONS)
    flow = ms.Flow("auctions")
    stream = flow.source("bids", bids).with_watermark("timestamp", "5 seconds")
    big = stream.transform("big", lambda df: df.where("price > 2"))
    schema = "auction long, bids long, turnover double, best double"
    big.key_by("auction").process("hottest", Hottest(), schema=schema).sink("out", out)

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("epoch {task.completed}/{task.total}"),
        TimeElapsedColumn(),
        console=console,
    )
    task = bar.add_task("running", total=epochs)

    def listen(event: events.Event) -> None:
        if isinstance(event, events.Progress) and event.epoch < epochs:
            bar.update(task, completed=event.epoch + 1)
            if event.epoch % 4 == 3 or event.epoch == epochs - 1:
                bar.console.print(_table(out, event))
            if event.epoch == epochs - 1:
                done.set()

    try:
        console.print(f"a job over {rate} generated bids a second; state and results in {directory}")
        with bar:
            job = flow.start(
                f"{directory}/checkpoint",
                trigger=ms.every("1 second"),
                cache=f"{directory}/cache",
                listener=listen,
            )
            while job.is_active and not done.wait(0.2):
                pass
            job.stop()
        if job.exception is not None:
            console.print(f"[red]{job.exception}")
            return 1
        counted = {row.auction: row.bids for row in out.rows()}
        console.print(
            f"done: {epochs} epochs committed, {sum(counted.values())} bids counted in {len(counted)} auctions"
        )
        return 0
    finally:
        spark.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _table(out: Any, event: events.Progress) -> Table:
    latest = {row.auction: row for row in out.rows()}
    table = Table(title=f"epoch {event.epoch}: {event.rows['hottest']} rows in {event.durations['total']:.2f} s")
    for name in ("auction", "bids", "turnover", "best"):
        table.add_column(name, justify="right")
    for row in sorted(latest.values(), key=lambda row: -row.turnover)[:5]:
        table.add_row(str(row.auction), str(row.bids), f"{row.turnover:,.2f}", f"{row.best:,.2f}")
    return table
