"""The committed history as the next epoch sees it, over commits, forgetting and restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from midstream.checkpoint.housekeeping import Housekeeping
from midstream.checkpoint.journal import Journal
from midstream.checkpoint.records import Commit, Intent, OperatorState
from midstream.checkpoint.storage import Storage
from midstream.epoch.history import History
from midstream.operators.resolved import Resolved
from midstream.plan.plan import Plan

PLAN = Resolved(Plan(name="flow", operators=(), version=3), {}, {}, {})


class Kept:
    """A history on a disk, with epochs that are written without Spark."""

    def __init__(self, directory: Path) -> None:
        self.journal = Journal(Storage(str(directory)))
        self.history = self.started()

    def started(self) -> History:
        history = History(self.journal, Housekeeping(self.journal, 10, 0), groups=4)
        history.take_up()
        return history

    def commit(self, **operators: int) -> Commit:
        """Commit an epoch that knows operators, each born in an epoch."""
        self.history.begin_epoch()
        last = self.history.last
        states = {id: OperatorState(born=born) for id, born in operators.items()}
        number = self.history.next_epoch
        commit = Commit(
            epoch=number, id=f"{number:016x}", parent=last.id if last else "", version=1, clock=number,
            offsets=(str(number),), operators=states,
        )  # fmt: skip
        self.journal.write_commit(commit)
        self.history.append(commit)
        self.history.end_epoch()
        return commit


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_before_the_first_epoch_nothing_is_known(kept: Kept) -> None:
    history = kept.history
    assert (history.last, history.recent, history.next_epoch, history.offsets) == (None, (), 0, ())
    assert history.states == {}


def test_the_newest_epoch_says_where_sources_stand(kept: Kept) -> None:
    for _ in range(3):
        kept.commit()
    assert kept.history.offsets == ("2",)
    assert kept.history.next_epoch == 3


def test_a_restart_finds_the_newest_eight_epochs(kept: Kept) -> None:
    commits = [kept.commit(sums=0) for _ in range(11)]
    assert kept.history.recent == tuple(commits[-8:])
    assert kept.started().recent == tuple(commits[-8:])
    assert kept.started().last == commits[-1]


def test_a_forgotten_operator_is_unknown_at_once_and_goes_with_the_next_epoch(kept: Kept) -> None:
    kept.commit(sums=0, old=0)
    kept.history.forget("old", 0)
    assert set(kept.history.states) == {"sums"}
    kept.history.begin_epoch()
    assert kept.history.forgetting == {"old"}
    kept.commit(sums=0)
    assert kept.history.forgotten == {}
    assert kept.journal.forgotten() == {}


def test_a_forgotten_operator_stays_forgotten_over_a_restart(kept: Kept) -> None:
    kept.commit(sums=0, old=0)
    kept.history.forget("old", 0)
    assert set(kept.started().states) == {"sums"}


def test_an_operator_that_is_born_again_under_a_forgotten_id_is_known(kept: Kept) -> None:
    kept.commit(sums=0)
    kept.history.forget("sums", 0)
    kept.history.begin_epoch()
    assert kept.history.born("sums", 1) == 1
    kept.commit(sums=1)
    assert kept.history.states["sums"].born == 1
    assert kept.history.born("sums", 2) == 1


def test_what_is_forgotten_during_an_epoch_goes_with_the_one_after_it(kept: Kept) -> None:
    kept.commit(sums=0, old=0)
    kept.history.begin_epoch()
    kept.history.forget("old", 0)
    assert kept.history.forgetting == frozenset()
    kept.history.end_epoch()
    assert kept.history.forgotten == {"old": 0}


def test_an_epoch_begins_with_the_newest_record_and_without_what_it_forgets(kept: Kept) -> None:
    commit = kept.commit(sums=0, old=0)
    kept.history.forget("old", 0)
    kept.history.begin_epoch()
    beginning = kept.history.beginning(Intent(epoch=1, version=3, clock=5, seed=""), PLAN, final=True)
    assert (beginning.last, beginning.groups, beginning.final) == (commit, 4, True)
    assert set(beginning.states()) == {"sums"}
    assert beginning.state("old").born == 1
