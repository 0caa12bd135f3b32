"""Every query of Nexmark against DuckDB, however the stream is cut, changed and killed."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.events import Event, Progress
from midstream.nexmark import generator
from midstream.nexmark.generator import Config
from midstream.nexmark.queries import QUERIES
from midstream.nexmark.running import Run

SMALL, LARGE = 4_000, 100_000
IN_ORDER, OUT_OF_ORDER = 1, 17


def some(*quick: str) -> list[Any]:
    """All queries that have state; others than these are for `make test-all`."""
    stateful = [query for query in QUERIES if query not in ("q0", "q1", "q2")]
    return [query if query in quick else pytest.param(query, marks=pytest.mark.slow) for query in stateful]


@pytest.fixture(scope="session")
def data(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Give the events of a configuration as files, made once."""
    made: dict[tuple[int, Config], Path] = {}

    def get(events: int, config: Config) -> Path:
        if (events, config) not in made:
            made[events, config] = tmp_path_factory.mktemp("nexmark") / "data"
            generator.generate(spark, made[events, config], events, config)
        return made[events, config]

    return get


def one(query: str, tmp_path: Path, events: int = SMALL, seed: int = 1, order: int = 1, **options: Any) -> Run:
    config = Config(seed=seed, out_of_order=order, events_per_second=100 if events == SMALL else 2_000)
    return Run(query, events, config, tmp_path / "out", tmp_path / "job", **options)


def check(run: Run, data: Any) -> None:
    found = run.compared(data(run.events, run.config))
    assert found.rows > 0
    assert found.is_equal, str(found)


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_what_the_oracle_gives(query: str, spark: SparkSession, data: Any, tmp_path: Path) -> None:
    run = one(query, tmp_path, LARGE, order=OUT_OF_ORDER, rows_per_epoch=60_000, slots=3)
    run.start(spark).await_termination()
    check(run, data)


FULL = [
    *itertools.product((0, 10_000), (1, 2, 3), (IN_ORDER, OUT_OF_ORDER), (1, 2, 5)),
    (100, 1, OUT_OF_ORDER, 2),  # a thousand epochs
]


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "seed", "order", "slots"), FULL)
@pytest.mark.parametrize("query", QUERIES)
def test_results_do_not_depend_on_how_the_stream_is_cut(
    query: str, rows: int, seed: int, order: int, slots: int, spark: SparkSession, data: Any, tmp_path: Path
) -> None:
    run = one(query, tmp_path, LARGE, seed, order, rows_per_epoch=rows, slots=slots)
    run.start(spark).await_termination()
    check(run, data)


@pytest.mark.parametrize("query", some("q8"))
def test_a_query_that_is_rescaled_and_whose_code_is_replaced_gives_the_same(
    query: str, spark: SparkSession, data: Any, tmp_path: Path
) -> None:
    run, jobs = one(query, tmp_path, order=OUT_OF_ORDER, rows_per_epoch=1_000), list[ms.Job]()
    known = threading.Event()

    def listen(event: Event) -> None:
        if isinstance(event, Progress) and event.epoch == 1:
            known.wait()
            modification = jobs[0].modify(ms.rescale(slots=3), *replaced(jobs[0]))
            modification.reached(ms.Phase.ARMED, 120)

    jobs.append(run.start(spark, listen))
    known.set()
    jobs[0].await_termination()
    (modification,) = jobs[0].modifications
    assert modification.phase is ms.Phase.COMPLETED, modification.status
    check(run, data)


def replaced(job: ms.Job) -> list[Any]:
    """A function that does the same, in the place of the last stateless one."""
    last = [operator for operator in job.plan.operators if operator.id in QUERIES and hasattr(operator, "per_epoch")]
    columns = {"q3": "name city state auction", "q5": "auction bids window_start window_end"}
    columns |= {"q7": "auction bidder price ts window_start"}
    if not last or last[0].id not in columns:
        return []
    wanted = columns[last[0].id].split()
    return [ms.replace(last[0].id, lambda df: df.where("true").select(*wanted))]


@pytest.mark.parametrize("query", some("q4"))
def test_a_query_that_is_killed_goes_on_where_it_was(
    query: str, spark: SparkSession, data: Any, tmp_path: Path
) -> None:
    run = one(query, tmp_path, rows_per_epoch=700)
    command = [
        sys.executable, "-m", "midstream.cli", "nexmark", "run", query, "--out", str(run.out),
        "--checkpoint", str(run.checkpoint), "--events", str(run.events), "--seed", "1", "--rows-per-epoch", "700",
        "--events-per-second", "100",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    commits = run.checkpoint / "job" / "commits"
    end = time.monotonic() + 120
    while not commits.is_dir() or len(os.listdir(commits)) < 2:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < end, "it hangs"
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert len(os.listdir(commits)) < run.epochs, "it was killed before its end"
    run.start(spark).await_termination()
    check(run, data)
