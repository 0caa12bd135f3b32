"""A test kit for flows: lists in, rows out; a crash or a failing task is a value in the list.

    from midstream import testing

    def build(flow, bids):
        bids.key_by("auction").aggregate("sums", total=ms.sum("price")).sink("out", ms.sinks.memory())

    result = testing.run(
        spark,
        build,
        bids=testing.batches("auction long, price long", [(1, 10)], testing.Crash(), [(1, 5)]),
    )
    assert result.rows("out") == [(1, 10), (1, 15)]

Every list is one epoch. Real Spark, real files, real recovery: only the input and the clock are artificial.

`Live` feeds a running job by hand; `cluster` starts a real Spark cluster on this machine.
"""

from midstream.testing.kit import Batches, Crash, CrashedError, ManualClock, Result, TaskFailure, batches, run, source
from midstream.testing.live import Live
from midstream.testing.spark_cluster import Cluster, cluster

__all__ = [
    "Batches",
    "Cluster",
    "Crash",
    "CrashedError",
    "Live",
    "ManualClock",
    "Result",
    "TaskFailure",
    "batches",
    "cluster",
    "run",
    "source",
]
