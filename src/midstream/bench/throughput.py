"""Rows per second of one count-and-sum per key, done in several ways over the same rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from rich.table import Table

from midstream.bench import contestants as all_contestants
from midstream.bench import machine
from midstream.bench.contestants import CONTESTANTS, Trial
from midstream.bench.oracle import check
from midstream.bench.record import at_least_one, rendered, save
from midstream.bench.rows import Rows
from midstream.bench.running import TIMED_REGION, steady
from midstream.bench.workbench import Workbench, workbench
from midstream.errors import MidstreamError

SLOW = {"transform_with_state": 20_000}  # contestant -> most rows per epoch: it would take minutes per epoch
RATIOS = (
    ("aggregate", "native"),
    ("aggregate", "ceiling"),
    ("aggregate", "transform_with_state"),
    ("function", "transform_with_state"),
    ("aggregate_in_runs", "native"),
    ("aggregate_in_runs", "ceiling"),
    ("aggregate_in_runs", "aggregate"),
    ("function_in_runs", "function"),
)
DEFAULT = ("ceiling", "native", "transform_with_state", "aggregate", "function")


def run(
    keys: int = 1_000_000,
    rows: int = 200_000,
    skew: float = 0.0,
    epochs: int = 12,
    rounds: int = 3,
    contestants: Sequence[str] = DEFAULT,
    json: str | os.PathLike[str] | None = None,
    echo: Callable[[str], object] = print,
) -> dict[str, Any]:
    """Measure the contestants, print a table, and return its record.

    Promised: every result of every round is compared with one computed separately, and no figure is printed or
    written unless all agree (`ResultError`). The order rotates from round to round, all in one JVM.
    Not promised: figures of a machine that does something else meanwhile. Compare ratios within one record.

    Args:
        keys: number of possible keys.
        rows: rows per epoch; the slow contestants get fewer, see the record.
        skew: exponent of the Zipf law of the keys, 0 for uniform ones. See `midstream.bench.rows.Rows`.
        epochs: epochs per contestant and round; the first third is warm-up.
        rounds: how many times each contestant runs.
        contestants: which of them, see `midstream.bench.contestants`.
        json: file for the record.
        echo: takes the text to print.
    """
    at_least_one(keys=keys, rows=rows, epochs=epochs, rounds=rounds)
    _refuse_unknown(contestants)
    if skew < 0:
        raise MidstreamError(f"skew is the exponent of a Zipf law, 0 or greater, not {skew}")
    if "transform_with_state" in contestants:
        all_contestants.require_transform_with_state()
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in contestants}
    with workbench() as bench:
        for number in range(rounds):
            for name in rotated(contestants, number):
                echo(f"round {number + 1} of {rounds}: {name}")
                per_epoch = min(rows, SLOW.get(name, rows))
                runs[name].append(_measured(bench, name, Rows(keys, skew), per_epoch, epochs))
        about = machine.describe(bench.spark)
    results = [_result(name, min(rows, SLOW.get(name, rows)), runs[name]) for name in runs]
    record = {
        "checked": True,  # otherwise there would be no record
        "keys": keys,
        "rows": rows,
        "skew": skew,
        "epochs": epochs,
        "results": results,
        "ratios": _ratios(results),
        "machine": about,
        "timed_region": TIMED_REGION,
    }
    echo(rendered(_table(record), *_notes(record)))
    if json is not None:
        save(record, json)
    return record


def rotated(contestants: Sequence[str], number: int) -> tuple[str, ...]:
    """Return the order of a round: the first one pays for a cold machine, so it is another one each time.

    >>> rotated(("a", "b", "c"), 4)
    ('b', 'c', 'a')
    """
    turn = number % len(contestants)
    return (*contestants[turn:], *contestants[:turn])


def _refuse_unknown(contestants: Sequence[str]) -> None:
    unknown = [name for name in contestants if name not in CONTESTANTS]
    if unknown or not contestants or len(set(contestants)) < len(contestants):
        raise MidstreamError(
            f"contestants are one or more of {', '.join(CONTESTANTS)}, each once; "
            f"not {', '.join(contestants) or 'none'}"
        )


def _measured(bench: Workbench, name: str, rows: Rows, per_epoch: int, epochs: int) -> dict[str, Any]:
    """Run a contestant once, and check what it computed."""
    with bench.scratch(name) as directory:
        outcome = CONTESTANTS[name](Trial(bench.spark, rows, per_epoch, epochs, bench.cores, directory))
        check(name, outcome.results, rows.sums(bench.spark, outcome.first, outcome.end))
        epoch_ms = steady(outcome.times)
        return {
            "rows_per_s": round(per_epoch / epoch_ms * 1000),
            "epoch_ms_p50": epoch_ms,
            "epochs_ms": [times["triggerExecution"] for times in outcome.times],
        }


def _result(name: str, per_epoch: int, runs: list[dict[str, Any]]) -> dict[str, Any]:
    speeds = [run["rows_per_s"] for run in runs]
    return {
        "name": name,
        "rows": per_epoch,
        "rows_per_s": round(median(speeds)),
        "rows_per_s_min": min(speeds),
        "rows_per_s_max": max(speeds),
        "epoch_ms_p50": median(run["epoch_ms_p50"] for run in runs),
        "rounds": runs,
    }


def _ratios(results: list[dict[str, Any]]) -> dict[str, float]:
    speed = {result["name"]: result["rows_per_s"] for result in results}
    return {f"{a}/{b}": round(speed[a] / speed[b], 3) for a, b in RATIOS if a in speed and b in speed}


def _table(record: dict[str, Any]) -> Table:
    law = f"Zipf {record['skew']:g}" if record["skew"] else "uniform"
    title = f"count and sum per key, {record['rows']:,} rows per epoch, {record['keys']:,} keys, {law}"
    table = Table(title=title, title_justify="left")
    for heading in ("", "rows/s", "min – max", "epoch p50", "of ceiling"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    speed = {result["name"]: result["rows_per_s"] for result in record["results"]}
    for result in record["results"]:
        table.add_row(
            result["name"],
            f"{result['rows_per_s']:,}",
            f"{_thousands(result['rows_per_s_min'])} – {_thousands(result['rows_per_s_max'])} k",
            f"{result['epoch_ms_p50']:,.0f} ms",
            f"{result['rows_per_s'] / speed['ceiling']:.2f}" if "ceiling" in speed else "–",
        )
    return table


def _thousands(number: int) -> str:
    return f"{number / 1000:,.0f}" if number >= 100_000 else f"{number / 1000:,.1f}"


def _notes(record: dict[str, Any]) -> list[str]:
    notes = [f"{name} = {ratio:.2f}" for name, ratio in record["ratios"].items()]
    notes += [
        f"{result['name']} ran with {result['rows']:,} rows per epoch: it is slow."
        for result in record["results"]
        if result["rows"] < record["rows"]
    ]
    notes.append("All results agree with a batch query over the same rows.")
    return [*notes, f"Timed: {record['timed_region']}."]
