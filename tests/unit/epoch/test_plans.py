"""Which plan an epoch runs under: the running one, or the one that is armed."""

from __future__ import annotations

from pathlib import Path

import pytest

from midstream.checkpoint.journal import Journal
from midstream.checkpoint.records import Commit
from midstream.checkpoint.storage import Storage
from midstream.epoch.plans import Armed, Plans
from midstream.errors import CheckpointError
from midstream.operators.resolved import Resolved
from midstream.plan.plan import Plan


def plan(version: int) -> Resolved:
    return Resolved(Plan(name="flow", operators=(), version=version), {}, {}, {})


def armed(version: int, first: int = 0) -> Armed:
    return Armed(plan(version), lambda: None, lambda cut: None, lambda error: None, first)


def of_version(version: int) -> Commit:
    return Commit(epoch=0, id="", parent="", version=version, clock=0, offsets=())


@pytest.fixture
def plans(tmp_path: Path) -> Plans:
    return Plans(None, Journal(Storage(str(tmp_path))), plan(1))  # type: ignore[arg-type]  # no plan is resolved here


def test_without_an_armed_plan_every_epoch_is_due_under_the_running_one(plans: Plans) -> None:
    assert (plans.due(0), plans.due(7), plans.armed) == (1, 1, None)


def test_an_armed_plan_is_due_from_its_first_epoch_on(plans: Plans) -> None:
    plans.arm(armed(2, first=5))
    assert [plans.due(epoch) for epoch in (4, 5, 6)] == [1, 2, 2]


def test_what_is_armed_is_found_by_its_version_only(plans: Plans) -> None:
    plans.arm(armed(2))
    assert plans.armed_as(2) is plans.armed
    assert plans.armed_as(1) is None


def test_only_the_version_that_is_named_is_disarmed(plans: Plans) -> None:
    plans.arm(armed(2))
    assert plans.disarm(3) is None
    assert plans.due(0) == 2
    assert plans.disarm(2) is not None
    assert (plans.due(0), plans.disarm(2), plans.disarm()) == (1, None, None)


def test_disarming_without_a_version_takes_whatever_is_armed(plans: Plans) -> None:
    what = armed(2)
    plans.arm(what)
    assert plans.disarm() is what
    assert plans.armed is None


def test_a_plan_that_runs_is_known(plans: Plans) -> None:
    second = plan(2)
    plans.run(second)
    assert plans.running is second
    assert plans.version(2) is second
    assert plans.of(of_version(2)) is second.plan


def test_plans_that_nobody_needs_are_read_from_the_journal_again(plans: Plans, tmp_path: Path) -> None:
    first = plans.running
    plans.run(plan(2))
    plans.keep({2})
    with pytest.raises(CheckpointError, match="plan version 1 cannot be read"):
        plans.of(of_version(1))
    Journal(Storage(str(tmp_path))).write_plan(first.plan)
    assert plans.of(of_version(1)) == first.plan
