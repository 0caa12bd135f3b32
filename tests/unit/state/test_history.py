"""The committed history of an operator: the logs that lead from a copy to the head, or none, but never too few."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from midstream.checkpoint.records import NEVER, Commit, LogRef, OperatorState
from midstream.errors import CheckpointError
from midstream.state.history import History, logs_of
from midstream.state.stores.contract import Version
from tests.support.histories import GROUPS
from tests.support.histories import History as Epochs

A = b"\1a"


@pytest.fixture
def epochs(tmp_path: Path) -> Epochs:
    """Give a job that has not run yet."""
    return Epochs(tmp_path)


def known(epochs: Epochs, recent: int = 0) -> History:
    return History(epochs.cache(recent=recent).head)


def at(epochs: Epochs, epoch: int) -> Version:
    return Version("job", epoch, epochs.commits[epoch].id)


def paths(epochs: Epochs, *numbers: int) -> list[str]:
    return [epochs.commits[number].operators["sums"].logs[0].path for number in numbers]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    changes=st.lists(st.sets(st.integers(0, GROUPS - 1)), min_size=1, max_size=8),
    recent=st.integers(0, 3),
    draw=st.data(),
)
def test_the_logs_after_a_version_are_those_of_the_epochs_that_changed_the_group(
    tmp_path_factory: pytest.TempPathFactory, changes: list[set[int]], recent: int, draw: st.DataObject
):
    epochs = Epochs(tmp_path_factory.mktemp("epochs"))
    for number, groups in enumerate(changes):
        epochs.epoch({group: {A: b"%d" % number} for group in groups})
    history = known(epochs, recent)
    for group in range(GROUPS):
        changed = [number for number, groups in enumerate(changes) if group in groups]
        assert history.since(group, None) == paths(epochs, *changed)
        if changed:
            version = draw.draw(st.sampled_from(changed))
            assert history.since(group, at(epochs, version)) == paths(epochs, *(n for n in changed if n > version))


def test_a_version_of_another_history_leads_nowhere(epochs: Epochs):
    for number in range(3):
        epochs.epoch({0: {A: b"%d" % number}})
    epochs.epoch({1: {A: b"1"}})
    history = known(epochs)
    assert history.since(0, at(epochs, 1)) == paths(epochs, 2)
    for stranger in (
        Version("another job", 1, epochs.commits[1].id),
        Version("job", 1, "another commit"),
        Version("job", 2, "another commit"),
        Version("job", 3, epochs.commits[3].id),  # an epoch that did not change the group
        Version("job", 99, "later"),
    ):
        assert history.since(0, stranger) is None, stranger
    assert history.since(2, at(epochs, 0)) is None, "a group that never changed has no version"
    assert history.since(2, None) == []


def test_a_record_of_another_commit_than_the_head_names_leads_nowhere(epochs: Epochs):
    for number in range(2):
        epochs.epoch({0: {A: b"%d" % number}})
    head = epochs.cache(recent=0).head
    assert History(head).since(0, None) == paths(epochs, 0, 1)
    other = History(replace(head, changed=((1, "another commit"), *head.changed[1:])))
    assert other.since(0, None) is None
    assert other.since(0, at(epochs, 0)) is None


def test_a_record_that_is_gone_is_missed_where_it_is_needed_and_nowhere_else(epochs: Epochs):
    for number in range(4):
        epochs.epoch({0: {A: b"%d" % number}, 1: {A: b"0"}} if number in (0, 3) else {0: {A: b"%d" % number}})
    epochs.forget([1])
    history = known(epochs)
    assert history.since(0, None) is None
    assert history.since(0, at(epochs, 0)) is None
    assert history.since(0, at(epochs, 2)) == paths(epochs, 3)
    assert history.since(1, None) == paths(epochs, 0, 3)


def test_a_copy_of_a_snapshot_whose_record_is_gone_is_known_by_the_snapshot(epochs: Epochs):
    epochs.epoch({0: {A: b"1"}})
    epochs.epoch({}, snapshots=(0,))
    epochs.epoch({0: {A: b"2"}})
    epochs.forget([0, 1])
    history = known(epochs)
    snapshot = history.snapshot_of(0)
    assert snapshot == epochs.snapshot_of(0)
    assert history.since(0, at(epochs, 0)) == paths(epochs, 2)
    assert history.since(0, Version("job", 0, "another commit")) is None
    assert history.snapshot_of(1) is None


def test_what_is_recent_is_not_read_again(epochs: Epochs):
    for number in range(3):
        epochs.epoch({0: {A: b"%d" % number}})
    history = known(epochs, recent=2)
    epochs.forget([1, 2])
    assert history.since(0, at(epochs, 0)) == paths(epochs, 1, 2)
    assert known(epochs, recent=0).since(0, at(epochs, 0)) is None


def test_before_the_first_epoch_there_is_nothing(epochs: Epochs):
    history = known(epochs)
    assert (history.since(0, None), history.snapshot_of(0)) == ([], None)
    assert history.since(0, Version("job", 0, "c")) is None


def test_the_newest_record_must_be_there_to_name_snapshots(epochs: Epochs):
    epochs.epoch({0: {A: b"1"}})
    history = History(replace(epochs.cache().head, epoch=7))
    with pytest.raises(CheckpointError, match=r"000000000007\.json is missing"):
        history.snapshot_of(0)


def test_a_record_says_which_logs_an_operator_has_written():
    state = OperatorState(logs=(LogRef(0, "a", 1, ((3, 2, NEVER), (5, 1, 4))), LogRef(1, "b", 1, ((1, 1, 0),))))
    commit = Commit(epoch=7, id="c", parent="b", version=1, clock=0, offsets=(), operators={"sums": state})
    assert logs_of(commit, "sums") == (7, "c", (("a", {3: NEVER, 5: 4}), ("b", {1: 0})))
    assert logs_of(commit, "others") == (7, "c", ())
