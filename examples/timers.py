"""Timers of both kinds: an auction closes ten seconds (event time) after its last bid.

The clock is a minute further in each epoch; the end of the input fires all event-time timers. It prints:

    epoch 1: auction 1: open for a minute
    epoch 2: auction 1: closed at 12:00:15
    epoch 2: auction 2: open for a minute
    epoch 3: auction 2: closed at 12:00:40
"""

from datetime import datetime, timedelta, timezone
from typing import Any

from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.spark.session import local_session

AT = [datetime(2026, 1, 1, 12, 0, second, tzinfo=timezone.utc) for second in range(60)]
BIDS = testing.batches("auction long, ts timestamp", [(1, AT[2]), (1, AT[0])], [(1, AT[5]), (2, AT[30])], [])


class Auction(ms.KeyedFunction):
    """Is open until no bid has come for ten seconds of event time."""

    closing = ms.value("timestamp")

    def process(self, auction: int, rows: list[Any], ctx: ms.Context) -> None:
        """Take in bids, in the order of their event time."""
        if self.closing is None:
            ctx.set_processing_timer(ctx.now + timedelta(minutes=1))
        else:
            ctx.clear_event_timer(self.closing)
        self.closing = rows[-1].ts + timedelta(seconds=10)
        ctx.set_event_timer(self.closing)

    def on_timer(self, auction: int, timer: ms.Timer, ctx: ms.Context) -> Any:
        """Close the auction, or say that it is still open."""
        if timer.kind == "event_time":
            yield auction, f"closed at {timer.at:%H:%M:%S}"
            self.closing = None  # None removes a value
        elif self.closing is not None:
            yield auction, "open for a minute"


def main(spark: SparkSession) -> None:
    """Run the flow to the end of its input and print what it emitted."""

    def build(flow: ms.Flow, bids: ms.Stream) -> None:
        keyed = bids.with_watermark("ts", "5 seconds").key_by("auction")
        keyed.process("auctions", Auction(), schema="auction long, what string").sink("out", ms.sinks.memory())

    result = testing.run(spark, build, bids=BIDS, clock=testing.ManualClock(step="1 minute"), end_of_input=True)
    for epoch, rows in sorted(result.outputs["out"].items()):
        print("\n".join(f"epoch {epoch}: auction {row.auction}: {row.what}" for row in sorted(rows)))


if __name__ == "__main__":
    main(local_session())
