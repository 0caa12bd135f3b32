"""Try a change beside the running job first: a shadow says which rows would differ, then it is promoted.

It prints:

    the job's last row: auction 1 total 47
    the shadow's sink: 2 rows, 1 missing, 0 extra
      - {"auction":1,"total":47}
    Completed: replace 'big'
"""

from __future__ import annotations

from pyspark.sql import SparkSession

import midstream as ms
from midstream.spark.session import local_session
from midstream.testing import Live


def main(spark: SparkSession) -> None:
    """Run, try a stricter filter in the shadow, look, promote it."""
    out = ms.sinks.memory()

    def build(flow: ms.Flow, bids: ms.Stream) -> None:
        big = bids.transform("big", lambda df: df.where("price > 5"))
        big.key_by("auction").aggregate("totals", total=ms.sum("price")).sink("out", out)

    with Live(spark, build, bids="auction long, price long") as live:
        live.feed("bids", [(1, 10)])
        shadow = live.job.shadow(ms.replace("big", lambda df: df.where("price > 8")))
        live.feed("bids", [(1, 30)])  # both take it
        live.feed("bids", [(1, 7), (1, 1)])  # the shadow takes neither
        print("the job's last row: auction {} total {}".format(*out.rows()[-1]))
        print(f"the shadow's sink: {shadow.differences['out']}")
        print(shadow.promote().wait().status)


if __name__ == "__main__":
    main(local_session())
