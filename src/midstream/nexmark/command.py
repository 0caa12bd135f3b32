"""The commands `midstream nexmark …`: from options to files and a few lines on the terminal."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.status import Status

import midstream as ms
from midstream.errors import MidstreamError, PlanError
from midstream.events import Event
from midstream.events import Progress as Epoch
from midstream.nexmark import generator
from midstream.nexmark.running import ABOUT, QueryRun
from midstream.spark.session import local_session, quiet_session

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

_NAME = "midstream-nexmark"  # of the application


def generate(events: int, seed: int, out: Path, out_of_order: int, events_per_second: int) -> None:
    """Write events as Parquet into a directory, which appears whole or not at all.

    An earlier result of this command is replaced, and only once the new one is there. A directory with anything else in
    it is refused. Ctrl-C leaves everything as it was.

    Not promised: a clean-up after SIGTERM or SIGKILL; a directory `.NAME.PID.partial` may then stay beside the result.
    """
    config = generator.Config(seed=seed, out_of_order=out_of_order, events_per_second=events_per_second)
    named, out = out, Path(os.path.abspath(out))
    _check_place(out)
    console = Console(stderr=True, highlight=False)
    with _written_beside(out) as beside:
        _write(beside, events, config, console)
        about = {"events": events, **asdict(config)}
        (beside / ABOUT).write_text(json.dumps(about, indent=2) + "\n")
        rows = {
            name: pyarrow.dataset.dataset(beside / name, format="parquet").count_rows() for name in generator.TABLES
        }
        if sum(rows.values()) != events:
            raise MidstreamError(f"{sum(rows.values())} rows were written for {events} events; {out} is left as it was")
    size = sum(file.stat().st_size for file in out.rglob("*.parquet"))
    counts = ", ".join(f"{count} in {name}/" for name, count in rows.items())
    print(f"{events} events in {named}: {counts}; {size / 1e6:.1f} MB")


def run(run: QueryRun, modify: Path | None) -> None:
    """Run a query to the end of its events, with a line of progress; continue where an earlier run stopped."""
    changes = _changes(modify)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C: after the current epoch
    with quiet_session(_NAME) as spark:
        _run(spark, run, changes)


def _run(spark: SparkSession, run: QueryRun, changes: Callable[[int], Sequence[Any]]) -> None:
    console = Console(stderr=True, highlight=False)
    with console.status("starting") as line:
        watched = _Watched(run, changes, console, line)
        try:
            with ThreadPoolExecutor(1) as starter:  # Ctrl-C then interrupts no call to Java
                starting = starter.submit(watched.start, spark)
                while not wait([starting], timeout=0.2).done:
                    pass
                starting.result()
            (job,) = watched.jobs
            job.await_termination()
        except KeyboardInterrupt:
            line.update("stopping after the current epoch")
            for job in watched.jobs:
                job.stop()
            epochs = watched.epochs
            done = f"after epoch {epochs[-1].epoch} of {run.epochs}" if epochs else "before its first epoch"
            console.print(f"stopped {done}; run the same command again to continue")
            raise
        for modification in job.modifications:
            print(f"{modification.phase.value}: {modification}")
    for told in state_over_time(watched.epochs):
        print(told)
    print(f"{run.query}: {run.events} events, {run.results().num_rows} rows of results in {run.out}")


@dataclass(frozen=True, slots=True)
class _Watched:
    """A job that is watched: it shows the progress of each epoch, and is changed after some."""

    run: QueryRun
    changes: Callable[[int], Sequence[Any]]
    console: Console
    line: Status
    epochs: list[Epoch] = field(default_factory=list)
    jobs: list[ms.Job] = field(default_factory=list)  # one, once it is started
    _is_known: threading.Event = field(default_factory=threading.Event)

    def start(self, spark: SparkSession) -> None:
        """Start the job; its first epoch may be over before it is known here."""
        try:
            self.jobs.append(self.run.start(spark, self._listen))
        finally:
            self._is_known.set()

    def _listen(self, event: Event) -> None:
        if isinstance(event, Epoch):
            self.epochs.append(event)
            self._show(event.epoch)
            self._is_known.wait()
            if self.jobs and (steps := self.changes(event.epoch)):
                is_next = all(earlier.phase.is_final for earlier in self.jobs[0].modifications)
                modification = self.jobs[0].modify(*steps)
                if is_next:  # else it waits for the next epochs itself
                    modification.reached(ms.Phase.ARMED)

    def _show(self, epoch: int) -> None:
        told = f"epoch {epoch} of {self.run.epochs}"
        self.line.update(told)
        if not self.console.is_terminal and epoch * 10 // self.run.epochs != (epoch - 1) * 10 // self.run.epochs:
            self.console.print(told)


def state_over_time(epochs: Sequence[Epoch], lines: int = 10) -> list[str]:
    """Print how much state there was after some of the epochs; nothing for a query that keeps none."""
    if not any(event.entries for event in epochs):
        return []
    chosen = epochs[:: -(-len(epochs) // lines)]
    return [
        f"after epoch {event.epoch}: {sum(event.entries.values()):,} entries of state, "
        f"{sum(event.state_bytes.values()) / 1e6:,.1f} MB"
        for event in (*chosen, *(epochs[-1:] if epochs[-1] is not chosen[-1] else ()))
    ]


def check(query: str, events: int, config: generator.Config, out: Path | None, rows_per_epoch: int, slots: int) -> bool:
    """Compare results with the oracle's over the same events; say how many rows, and what differs."""
    with tempfile.TemporaryDirectory(prefix="midstream-nexmark-") as place:
        data = Path(place, "data")
        one = QueryRun(query, events, config, out or Path(place, "out"), Path(place, "job"), rows_per_epoch, slots)
        if out is not None and not out.is_dir():
            raise PlanError(f"{out} does not exist; write it with midstream nexmark run {query} --out {out}")
        with quiet_session(_NAME) as spark:
            if out is None:
                _run(spark, one, _changes(None))
            generator.generate(spark, data, events, config)
        found = one.compared(data)
    print(f"{query}: {found}")
    return found.is_equal


