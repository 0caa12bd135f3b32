"""Join two streams: orders with the payments that come up to ten seconds later, and orders that nobody pays.

An order comes out alone once the watermark proves that no payment can come in time. It prints:

    epoch 0: ann ordered tea, paid 3 after 4 s
    epoch 1: bob ordered jam, paid 5 after 9 s
    epoch 2: ann ordered nuts, not paid
"""

from datetime import datetime, timedelta, timezone

from pyspark.sql import Row, SparkSession

import midstream as ms
from midstream import testing
from midstream.spark.session import local_session

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
AT = [NOON + timedelta(seconds=second) for second in range(60)]
ORDERS = testing.batches(
    "customer string, item string, ordered timestamp",
    [("ann", "tea", AT[0]), ("bob", "jam", AT[1]), ("ann", "nuts", AT[8])],
    [("cid", "rice", AT[30])],
    [],
)
PAYMENTS = testing.batches(
    "payer string, amount long, paid timestamp",
    [("ann", 3, AT[4])],
    [("bob", 5, AT[10]), ("bob", 7, AT[30]), ("dan", 9, AT[30])],  # that of 7 comes too late for the jam
    [],
)


def build(flow: ms.Flow, orders: ms.Stream, payments: ms.Stream) -> None:
    """Wire the join: both sides need a key and an event time."""
    left = orders.with_watermark("ordered", "5 seconds").key_by("customer")
    right = payments.with_watermark("paid", "5 seconds").key_by("payer")
    joined = left.join("settled", right, how="left", within=ms.between("0 seconds", "10 seconds"))
    joined.sink("out", ms.sinks.memory())


def told(row: Row) -> str:
    """Say what became of an order."""
    if row.amount is None:
        return f"{row.customer} ordered {row.item}, not paid"
    return f"{row.customer} ordered {row.item}, paid {row.amount} after {(row.paid - row.ordered).seconds} s"


def main(spark: SparkSession) -> None:
    """Run the flow and print what it emitted."""
    result = testing.run(spark, build, orders=ORDERS, payments=PAYMENTS)
    for epoch, rows in sorted(result.outputs["out"].items()):
        print("\n".join(f"epoch {epoch}: {told(row)}" for row in sorted(rows)))


if __name__ == "__main__":
    main(local_session())
