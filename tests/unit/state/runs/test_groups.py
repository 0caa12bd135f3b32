"""The groups of an operator, read and merged where their runs are; the model is in tests/unit/state/test_model.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from midstream.checkpoint.layout import run_directory
from midstream.checkpoint.records import RunRef
from midstream.checkpoint.storage import Storage
from midstream.errors import StateError
from midstream.state.history import Head
from midstream.state.runs import groups
from midstream.state.runs.groups import RunGroups
from midstream.state.runs.writer import write_run
from midstream.state.stores.contract import FIRST, LAST, Readable
from tests.support.run_parts import Entries, entries_of, part_of


class Runs:
    """Runs of one operator, the newest first."""

    def __init__(self, root: Path) -> None:
        self.storage, self.refs = Storage(str(root)), list[RunRef]()

    def add(self, **of_groups: Entries) -> str:
        """Add a run with entries of groups `g<number>`."""
        parts = {int(name[1:]): part_of(entries) for name, entries in of_groups.items()}
        path = write_run(self.storage, f"{run_directory('sums/000000000000')}/0", parts, {})
        self.refs.insert(0, RunRef(path, tuple((group, len(part)) for group, part in parts.items())))
        return self.storage.path(path)

    def groups(self) -> RunGroups:
        """Give them as a task sees them."""
        head = Head(
            "job", "sums", self.storage.root, "", len(self.refs) - 1, (None,) * 4, runs=tuple(self.refs), store="runs"
        )
        return RunGroups(head)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Give none yet."""
    return Runs(tmp_path)


def contents(store: Readable) -> dict[bytes, bytes]:
    with store.reader() as reader:
        return dict(reader.scan(FIRST, LAST))


def test_a_group_is_what_its_runs_have_together(runs: Runs) -> None:
    runs.add(g0={b"\1a": b"1", b"\1b": b"1"}, g2={b"\1c": b"1"})
    runs.add(g0={b"\1b": None, b"\1d": b"2"})
    found = runs.groups()
    assert contents(found.view(0)) == {b"\1a": b"1", b"\1d": b"2"}
    assert contents(found.view(2)) == {b"\1c": b"1"}
    assert contents(found.view(3)) == {}
    assert found.sizes[0][0] == 4
    assert found.accessed == 3


def test_what_the_epoch_has_changed_so_far_lies_over_it(runs: Runs) -> None:
    runs.add(g1={b"\1a": b"1"})
    found = runs.groups()
    found.pending[1] = {b"\1a": None, b"\1b": b"2"}
    assert contents(found.view(1)) == {b"\1b": b"2"}


def test_of_each_group_the_newest_runs_are_taken_that_are_to_be_merged(runs: Runs) -> None:
    for value in (b"1", b"2", b"3"):
        runs.add(g0={b"\1a": value}, g1={b"\1k": value})
    older = runs.groups().older({0: 2, 1: 3})
    assert [entries_of(part) for part in older[0].parts] == [[(b"\1a", b"3")], [(b"\1a", b"2")]]
    assert [older[0].whole, older[1].whole] == [False, True]


def test_a_run_that_is_gone_or_has_nothing_of_a_group_is_refused_by_name(runs: Runs) -> None:
    path = runs.add(g0={b"\1a": b"1"})
    runs.refs[0] = RunRef(runs.refs[0].path, ((0, 1), (1, 1)))
    with pytest.raises(StateError, match="nothing of group 1, against the commit record"):
        runs.groups().view(1)
    os.unlink(path)
    groups._open.clear()
    with pytest.raises(StateError, match=r"the run .* is missing or damaged .* Restore it"):
        runs.groups().view(0)


def test_a_process_keeps_some_runs_open(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_MOST_OPEN", 2)
    groups._open.clear()
    for number in range(4):
        runs.add(g0={b"\1%d" % number: b"x"})
    assert len(contents(runs.groups().view(0))) == 4
    assert len(groups._open) == 2


def test_a_process_closes_runs_that_the_state_is_not_made_of_any_more(runs: Runs) -> None:
    groups._open.clear()
    first, second = runs.add(g0={b"\1a": b"1"}), runs.add(g0={b"\1b": b"2"})
    runs.groups().view(0)
    assert set(groups._open) == {first, second}
    del runs.refs[1]
    runs.groups()
    assert set(groups._open) == {second}


def test_nothing_is_ever_copied(runs: Runs) -> None:
    runs.add(g0={b"\1a": b"1"})
    found = runs.groups()
    found.bring_all([0])
    found.bring_whole(0)
    found.drop(0)
    assert found.is_whole(0)
    assert found.lacks_logs_only(0)
    assert not found.must_come(0)
    assert (found.restored, found.budget.copied) == (0, 0)
    assert contents(found.view(0)) == {b"\1a": b"1"}
