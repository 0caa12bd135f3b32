"""A job on a real cluster that an executor joins, and another leaves: who gets which groups, and what is said of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

import midstream as ms
from midstream.placement.anchor import executors, keep_executors
from midstream.testing import Cluster, Live

KEYS = 300


def run(spark: SparkSession, workers: Cluster, until: Callable[[Callable[[], bool], str], None]) -> dict[str, Any]:
    """Let a third executor join two; then move, rescale and drain, and take the drain back."""
    out = {"free": ms.sinks.memory(), "fixed": ms.sinks.memory()}
    told: dict[str, Any] = {"fed": 0}

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        rows.key_by("k").aggregate("free", total=ms.sum("v")).sink("free_out", out["free"])
        rows.key_by("k").aggregate("fixed", slots=2, total=ms.sum("v")).sink("fixed_out", out["fixed"])

    def homes(operator: str) -> dict[str, int]:
        """How many groups each executor has."""
        found: Counter[str] = Counter()
        for slot in live.job.slots:
            found[slot.executor] += slot.groups if slot.operator == operator else 0
        return dict(+found)

    def feed() -> None:
        live.feed("rows", [(k, 1) for k in range(KEYS)])
        told["fed"] += 1

    def noted(name: str, change: ms.Change) -> None:
        told[name] = live.job.modify(change).watch(300).note
        told[f"{name}, homes"] = {id: homes(id) for id in out}
        feed()

    until(lambda: len(executors(spark)) == 2, "there are two executors")
    options = {"groups": 16, "on_join": "rebalance"}
    with Live(spark, build, options=options, rows="k long, v long") as live:
        feed()
        first = executors(spark)
        workers.add_worker()
        until(lambda: len(executors(spark)) == 3, "a third one joins")
        (newcomer,) = executors(spark) - first
        told["newcomer"], told["first"] = newcomer, sorted(first)
        until(lambda: len(live.job.modifications) > 0, "the job asks for a rebalance itself")
        joined = live.job.modifications[0].watch(300)
        told["joined"], told["joined, homes"] = joined.note, {id: homes(id) for id in out}
        feed()
        noted("rescaled", ms.rescale("fixed", slots=3))
        groups = [group for group, home in enumerate(live.job.plan["free"].homes) if home != newcomer][:2]  # type: ignore[union-attr]
        noted("moved", ms.move("free", groups=groups, to=newcomer))
        noted("balanced", ms.rebalance("free"))
        live.modify(ms.tune(standbys=1))
        until(lambda: sum(slot.standbys for slot in live.job.slots) == 32, "every group has a second copy")
        drain = live.job.modify(ms.drain(told["first"][0])).wait(300)
        told["drained"], told["drained, homes"] = drain.note, {id: homes(id) for id in out}
        feed()
        undone = drain.undo()
        until(lambda: undone.phase.is_final, "it is refused")
        told["undone"] = [undone.phase.value, undone.error]
        feed()
    told["sums"] = {id: dict(Counter(last.values())) for id in out if (last := {r.k: r.total for r in out[id].rows()})}
    keep_executors(spark, 3)
    until(lambda: len(executors(spark) - {told["first"][0]}) == 3, "Spark starts another one")
    return told
