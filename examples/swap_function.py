"""Replace the function of a stateful operator while the job runs: its state stays.

It prints:

    auction 1 total 40.0
    Completed: replace 'totals'
    auction 1 total 45.0 with tax 54.0
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

import midstream as ms
from midstream.spark.session import local_session
from midstream.testing import Live


class Total(ms.KeyedFunction):
    """A running total."""

    total = ms.value("double", default=0.0)

    def process(self, key: int, rows: list[Any], ctx: ms.Context) -> Any:
        """Add up the bids."""
        self.total += sum(row.price for row in rows)
        yield (f"auction {key} total {self.total}",)


class WithTax(Total):
    """The same state, another result."""

    def process(self, key: int, rows: list[Any], ctx: ms.Context) -> Any:
        """Add up the bids, and the tax."""
        for (text,) in super().process(key, rows, ctx):
            yield (f"{text} with tax {self.total * 1.2}",)


def main(spark: SparkSession) -> None:
    """Run, swap, continue."""
    out = ms.sinks.memory()

    def build(flow: ms.Flow, bids: ms.Stream) -> None:
        bids.key_by("auction").process("totals", Total(), schema="text string").sink("out", out)

    with Live(spark, build, bids="auction long, price double") as live:
        live.feed("bids", [(1, 10.0), (1, 30.0)])
        print(out.rows()[-1].text)
        print(live.modify(ms.replace("totals", WithTax())).status)
        live.feed("bids", [(1, 5.0)])
        print(out.rows()[-1].text)


if __name__ == "__main__":
    main(local_session())
