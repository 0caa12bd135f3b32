"""Every query of Nexmark against DuckDB, however the stream is cut, changed and killed."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.checkpoint.journal import Journal
from midstream.checkpoint.storage import Storage
from midstream.nexmark import generator
from midstream.nexmark.generator import Config
from midstream.nexmark.queries import QUERIES
from midstream.nexmark.running import ABOUT, QueryRun
from tests.support.slow import long, slow

SMALL, LARGE = 4_000, 100_000
IN_ORDER, OUT_OF_ORDER = 1, 17


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


def one(query: str, tmp_path: Path, events: int = SMALL, seed: int = 1, order: int = 1, **options: Any) -> QueryRun:
    config = Config(seed=seed, out_of_order=order, events_per_second=100 if events == SMALL else 2_000)
    return QueryRun(query, events, config, tmp_path / "out", tmp_path / "job", **options)


def check(run: QueryRun, data: Any) -> None:
    found = run.compared(data(run.events, run.config))
    assert found.rows > 0
    assert found.is_equal, str(found)


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_what_the_oracle_gives(query: str, spark: SparkSession, data: Any, tmp_path: Path) -> None:
    run = one(query, tmp_path, LARGE, order=OUT_OF_ORDER, rows_per_epoch=60_000, slots=3)
    run.start(spark).await_termination()
    check(run, data)


CUTS = list(itertools.product((1, 2, 3), (IN_ORDER, OUT_OF_ORDER), (1, 2, 5)))
FULL = [
    *(slow(rows, *cut) for rows in (0, 10_000) for cut in CUTS),
    *(long(100, *cut) for cut in CUTS),  # a thousand epochs each
]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize(("rows", "seed", "order", "slots"), FULL)
def test_results_do_not_depend_on_how_the_stream_is_cut(
    query: str, rows: int, seed: int, order: int, slots: int, spark: SparkSession, data: Any, tmp_path: Path
) -> None:
    run = one(query, tmp_path, LARGE, seed, order, rows_per_epoch=rows, slots=slots)
    run.start(spark).await_termination()
    check(run, data)


# Of each query a stateless function, and another one that does the same.
NOTHING = ", ".join(f"'null::{type} as {name}'" for name, type in (("seller", "long"), ("category", "long")))
PRICES = ("prices", f"df.selectExpr('auction', 'ts', 'null::timestamp as expires', {NOTHING}, 'price + 0 as price')")
REPLACED = {
    "q0": ("q0", "df.where('true').select('auction', 'bidder', 'price', 'ts')"),
    "q1": ("q1", "df.selectExpr('auction', 'bidder', 'price * 0.908D as price', 'ts')"),
    "q2": ("q2", "df.where('pmod(auction, 123) = 0').select('auction', 'price')"),
    "q3": ("local", "df.where('state = \"OR\" or state in (\"ID\", \"CA\")').select('id', 'name', 'city', 'state')"),
    "q4": PRICES,
    "q5": ("q5", "df.where('bids > 0').select('auction', 'bids', 'window_start', 'window_end')"),
    "q6": PRICES,
    "q7": ("q7", "df.where('true').select('auction', 'bidder', 'price', 'ts', 'window_start')"),
    "q8": ("q8", "df.selectExpr('id', 'name', 'window(ts, \"10 seconds\").start as window_start')"),
}


@pytest.mark.parametrize("query", [query if query in ("q4", "q8") else slow(query) for query in QUERIES])
def test_a_query_that_is_rescaled_and_replaced_and_then_killed_gives_the_same(
    query: str, spark: SparkSession, data: Any, tmp_path: Path
) -> None:
    run = one(query, tmp_path, order=OUT_OF_ORDER, rows_per_epoch=200)
    id, replacement = REPLACED[query]
    steps = [f"ms.replace({id!r}, lambda df: {replacement})"]
    if query not in ("q0", "q1", "q2"):
        steps.append("ms.rescale(slots=3)")
    changes = tmp_path / "changes.py"
    changes.write_text(
        f"import midstream as ms\n\ndef changes(epoch):\n    return [{', '.join(steps)}] if epoch == 1 else []\n"
    )
    command = [
        sys.executable, "-m", "midstream.cli", "nexmark", "run", query, "--out", str(run.out),
        "--checkpoint", str(run.checkpoint), "--events", str(run.events), "--seed", "1", "--rows-per-epoch", "200",
        "--events-per-second", "100", "--out-of-order", str(OUT_OF_ORDER), "--modify", str(changes),
    ]  # fmt: skip
    with (tmp_path / "said").open("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
        journal, end = Journal(Storage.at(run.checkpoint / "job")), time.monotonic() + 120
        while (commit := journal.newest_commit()) is None or commit.epoch < 5:
            assert process.poll() is None, (tmp_path / "said").read_text()
            assert time.monotonic() < end, "it hangs"
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    killed = journal.newest_commit()
    assert killed is not None
    assert killed.epoch < run.epochs - 1, "it was killed before its end"
    assert killed.version == 2, "and after it was changed"
    job = run.start(spark)
    job.await_termination()
    assert [(one.phase, one.cut.epoch) for one in job.modifications if one.cut] == [(ms.Phase.COMPLETED, 2)]
    assert job.plan.version == 2
    check(run, data)


def test_a_checkpoint_of_another_run_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    run = one("q2", tmp_path, events=100)
    run.start(spark).await_termination()
    others = {
        "query q2, not q1": replace(run, query="q1"),
        "seed 1, not 7": replace(run, config=replace(run.config, seed=7)),
        "slots 0, not 3": replace(run, slots=3),
        f"out {run.out}, not {tmp_path}": replace(run, out=tmp_path),
    }
    for message, other in others.items():
        with pytest.raises(ms.PlanError, match=f"is the checkpoint of a run with {message}"):
            other.start(spark)
    (run.checkpoint / ABOUT).unlink()
    with pytest.raises(ms.PlanError, match="does not say which run it is of"):
        run.start(spark)
