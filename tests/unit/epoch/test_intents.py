"""What is decided for an epoch is decided once, and a rerun finds it as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from midstream.checkpoint.housekeeping import Housekeeping
from midstream.checkpoint.journal import Journal
from midstream.checkpoint.records import Commit, Intent
from midstream.checkpoint.storage import Storage
from midstream.epoch.clock import EpochClock
from midstream.epoch.context import JobContext
from midstream.epoch.history import History
from midstream.epoch.plans import Armed, Intents, Plans
from midstream.epoch.settings import Settings
from midstream.errors import CheckpointError
from midstream.events import After, Before, Event, Step
from midstream.operators.resolved import Resolved
from midstream.plan.plan import Plan


class Job:
    """The parts of a job that decide, with a clock of the test's."""

    def __init__(self, directory: Path) -> None:
        self.now, self.heard, self.is_lost = 100, list[Event](), False
        self.journal = Journal(Storage(str(directory)))
        context = JobContext(
            spark=None,  # type: ignore[arg-type]  # nothing is run here
            journal=self.journal,
            job="job",
            query_name="job",
            groups=1,
            settings=Settings(""),
            clock=EpochClock(lambda: self.now, None),
            listener=self.heard.append,
            guard=self._guard,
        )
        self.plans = Plans(context.spark, self.journal, resolved(1))
        self.history = History(self.journal, Housekeeping(self.journal, 10, 0), 1)
        self.intents = Intents(context, self.plans, self.history)

    def _guard(self) -> None:
        if self.is_lost:
            raise CheckpointError("the checkpoint belongs to another driver")


def resolved(version: int) -> Resolved:
    return Resolved(Plan(name="flow", operators=(), version=version), {}, {}, {})


def armed(version: int) -> Armed:
    return Armed(resolved(version), lambda: None, lambda cut: None, lambda error: None)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_an_epoch_that_is_run_again_has_the_same_clock_seed_and_plan(job: Job) -> None:
    first = job.intents.of(0)
    job.now = 999
    job.plans.arm(armed(2))
    assert job.intents.of(0) == first
    assert (first.version, first.clock) == (1, 100)


def test_two_epochs_have_different_seeds(job: Job) -> None:
    assert job.intents.of(0).seed != job.intents.of(1).seed


def test_a_new_epoch_runs_under_the_plan_that_is_armed(job: Job) -> None:
    job.plans.arm(armed(2))
    assert job.intents.of(0).version == 2


def test_the_decision_is_written_between_its_two_events(job: Job) -> None:
    job.intents.of(0)
    assert job.heard == [Before(Step.JOURNAL, 0), After(Step.JOURNAL, 0)]
    job.intents.of(0)
    assert len(job.heard) == 2


def test_nothing_is_decided_in_a_checkpoint_that_was_lost(job: Job) -> None:
    job.is_lost = True
    with pytest.raises(CheckpointError):
        job.intents.of(0)
    assert job.journal.intent(0) is None


def test_the_clock_does_not_go_back_behind_the_newest_epoch(job: Job) -> None:
    job.history.append(Commit(epoch=0, id="a", parent="", version=1, clock=500, offsets=()))
    assert job.intents.of(1).clock >= 500


def test_an_epoch_that_failed_under_a_new_plan_keeps_its_clock_and_seed_under_the_old_one(job: Job) -> None:
    job.plans.arm(armed(2))
    before = job.intents.of(0)
    after = job.intents.under_running_plan(before)
    assert after == Intent(epoch=0, version=1, clock=before.clock, seed=before.seed)
    assert job.journal.intent(0) == after


@pytest.mark.parametrize(
    ("journalled", "armed_version", "asked", "adopted"),
    [
        (1, None, None, 1),  # the running plan
        (2, 2, None, 2),  # the armed one: killed at the cut
        (2, None, None, 1),  # a plan that this start does not know
        (1, 3, 3, 3),  # the flow of this start, which the epoch has to run under
        (3, 3, 3, 3),
    ],
)
def test_an_epoch_that_was_begun_runs_under_a_plan_that_this_start_knows(
    job: Job, journalled: int, armed_version: int | None, asked: int | None, adopted: int
) -> None:
    job.journal.write_intent(Intent(epoch=0, version=journalled, clock=7, seed="s"))
    if armed_version is not None:
        job.plans.arm(armed(armed_version))
    job.intents.adopt(asked)
    assert job.journal.intent(0) == Intent(epoch=0, version=adopted, clock=7, seed="s")


def test_there_is_nothing_to_adopt_where_no_epoch_was_begun(job: Job) -> None:
    job.intents.adopt(3)
    assert job.journal.intent(0) is None