def _changes(path: Path | None) -> Callable[[int], Sequence[Any]]:
    """The function `changes(epoch)` of a file: the changes after an epoch, an empty list for none."""
    if path is None:
        return lambda epoch: ()
    names = runpy.run_path(os.fspath(path))
    found = names.get("changes")
    if not callable(found):
        raise PlanError(
            f"{path} must have a function changes(epoch) that returns a list of changes, such as ms.replace(...)"
        )
    return found  # type: ignore[no-any-return]


def _check_place(out: Path) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise PlanError(f"{out} is a file; name a directory")
    entries = {entry.name for entry in out.iterdir()}
    foreign = entries - {ABOUT, *generator.TABLES} if ABOUT in entries else entries
    if foreign:
        raise PlanError(
            f"{out} holds {min(foreign)}, which this command did not make: it is left as it is; name another directory"
        )


@contextmanager
def _written_beside(out: Path) -> Iterator[Path]:
    """Return a new directory that replaces `out` in the end, or is removed if something goes wrong."""
    out.parent.mkdir(parents=True, exist_ok=True)
    beside, old = (out.parent / f".{out.name}.{os.getpid()}.{what}" for what in ("partial", "old"))
    shutil.rmtree(beside, ignore_errors=True)  # left by a process that was killed
    beside.mkdir()
    try:
        yield beside
        if out.exists():
            out.rename(old)
        beside.rename(out)
    except BaseException:
        if old.exists():
            old.rename(out)
        shutil.rmtree(beside, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _write(directory: Path, events: int, config: generator.Config, console: Console) -> None:
    """Let Spark write in a thread of its own, and show its progress; Ctrl-C then interrupts no call to Java."""
    with console.status("starting Spark"):
        spark = local_session(_NAME)
    with _Bar(console) as bar, ThreadPoolExecutor(1) as writer:
        try:
            writing = writer.submit(generator.generate, spark, directory, events, config, bar.begin)
            while not wait([writing], timeout=0.2).done:
                bar.show(spark.sparkContext.statusTracker())
            writing.result()
        except KeyboardInterrupt:
            spark.sparkContext.setLogLevel("OFF")  # tasks that are stopped complain
            raise
        finally:
            spark.stop()  # before the files that its tasks write are removed


class _Bar(Progress):
    """A line for each table: how many of Spark's tasks are done."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("writing {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        super().__init__(*columns, console=console, transient=True)

    def begin(self, table: str) -> None:
        """Begin the line of a table; those before it are done."""
        for task in self.tasks:
            self.update(task.id, completed=task.total)
            self.stop_task(task.id)
        self.add_task(table, total=None)

    def show(self, tracker: StatusTracker) -> None:
        """Show the tasks of the stage that runs."""
        for stage in map(tracker.getStageInfo, tracker.getActiveStageIds()):
            if stage is not None and self.tasks:
                self.update(self.tasks[-1].id, completed=stage.numCompletedTasks, total=stage.numTasks)
