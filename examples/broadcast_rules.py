"""Give every key the same rules, and change them while the job runs: alerts for payments above a shop's limit.

A limit holds for the rows of the epoch in which it comes, and for all after it. It prints:

    limit 100: ann pays 120
    limit 50: ann pays 120, bob pays 60
    4 slots: ann pays 120, bob pays 60
    no limit: nobody
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

import midstream as ms
from midstream.spark.session import local_session
from midstream.testing import Live


class Alerts(ms.KeyedFunction):
    """Knows the limit of each shop, the same for all users."""

    limits = ms.map("string", "long", scope="broadcast")

    def on_broadcast(self, rows: list[Any], ctx: ms.Context) -> None:
        """Take over new limits; null means no limit."""
        self.limits.update({row.shop: row.most for row in rows})

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Iterator[tuple[Any, ...]]:
        """Compare the payments of a user with the limits."""
        for row in rows:
            limit = self.limits.get(row.shop)
            if limit is not None and row.paid > limit:
                yield (f"{key} pays {row.paid}",)


def main(spark: SparkSession) -> None:
    """Feed the same payments again and again, under other limits."""
    out, shown = ms.sinks.memory(), 0

    def build(flow: ms.Flow, payments: ms.Stream, limits: ms.Stream) -> None:
        keyed, rules = payments.key_by("user"), limits.broadcast()
        keyed.process("alerts", Alerts(), schema="text string", slots=2, broadcast=rules).sink("out", out)

    with Live(spark, build, payments="user string, shop string, paid long", limits="shop string, most long") as live:
        for what, limit in (("limit 100", 100), ("limit 50", 50), ("4 slots", 50), ("no limit", None)):
            if what == "4 slots":
                live.modify(ms.rescale("alerts", slots=4))
            live.feed("limits", [("toys", limit)])
            live.feed("payments", [("ann", "toys", 120), ("bob", "toys", 60), ("bob", "cars", 900)])
            texts = sorted(row.text for row in out.rows()[shown:])
            shown += len(texts)
            print(f"{what}: {', '.join(texts) or 'nobody'}")


if __name__ == "__main__":
    main(local_session())
