"""Test a flow: lists in, rows out; a crash is a value in the list.

`test_...` is written as you would write it for pytest, with a fixture that gives a Spark session. It prints:

    without a crash: 1 total 40, 2 total 20, 1 total 45
    with 2 crashes and 1 failing task: 1 total 40, 2 total 20, 1 total 45
"""

from __future__ import annotations

from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.events import Step
from midstream.spark.session import local_session

BIDS = "auction long, price long"
FIRST, SECOND = [(1, 10), (2, 20), (1, 30)], [(1, 5)]  # each list is one epoch


def build(flow: ms.Flow, bids: ms.Stream) -> None:
    """Wire the flow under test: it gets a stream per input, and ends in memory sinks."""
    bids.key_by("auction").aggregate("sums", total=ms.sum("price")).sink("out", ms.sinks.memory())


def test_neither_crashes_nor_a_failing_task_change_the_totals(spark: SparkSession) -> tuple[testing.Result, ...]:
    """Compare a disturbed run with an undisturbed one."""
    plain = testing.run(spark, build, bids=testing.batches(BIDS, FIRST, SECOND))
    disturbed = testing.batches(
        BIDS,
        testing.Crash(),  # the driver dies before the commit record of epoch 0 is written
        FIRST,
        testing.TaskFailure(),  # a task of epoch 1 fails once
        testing.Crash(at=Step.PUBLISH, when="before"),  # epoch 1 is committed, and not yet published
        SECOND,
    )
    result = testing.run(spark, build, bids=disturbed, state=True)
    assert (result.crashes, result.task_failures) == (2, 1)  # the faults did happen
    assert sorted(result.rows("out")) == sorted(plain.rows("out")) == [(1, 40), (1, 45), (2, 20)]
    assert {row.auction: row.total for row in result.state["sums"]["record"]} == {1: 45, 2: 20}
    return plain, result


def shown(result: testing.Result) -> str:
    """Show totals, epoch by epoch."""
    epochs = (sorted(rows) for _, rows in sorted(result.outputs["out"].items()))
    return ", ".join(f"{row.auction} total {row.total}" for rows in epochs for row in rows)


def main(spark: SparkSession) -> None:
    """Run the test and show what both runs emitted."""
    plain, result = test_neither_crashes_nor_a_failing_task_change_the_totals(spark)
    print("without a crash:", shown(plain))
    print(f"with {result.crashes} crashes and {result.task_failures} failing task:", shown(result))


if __name__ == "__main__":
    main(local_session())
