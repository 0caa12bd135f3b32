"""Declared aggregates per key, built-in ones and one of your own.

An aggregate emits the new values of the keys that had rows in an epoch. It prints:

    epoch 0: auction 1: bids 3, turnover 60.0, best 30.0, bidders 2, median 20.0, product 6000.0
    epoch 0: auction 2: bids 1, turnover 5.0, best 5.0, bidders 1, median 5.0, product 5.0
    epoch 1: auction 1: bids 5, turnover 110.0, best 45.0, bidders 3, median 20.0, product 1350000.0
"""

from __future__ import annotations

import math
import tempfile

from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.spark.session import local_session

BIDS = "auction long, bidder string, price double"
LISTS = [[(1, "ann", 10.0), (1, "bob", 30.0), (1, "ann", 20.0), (2, "ann", 5.0)], [(1, "cid", 45.0), (1, "bob", 5.0)]]


class Product(ms.Aggregator):
    """Multiplies the values of a column."""

    def zero(self) -> float:
        """Return the state of a key without values."""
        return 1.0

    def add(self, state: float, values: list[float]) -> float:
        """Fold this epoch's values of a key into a state."""
        return state * math.prod(values)

    def merge(self, left: float, right: float) -> float:
        """Merge two states."""
        return left * right


def main(spark: SparkSession) -> None:
    """Run the flow over two epochs and print what it emitted."""
    with tempfile.TemporaryDirectory() as here:
        out, flow = ms.sinks.memory(), ms.Flow("aggregates")
        bids = flow.source("bids", testing.source(spark, f"{here}/bids", BIDS, LISTS))
        bids.key_by("auction").aggregate(
            "stats", bids=ms.count(), turnover=ms.sum("price"), best=ms.max("price"),
            bidders=ms.approx_distinct("bidder"), median=ms.quantiles("price", 0.5),
            product=ms.aggregated("price", Product()),
        ).sink("out", out)  # fmt: skip
        flow.start(f"{here}/checkpoint", trigger=ms.available_now(), cache=f"{here}/cache").await_termination()
        for epoch in out.epochs():
            for row in sorted(out.rows(epoch)):
                auction, *rest = (f"{name} {value}" for name, value in row.asDict().items())
                print(f"epoch {epoch}: {auction}: {', '.join(rest)}")


if __name__ == "__main__":
    main(local_session())
