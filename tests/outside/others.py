"""A sink, a strategy and a change that Midstream does not have, made with its contracts alone."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession

from midstream.modifications.changes import Change
from midstream.placement.strategies.contract import Moving, Step, Strategy
from midstream.plan.plan import Plan
from midstream.sinks import Sink, Staged, Staging


class Lines(Sink):
    """A file of JSON lines for every epoch."""

    guarantee = "each committed epoch once: a file that is there is not written again"

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def stage(self, df: DataFrame, staging: Staging) -> Staged:
        """Write the rows where nobody looks."""
        place = Path(self._directory, ".staged", f"{staging.epoch}-{staging.run}")
        place.parent.mkdir(parents=True, exist_ok=True)
        rows = [row.asDict() for row in df.collect()]
        place.write_text("".join(json.dumps(row) + "\n" for row in rows))
        files = (place.name,) if rows else ()
        return Staged(staging.sink, staging.job, staging.epoch, str(place.parent), files)

    def publish(self, staged: Staged, spark: SparkSession) -> None:
        """Show them."""
        for name in staged.files:
            if not Path(self._directory, f"{staged.epoch}.json").exists():
                os.replace(Path(staged.location, name), Path(self._directory, f"{staged.epoch}.json"))

    def clean(self, what: Staging | Staged) -> None:
        """Leave what a run that never committed has staged: nobody looks there."""

    def describe(self) -> str:
        """Name the directory."""
        return f"lines({self._directory!r})"

    def rows(self) -> list[dict[str, int]]:
        """Read all rows, in the order of epochs."""
        files = sorted(Path(self._directory).glob("*.json"), key=lambda path: int(path.stem))
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]


@dataclass(frozen=True, slots=True)
class OneByOne(Strategy):
    """One group in every epoch, the busiest last."""

    def step(self, moving: Moving) -> Step:
        """Take the last."""
        return Step(flip=frozenset(moving.waiting[-1:]))


def rename(name: str) -> Change:
    """Give the flow another name."""

    def apply(plan: Plan) -> Plan:
        return msgspec.structs.replace(plan, name=name)

    return Change(f"rename to {name!r}", apply)


def watch(id: str, column: str) -> Change:
    """Let an operator of the kind `Greatest` look at another column."""

    def apply(plan: Plan) -> Plan:
        changed = msgspec.structs.replace(plan[id], column=column)
        return msgspec.structs.replace(plan, operators=tuple(changed if o.id == id else o for o in plan.operators))

    return Change(f"watch {column!r} in {id!r}", apply)
