"""A job whose Java is killed while it is modified, by the driver, which lives on and sees its job end."""

from __future__ import annotations

import contextlib
import threading

from pyspark.sql import SparkSession

import midstream as ms
from midstream.events import Before, Event, Modifying, Step
from tests.faults.killing import Arrive
from tests.support.modifying import AT, Modified


def doomed(spark: SparkSession, root: str, parameters: list[str], arrive: Arrive) -> None:
    """Kill Java in the dry run or in the first epoch under the new plan; arrive at what became of the modification."""
    (when,) = parameters
    java, is_killed = spark.sparkContext._gateway.proc, threading.Event()  # type: ignore[union-attr]

    def on_event(event: Event) -> None:
        in_dry_run = isinstance(event, Modifying) and event.phase == "Validated" and event.written
        if in_dry_run if when == "dry run" else event == Before(Step.RUN, AT):
            java.kill()
            java.wait()
            is_killed.set()

    modified = Modified(spark, root, "replace stateful", on_event=on_event)
    job = modified.start(on_drift="keep")
    if when == "dry run":
        with job._query._changing:  # the job does not end before the dry run has
            is_killed.wait()
            (modification,) = job.modifications
            modification.reached(ms.Phase.PREPARED)
    with contextlib.suppress(ms.MidstreamError):
        job.await_termination(120)
    with job._engine.gate.between_epochs():  # the epoch is over as well
        arrive(f"{when}: {job.modifications[0].phase.value}")
