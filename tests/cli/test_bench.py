"""The benchmarks, in small: what they check, what they hand out, and what they leave behind. Never how fast."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.bench import epoch, machine, rescale, throughput
from midstream.bench.contestants import CONTESTANTS
from midstream.bench.oracle import ResultError, check
from midstream.bench.rows import Rows
from midstream.bench.throughput import DEFAULT

SOURCE = Path(__file__).parents[2] / "src"

# A benchmark wants a process of its own. One process runs them all: what costs here is starting Java.
SCRIPT = """
import os, pathlib, signal, sys, tempfile, threading, time
import midstream as ms
from midstream.bench import contestants, epoch, oracle, throughput

def attempt(name, run, **arguments):
    lines = []
    interrupt = arguments.pop("interrupt", False)
    def echo(text):
        lines.append(text)
        if interrupt:
            threading.Thread(target=after_an_epoch, daemon=True).start()
    outcome = "done"
    try:
        run(**arguments, json=f"{name}.json", echo=echo)
    except oracle.ResultError as error:
        outcome = f"wrong: {error}"
    except KeyboardInterrupt:
        outcome = "interrupted"
    pathlib.Path(f"{name}.outcome").write_text(outcome)
    pathlib.Path(f"{name}.printed").write_text("\\n".join(lines))
    left = [path.name for path in pathlib.Path(tempfile.gettempdir()).glob("midstream-*")]
    pathlib.Path(f"{name}.left").write_text("\\n".join(left))

def after_an_epoch():
    while not list(pathlib.Path(tempfile.gettempdir()).glob("midstream-bench-*/*/checkpoint/commits/0")):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

