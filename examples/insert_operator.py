"""Insert a stateful operator, and a second sink, in one atomic step; then take it back.

It prints:

    before: 3 rows
    live, version 2
    └─ bids (source)
       └─ once (process by auction)
          ├─ seen (sink: memory())
          └─ out (sink: memory())
    after: 1 row, seen 1
    undone: 2 rows, seen 1
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

import midstream as ms
from midstream.spark.session import local_session
from midstream.testing import Live

SCHEMA = "auction long, price double"


class Once(ms.KeyedFunction):
    """Lets the first bid of each auction pass."""

    known = ms.value("boolean", default=False)

    def process(self, key: int, rows: list[Any], ctx: ms.Context) -> Any:
        """Pass a row of a key that was never seen."""
        if not self.known:
            self.known = True
            yield key, rows[0].price


def main(spark: SparkSession) -> None:
    """Run, insert, continue, undo."""
    out, seen = ms.sinks.memory(), ms.sinks.memory()
    with Live(spark, lambda flow, bids: bids.sink("out", out), bids=SCHEMA) as live:
        epoch = live.feed("bids", [(1, 10.0), (1, 30.0), (2, 5.0)])
        print(f"before: {len(out.rows(epoch))} rows")
        once = ms.key_by("auction").process(Once(), schema=SCHEMA)
        step = live.modify(ms.insert("once", once, after="bids"), ms.add_sink("seen", seen, after="once"))
        print(live.job.plan.explain())
        epoch = live.feed("bids", [(7, 1.0), (7, 2.0)])
        print(f"after: {len(out.rows(epoch))} row, seen {len(seen.rows())}")
        step.undo().wait()
        epoch = live.feed("bids", [(7, 1.0), (7, 2.0)])
        print(f"undone: {len(out.rows(epoch))} rows, seen {len(seen.rows())}")


if __name__ == "__main__":
    main(local_session())
