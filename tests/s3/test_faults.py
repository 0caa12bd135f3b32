"""Whatever dies, fails, hangs or is damaged while the checkpoint is on S3: nothing is lost, repeated or guessed."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from midstream.checkpoint import storage as storage_module
from midstream.checkpoint.storage import Storage
from midstream.errors import CheckpointError, MidstreamError, SinkError
from midstream.events import After, Before, Event, Step
from tests.faults import workload
from tests.faults.killing import killed
from tests.faults.test_kill import POINTS
from tests.s3 import rival
from tests.support.object_store import Gate, Rule

pytestmark = pytest.mark.slow

Outcome = dict[str, Counter[str]]


def test_a_killed_driver_loses_and_repeats_nothing(
    spark: SparkSession, bucket: str, tmp_path: Path, undisturbed: Outcome
) -> None:
    for number in range(len(POINTS)):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "durable").write_text(f"{bucket}/{number}")
    for dead, point in zip(killed("tests.faults.workload", tmp_path, POINTS), POINTS, strict=True):
        assert dead.arrived == " ".join(point), "the fault must have fired"
        job = workload.start(spark, dead.root)
        job.await_termination()
        assert workload.outcome(job, dead.root) == undisturbed, point


WEATHER = {
    "refusals": [Rule("503", every=11), Rule("500", every=13)],
    "answers that are lost": [Rule("lost", method="PUT|POST|DELETE", every=7)],
    "commits whose answer is lost": [Rule("lost", path="/checkpoint/commits/", method="PUT", every=2)],
    "a store that is slow": [Rule("slow", seconds=0.05)],
    "requests that hang": [
        Rule("hangs", path=path, method="PUT", times=1) for path in ("/commits/", "/journal/", "/log/", "/spark/")
    ],
}


@pytest.mark.parametrize("weather", WEATHER)
def test_a_job_gets_through_bad_weather(
    spark: SparkSession, root: str, object_store: Gate, undisturbed: Outcome, weather: str
) -> None:
    with object_store.failing(*WEATHER[weather]) as rules:
        job = workload.start(spark, root)
        job.await_termination()
    assert all(rule.used for rule in rules), "the faults must have fired"
    assert workload.outcome(job, root) == undisturbed


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give a store up after two tries, in this process."""
    monkeypatch.setattr(storage_module, "_TRIES", 2)
    storage_module._s3.cache_clear()
    yield
    storage_module._s3.cache_clear()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("step", [Step.JOURNAL, Step.COMMIT, Step.PUBLISH])
def test_a_store_that_goes_away_ends_the_job_and_a_restart_goes_on(
    spark: SparkSession, root: str, object_store: Gate, undisturbed: Outcome, step: Step
) -> None:
    def listen(event: Event) -> None:
        if isinstance(event, Before) and event.step is step and event.epoch == 2:
            object_store.rules = [Rule("503")]

    expected = SinkError if step is Step.PUBLISH else CheckpointError
    with object_store.failing(), pytest.raises(expected, match="start the job again"):
        workload.start(spark, root, listener=listen).await_termination()
    job = workload.start(spark, root)
    job.await_termination()
    assert workload.outcome(job, root) == undisturbed


def test_objects_that_are_missing_or_damaged_are_named_and_can_be_brought_back(
    spark: SparkSession, root: str, undisturbed: Outcome
) -> None:
    workload.start(spark, root, epochs=2).await_termination()
    checkpoint = Storage.at(f"{workload.durable(root)}/checkpoint")
    (run,) = checkpoint.list("state/sums/000000000000/log/000000000001")
    log = (
        f"state/sums/000000000000/log/000000000001/{run}/"
        + checkpoint.list(f"state/sums/000000000000/log/000000000001/{run}")[0]
    )
    named = checkpoint.root.replace("s3:", "s3a?:")  # as Spark and as we spell it
    for path in (log, "commits/000000000001.json", "plans/v000001.json", "midstream.json", "spark/offsets/1"):
        otherwise = "STREAM_FAILED" if path.startswith("spark") else f"{named}$"  # it does not always name its file
        kept = checkpoint.read(path)
        damages = (b"scribble", kept[: len(kept) // 2], None)
        for damage in damages[: 2 if path.startswith("plans") else 3]:  # without its plan, the script's is taken
            shutil.rmtree(f"{root}/cache", ignore_errors=True)
            if damage is None:
                checkpoint.delete(path)
            else:
                checkpoint.write(path, damage)
            with pytest.raises(MidstreamError, match=f"{named}/{path}|{named} |{otherwise}"):
                workload.start(spark, root).await_termination()
            checkpoint.write(path, kept)
    job = workload.start(spark, root)
    job.await_termination()
    assert workload.outcome(job, root) == undisturbed


def test_the_first_of_two_drivers_is_stopped_if_the_second_commits_its_epoch(
    spark: SparkSession, root: str, undisturbed: Outcome
) -> None:
    with rival.running(root, 2) as first:
        first.waits()
        job = workload.start(spark, root)
        job.await_termination()
        assert "CheckpointError another driver has written" in first.goes_on()
    assert workload.outcome(job, root) == undisturbed


def test_the_second_of_two_drivers_is_stopped_if_the_first_commits_its_epoch(
    spark: SparkSession, root: str, undisturbed: Outcome
) -> None:
    with rival.running(root, 2) as first:
        first.waits()

        def listen(event: Event) -> None:
            if isinstance(event, After) and event.step is Step.RUN and event.epoch == 2:
                assert first.goes_on() == ""

        with pytest.raises(CheckpointError, match=r"another driver has written .*/commits/000000000002\.json"):
            workload.start(spark, root, listener=listen).await_termination()
    shutil.rmtree(f"{root}/cache")  # what the second has deleted would be missed
    job = workload.start(spark, root)
    job.await_termination()
    assert workload.outcome(job, root) == undisturbed