few = dict(keys=50, rows=300, epochs=2, rounds=1)
some = tuple(name for name in contestants.CONTESTANTS if name != "transform_with_state")
attempt("all", throughput.run, **few, skew=1.2, contestants=some)
attempt("interrupted", throughput.run, **few | dict(epochs=100_000), contestants=("native",), interrupt=True)
epoch.PRELOAD_ROWS = 400
attempt("epoch", epoch.run, rows=10, epochs=2, sizes=(500, 1000), growth_rows=30, rounds=1)
right = contestants.declared
contestants.declared = lambda rows: rows.key_by("key").aggregate("sums", n=ms.count(), total=ms.sum("key"))
attempt("wrong", throughput.run, **few, contestants=("ceiling", "aggregate"))
contestants.declared = right
epoch.declared = lambda rows: right(rows.transform("lost", lambda df: df.where("key <> 7")))
attempt("lost", epoch.run, rows=10, epochs=1, sizes=(500,), growth_rows=30, rounds=1)
"""


class Attempt(NamedTuple):
    outcome: str
    printed: str
    record: dict[str, Any] | None
    left: str  # temporary directories


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Attempt]:
    place, scratch = tmp_path_factory.mktemp("bench"), tmp_path_factory.mktemp("scratch")
    path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=place,
        env={**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if " ERROR " in line] == []  # of queries ended on purpose
    return {file.stem: _read(file) for file in place.glob("*.outcome")}


def benched(directory: Path, name: str, *options: str) -> tuple[dict[str, Any], str]:
    """Run a benchmark as a user does; gives its record and what it printed."""
    words = name.split() if " " in name else ["bench", name]
    command = [sys.executable, "-m", "midstream.cli", *words, "--json", "record.json", *options]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    record: dict[str, Any] = json.loads((directory / "record.json").read_text())
    return record, done.stdout


def _read(outcome: Path) -> Attempt:
    record = outcome.with_suffix(".json")
    return Attempt(
        outcome.read_text(),
        outcome.with_suffix(".printed").read_text(),
        json.loads(record.read_text()) if record.exists() else None,
        outcome.with_suffix(".left").read_text(),
    )


@pytest.mark.slow
def test_throughput_measures_spark_s_own_stateful_operator_too(tmp_path: Path):
    small = ["--keys", "50", "--rows", "300", "--epochs", "2", "--rounds", "1"]
    record, _ = benched(tmp_path, "throughput", *small)
    assert [result["name"] for result in record["results"]] == list(DEFAULT)
    assert {"aggregate/transform_with_state", "function/transform_with_state"} <= set(record["ratios"])


@pytest.mark.slow
def test_throughput_measures_all_contestants(attempts: dict[str, Attempt]):
    outcome, printed, record, _ = attempts["all"]
    assert outcome == "done"
    assert record is not None
    assert (record["checked"], record["keys"], record["rows"], record["skew"]) == (True, 50, 300, 1.2)
    named = [name for name in CONTESTANTS if name != "transform_with_state"]
    assert [result["name"] for result in record["results"]] == named
    for result in record["results"]:
        assert result["rows_per_s_min"] <= result["rows_per_s"] <= result["rows_per_s_max"]
        assert result["epoch_ms_p50"] > 0
        assert [len(one["epochs_ms"]) for one in result["rounds"]] == [2]
        assert result["name"] in printed
    of_runs = {f"aggregate_in_runs/{other}" for other in ("native", "ceiling", "aggregate")}
    assert set(record["ratios"]) == {"aggregate/native", "aggregate/ceiling", "function_in_runs/function", *of_runs}
    assert "triggerExecution" in record["timed_region"]
    assert "triggerExecution" in printed


@pytest.mark.slow
def test_a_record_says_where_it_was_made(attempts: dict[str, Attempt]):
    for name in ("all", "epoch"):
        record = attempts[name].record
        assert record is not None
        assert {"cores", "memory", "python", "pyspark", "java", "midstream"} <= set(record["machine"])
        assert record["machine"]["midstream"] == ms.__version__


def test_every_contestant_comes_first_in_some_round():
    orders = [throughput.rotated(tuple(CONTESTANTS), number) for number in range(len(CONTESTANTS))]
    assert {order[0] for order in orders} == set(CONTESTANTS)
    assert all(sorted(order) == sorted(CONTESTANTS) for order in orders)


@pytest.mark.slow
def test_epoch_measures_floor_and_growth(attempts: dict[str, Attempt]):
    outcome, printed, record, _ = attempts["epoch"]
    assert outcome == "done"
    assert record is not None
    assert record["checked"] is True
    assert [result["name"] for result in record["floor"]["results"]] == [
        "empty", "empty, files as ours", "aggregate",
    ]  # fmt: skip
    assert record["floor"]["ratio"] > 0
    growth = record["growth"]
    assert (growth["rows"], [result["keys"] for result in growth["results"]]) == (30, [500, 1000])
    assert growth["results"][0]["ratio"] == 1
    assert all(len(result["epochs_ms"]) == 2 for result in growth["results"])
    assert "the floor" in printed
    assert "growth" in printed


@pytest.mark.slow
def test_modify_measures_each_change_and_sparks_restart(tmp_path: Path):
    small = ["--rate", "50", "--keys", "10", "--seconds", "4", "--rounds", "1"]
    record, printed = benched(tmp_path, "modify", *small)
    names = [result["name"] for result in record["results"]]
    assert names == ["midstream replace", "midstream insert", "midstream remove", "spark restart"]
    for result in record["results"]:
        assert 0 < result["steady"]["p50_ms"] <= result["steady"]["p99_ms"] <= result["steady"]["max_ms"]
    assert [len(result["cut_ms"]) for result in record["results"][:3]] == [1, 1, 1]
    assert max(max(result["epochs_to_cut"]) for result in record["results"][:3]) <= 2
    assert "Every row was counted exactly once" in printed


@pytest.mark.slow
def test_rescale_moves_a_third_of_the_groups_and_draws_a_picture(tmp_path: Path):
    small = ["--state-mb", "5", "--rate", "100", "--seconds", "5", "--strategy", "live", "--picture", "rescale.png"]
    [result] = benched(tmp_path, "rescale", *small)[0]["results"]
    assert (result["name"], result["groups"]) == ("live", 42)
    assert 0 < result["steady"]["p50_ms"] <= result["steady"]["max_ms"]
    assert (tmp_path / "rescale.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_rescale_checks_sparks_own_way_over_a_slow_store_too(tmp_path: Path):
    small = ["--state-mb", "5", "--rate", "100", "--seconds", "5", "--strategy", "spark", "--store-mb-per-s", "10"]
    [result] = benched(tmp_path, "rescale", *small)[0]["results"]
    assert result["name"] == "spark"
    assert 0 < result["steady"]["p50_ms"] <= result["moving"]["max_ms"]


@pytest.mark.slow
def test_windows_compares_rows_in_one_window_with_rows_in_ten(tmp_path: Path):
    small = ["--keys", "5", "--rows", "300000", "--overlaps", "1,10", "--epochs", "6", "--rounds", "1"]
    record, printed = benched(tmp_path, "windows", *small)
    assert [result["overlap"] for result in record["results"]] == [1, 10]
    assert "All windows agree with a batch query" in printed


@pytest.mark.slow
def test_nexmark_compares_a_query_with_plain_spark(tmp_path: Path):
    small = ["q3", "q4", "--events", "20000", "--rows-per-epoch", "5000", "--rounds", "1"]
    record, printed = benched(tmp_path, "nexmark bench", *small)
    assert [result["query"] for result in record["results"]] == ["q3", "q4"]
    assert record["results"][0]["ratio"] > 0
    assert record["results"][1]["ratio"] is None
    assert "All results agree with DuckDB's" in printed


@pytest.mark.slow
def test_idle_measures_movable_state_and_state_in_memory(tmp_path: Path):
    record = benched(tmp_path, "idle", "--keys", "1000", "--rows", "2000", "--pairs", "6")[0]
    assert [result["name"] for result in record["results"]] == ["movable", "memory"]
    assert record["results"][0]["mb_per_million"] > record["results"][1]["mb_per_million"]
    assert 0 < record["cpu_ratio"]["low"] <= record["cpu_ratio"]["median"] <= record["cpu_ratio"]["high"]


def test_rescale_refuses_an_unknown_strategy_before_it_starts_anything():
    with pytest.raises(ms.PlanError, match=r"there is no strategy fast; there are live, .* spark"):
        rescale.run(strategies=["live", "fast"])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "reason"), [("wrong", "aggregate has a wrong result"), ("lost", "499 keys")])
def test_a_wrong_result_is_noticed_before_a_figure_is_given(attempts: dict[str, Attempt], name: str, reason: str):
    outcome, printed, record, _ = attempts[name]
    assert outcome.startswith("wrong: ")
    assert reason in outcome
    assert record is None
    assert "rows/s" not in printed
    assert " ms" not in printed


@pytest.mark.slow
def test_ctrl_c_ends_a_run(attempts: dict[str, Attempt]):
    outcome, printed, record, _ = attempts["interrupted"]
    assert (outcome, record) == ("interrupted", None)
    assert "rows/s" not in printed


@pytest.mark.slow
def test_nothing_is_left_behind(attempts: dict[str, Attempt]):
    assert {name: attempt.left for name, attempt in attempts.items()} == dict.fromkeys(attempts, "")


@pytest.mark.parametrize(
    "found",
    [
        [(1, 2, 30)],
        [(1, 2, 30), (2, 2, 5)],
        [(1, 2, 30), (2, 1, 6)],
        [(1, 2, 30), (2, 1, None)],
        [(1, 2, 30), (2, 1, 5), (3, 1, 1)],
        [(1, 2, 30), (2, 1, 5), (2, 1, 5)],
    ],
)
def test_a_table_that_differs_from_the_oracle_is_refused(spark: SparkSession, found: list[tuple[int, ...]]):
    schema = "key long, n long, total long"
    expected = spark.createDataFrame([(1, 2, 30), (2, 1, 5)], schema)
    check("same", spark.createDataFrame([(2, 1, 5), (1, 2, 30)], schema), expected)
    with pytest.raises(ResultError, match=r"other has a wrong result.*\n  key "):
        check("other", spark.createDataFrame(found, schema), expected)


@pytest.mark.parametrize("skew", [0.5, 1, 1.2, 2])
def test_skewed_keys_follow_the_law_they_claim(spark: SparkSession, skew: float):
    keys, rows = 20, 20_000
    edges = np.arange(1, keys + 2, dtype=float)
    integral = np.log(edges) if skew == 1 else edges ** (1 - skew) / (1 - skew)
    shares = np.diff(integral) / (integral[-1] - integral[0])
    counts = dict(Rows(keys, skew).sums(spark, 0, rows).select("key", "n").collect())
    found = np.array([counts.pop(key, 0) for key in range(keys)]) / rows
    assert counts == {}  # no key out of range
    assert np.abs(found - shares).max() < 5 * np.sqrt(0.25 / rows)  # five standard deviations, at most


def test_uniform_keys_are_uniform(spark: SparkSession):
    counts = dict(Rows(10).sums(spark, 0, 20_000).select("key", "n").collect())
    assert sorted(counts) == list(range(10))
    assert all(abs(n - 2000) < 300 for n in counts.values())


@pytest.mark.parametrize("run", [throughput.run, epoch.run])
def test_a_process_with_a_spark_session_is_refused(spark: SparkSession, run: Any):
    with pytest.raises(ms.MidstreamError, match="a process of its own"):
        run()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"contestants": ("native", "flink")}, "one or more of ceiling, native"),
        ({"contestants": ()}, "not none"),
        ({"contestants": ("native", "native")}, "each once"),
        ({"keys": 0}, "keys must be 1 or more"),
        ({"epochs": 0}, "epochs must be 1 or more"),
        ({"skew": -1.0}, "0 or greater"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any], complaint: str):
    with pytest.raises(ms.MidstreamError, match=complaint):
        throughput.run(**arguments)


def test_missing_packages_of_transform_with_state_are_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ms.MidstreamError, match=r"protobuf and grpcio.*midstream\[bench\]"):
        throughput.run(contestants=("transform_with_state",))


def test_outside_a_checkout_there_is_no_commit(tmp_path: Path):
    assert machine._git(str(tmp_path)) == {}
