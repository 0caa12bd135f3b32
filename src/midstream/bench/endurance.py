"""The cost of many modifications in a row: neither epochs nor memory nor files of the one running job may grow."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table

import midstream as ms
from midstream.bench import machine
from midstream.bench.contestants import declared, saved_sums
from midstream.bench.latency import EpochTimes, epochs_of, milliseconds
from midstream.bench.oracle import check_whole
from midstream.bench.record import at_least_one, rendered, save
from midstream.bench.rows import Rows
from midstream.bench.workbench import pause, workbench

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STRETCHES = 10
_KEYS = 1_000


def run(
    modifications: int = 1_000,
    rows: int = 500,
    json: str | os.PathLike[str] | None = None,
    echo: Callable[[str], object] = print,
) -> dict[str, Any]:
    """Modify a running job again and again, print what each tenth of it took, return the record.

    Promised: no figure unless every row was counted once. Not promised: figures of a machine that does something else
    meanwhile.

    Args:
        modifications: how many, one after the other; each replaces a function.
        rows: rows per epoch.
        json: file for the record.
        echo: takes the text to print.
    """
    at_least_one(modifications=modifications, rows=rows)
    found: list[dict[str, int]] = []
    with workbench() as bench, bench.scratch("endurance") as directory:
        bench.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "300")  # else these grow
        flow = ms.Flow("bench")
        stream = flow.source("rows", Rows(_KEYS).stream(bench.spark, rows)).transform("all", _above(0))
        declared(stream).sink("out", ms.sinks.noop())
        with flow.start(f"{directory}/checkpoint", trigger=ms.every(0), cache=f"{directory}/cache") as job:
            assert job.query is not None
            edges = [modifications * part // _STRETCHES for part in range(_STRETCHES + 1)]
            for first, last in pairwise(edges):
                epoch = job.status.epoch
                for number in range(first, last):
                    job.modify(ms.replace("all", _above(1 + number))).wait(120)
                    pause()
                epochs = [each for each in epochs_of(job.query) if each.number > (epoch or 0)]
                found.append({"modifications": last, **_measured(bench.spark, epochs, Path(directory))})
                echo(f"{last:,} of {modifications:,} modifications")
        check_whole(saved_sums(bench.spark, job.savepoint(f"{directory}/savepoint")), rows, "epochs")
        about = machine.describe(bench.spark)
    record = {"checked": True, "modifications": modifications, "rows": rows, "results": found, "machine": about}
    echo(rendered(_table(found), "Every row was counted exactly once."))
    if json is not None:
        save(record, json)
    return record


def _above(limit: int) -> Callable[[DataFrame], DataFrame]:
    """A filter that lets all rows pass, another one each time."""
    return lambda df: df.where(f"price > -{limit}")


def _measured(spark: SparkSession, epochs: Sequence[EpochTimes], directory: Path) -> dict[str, int]:
    """How long epochs took, and what is left after them: live memory of both processes of the driver, and files."""
    jvm: Any = spark._jvm
    jvm.System.gc()
    heap = jvm.java.lang.Runtime.getRuntime()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        "epoch_ms_p50": milliseconds(median(each.seconds for each in epochs)) if epochs else 0,
        "python_mb": resident >> 20,
        "java_heap_mb": (heap.totalMemory() - heap.freeMemory()) >> 20,
        "files": sum(len(files) for _, _, files in os.walk(directory)),
    }


def _table(found: Sequence[dict[str, int]]) -> Table:
    table = Table(title="one job under many modifications, after each tenth of them", title_justify="left")
    for heading in ("modifications", "epoch p50", "Python", "Java heap", "files"):
        table.add_column(heading, justify="right")
    for each in found:
        table.add_row(
            f"{each['modifications']:,}", f"{each['epoch_ms_p50']:,} ms", f"{each['python_mb']:,} MB",
            f"{each['java_heap_mb']:,} MB", f"{each['files']:,}",
        )  # fmt: skip
    return table
