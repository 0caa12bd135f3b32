"""Timers of both kinds: an auction closes ten seconds (event time) after its last bid.

The clock is a minute further in each epoch; the end of the input fires all event-time timers. It prints:

    epoch 1: auction 1: open for a minute
    epoch 2: auction 1: closed after 3 bids
    epoch 2: auction 2: open for a minute
    epoch 3: auction 2: closed after 1 bids
"""

from datetime import datetime, timedelta, timezone
from typing import Any

from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.sessions import local_session

AT = [datetime(2026, 1, 1, 12, 0, second, tzinfo=timezone.utc) for second in range(60)]
LISTS = [(1, AT[2]), (1, AT[0])], [(1, AT[5]), (2, AT[30])], []  # the third epoch has no rows


class Auction(ms.KeyedFunction):
    """Counts bids until none has come for ten seconds of event time."""

    bids = ms.value("long", default=0)
    closing = ms.value("timestamp")

    def process(self, auction: int, rows: list[Any], ctx: ms.Context) -> None:
        """Take in bids, in the order of their event time."""
        if self.closing is None:
            ctx.set_processing_timer(ctx.now + timedelta(minutes=1))
        else:
            ctx.clear_event_timer(self.closing)
        self.bids += len(rows)
        self.closing = rows[-1].ts + timedelta(seconds=10)
        ctx.set_event_timer(self.closing)

    def on_timer(self, auction: int, timer: ms.Timer, ctx: ms.Context) -> Any:
        """Close the auction, or say that it is still open."""
        if timer.kind == "event_time":
            yield auction, f"closed after {self.bids} bids"
            self.bids = self.closing = None  # None removes a value
        elif self.closing is not None:
            yield auction, "open for a minute"


def main(spark: SparkSession) -> None:
    """Run the flow to the end of its input and print what it gave out."""

    def build(flow: ms.Flow, bids: ms.Stream) -> None:
        keyed = bids.with_watermark("ts", "5 seconds").key_by("auction")
        keyed.process("auctions", Auction(), schema="auction long, what string").sink("out", ms.sinks.memory())

    bids, clock = testing.batches("auction long, ts timestamp", *LISTS), testing.ManualClock(step="1 minute")
    result = testing.run(spark, build, bids=bids, clock=clock, end_of_input=True)
    for epoch, rows in sorted(result.outputs["out"].items()):
        print("\n".join(f"epoch {epoch}: auction {row.auction}: {row.what}" for row in sorted(rows)))


if __name__ == "__main__":
    main(local_session())
