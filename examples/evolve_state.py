"""Change the type of an operator's state while the job runs: old state is converted key by key, when it is next used.

It prints:

    auction 1: total 40.0
    Completed: replace 'totals'
    auction 1: 2 bids, mean 22.5
    auction 2: 1 bids, mean 7.0
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

import midstream as ms
from midstream.spark.session import local_session
from midstream.testing import Live


class Sum(ms.KeyedFunction):
    """The sum of all bids so far."""

    total = ms.value("double", default=0.0)

    def process(self, key: int, rows: list[Any], ctx: ms.Context) -> Any:
        """Add up the bids."""
        self.total += sum(row.price for row in rows)
        yield (f"auction {key}: total {self.total}",)


class Mean(ms.KeyedFunction):
    """A list of bids; the old total counts as one."""

    bids = ms.list("double")

    def process(self, key: int, rows: list[Any], ctx: ms.Context) -> Any:
        """Add the bids to the list."""
        self.bids.extend(row.price for row in rows)
        yield (f"auction {key}: {len(self.bids)} bids, mean {sum(self.bids) / len(self.bids)}",)


def main(spark: SparkSession) -> None:
    """Run, change the form of the state, continue."""
    out = ms.sinks.memory()

    def build(flow: ms.Flow, bids: ms.Stream) -> None:
        bids.key_by("auction").process("totals", Sum(), schema="text string").sink("out", out)

    with Live(spark, build, bids="auction long, price double") as live:
        print(out.rows(live.feed("bids", [(1, 10.0), (1, 30.0)]))[0].text)
        print(live.modify(ms.replace("totals", Mean(), migrate=lambda old: {"bids": [old["total"]]})).status)
        for row in sorted(out.rows(live.feed("bids", [(1, 5.0), (2, 7.0)]))):
            print(row.text)


if __name__ == "__main__":
    main(local_session())
