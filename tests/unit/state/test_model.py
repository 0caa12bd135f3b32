"""The path of state through change logs, snapshots, caches, retention and savepoints, against a dictionary.

A toy driver runs epochs as the engine does, without Spark: its tasks write change logs, its commit records name them.
Everything may go wrong around it: epochs that are dropped, caches that are behind, deleted, cut off, of another job,
of another boot or of another history. Whatever happens, what is read is what the dictionary holds.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from midstream.checkpoint.layout import commit_file
from midstream.state import location as location_module
from midstream.state.budget import Budget
from midstream.state.copying import complete
from midstream.state.groups import Groups, groups_of
from midstream.state.location import discard_other_boots
from midstream.state.stores.contract import Version
from midstream.state.stores.kinds import RUNS, store_kind
from midstream.state.stores.lmdb import close_environment
from tests.support.edits import Edits
from tests.support.store_driver import (
    HOSTS,
    Drawn,
    Driver,
    Model,
    as_entries,
    contents,
    edits,
    group_of,
    through_a_savepoint,
)

# --- the machine ----------------------------------------------------------------------------------------------------

some_groups = st.sets(st.integers(0, 3), max_size=4)
hosts = st.sampled_from(HOSTS)


class StateOfAJob(RuleBasedStateMachine):
    """Whatever happens, what is read is what the dictionary holds."""

    store = "lmdb"

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp(prefix="midstream-model-", dir="/tmp")
        self.model: Model = {}
        self.backup: tuple[str, str, int, Model] | None = None  # directory, job, groups, model
        self.models: dict[str, Model] = {}  # commit id -> what it holds
        self.checked = True
        self.boots = 0
        self.back = 0  # how many epochs it can go back: those that are kept

    @initialize(groups=st.integers(1, 4), keep=st.integers(1, 3))
    def start(self, groups: int, keep: int) -> None:
        self.driver = Driver(self.new("checkpoint"), "job-0", groups, keep, self.store)

    def teardown(self) -> None:
        for host in HOSTS:
            self.bring(host, {0, 1, 2, 3}, in_place=False)
        location_module._boot = ""
        self.close(self.root)
        shutil.rmtree(self.root)

    def new(self, name: str) -> str:
        return os.path.join(self.root, f"{name}-{os.urandom(4).hex()}")

    def host(self, name: str) -> str:
        return os.path.join(self.root, "hosts", name)

    def close(self, directory: str) -> None:
        """Close what this process has open of LMDB below a directory, as if its tasks had ended."""
        from midstream.state.stores import lmdb as lmdb_store

        for path in [path for path in lmdb_store._open if path.startswith(directory)]:
            close_environment(path)

    def expected(self, group: int) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for user, entries in self.model.items():
            if group_of(user, self.driver.groups) == group:
                found.update(entries)
        return found

    def committed(self) -> None:
        """Remember what the newest commit holds."""
        assert self.driver.last is not None
        self.models[self.driver.last.id] = dict(self.model)
        self.checked = False

    def groups(self, host: str, *, in_place: bool) -> Groups:
        return groups_of(self.driver.head(self.host(host), in_place=in_place))

    def check(self, cache: Groups, group: int) -> None:
        assert contents(cache.bring(group)) == self.expected(group)

    # --- what a job does ---

    @rule(epochs=st.lists(edits, min_size=1, max_size=4), host=hosts, snapshots=some_groups, in_place=st.booleans())
    def commit_epochs(self, epochs: list[Drawn], host: str, snapshots: set[int], in_place: bool) -> None:
        for epoch in map(as_entries, epochs):
            found = self.driver.run(epoch, self.groups(host, in_place=in_place), snapshots)
            self.driver.commit(found)
            for user, entries in epoch.items():
                self.model[user] = Edits(entries).applied_to(self.model.get(user, {}))
            self.committed()
            self.back = min(self.back + 1, self.driver.keep - 1)
            snapshots = set()

    @rule(drawn=edits, host=hosts, snapshots=some_groups)
    def drop_an_epoch(self, drawn: Drawn, host: str, snapshots: set[int]) -> None:
        self.driver.run(as_entries(drawn), self.groups(host, in_place=False), snapshots)

    @rule(count=st.integers(1, 4), snapshots=st.just({0, 1, 2, 3}) | some_groups)
    def be_idle(self, count: int, snapshots: set[int]) -> None:
        """Let retention delete all that it may."""
        for _ in range(count):
            self.driver.commit(self.driver.run({}, self.groups("one", in_place=False), snapshots))
            self.committed()
            self.back = min(self.back + 1, self.driver.keep - 1)
            snapshots = set()

    @rule(host=hosts, groups=some_groups, in_place=st.booleans())
    def bring(self, host: str, groups: set[int], in_place: bool) -> None:
        cache = self.groups(host, in_place=in_place)
        for group in groups:
            if group < self.driver.groups:
                self.check(cache, group)

    @rule(host=hosts, budget=st.sampled_from([1, 1 << 30]))
    def copy_what_is_read_in_place(self, host: str, budget: int) -> None:
        cache = self.driver.cache(self.host(host), in_place=True)
        cache.budget = Budget(budget, 60.0)
        complete(cache, range(self.driver.groups))
        directory = cache.copies.directory
        if budget > 1 and os.path.isdir(directory):
            pointers = [os.path.join(directory, n) for n in os.listdir(directory) if n.endswith(".current")]
            assert not [p for p in pointers if os.readlink(p).endswith(".base")]
        for group in range(self.driver.groups):
            self.check(cache, group)

    @rule()
    def restart(self) -> None:
        driver = self.driver
        self.driver = Driver(driver.checkpoint, driver.job, driver.groups, driver.keep, self.store)

    # --- what happens to its caches ---

    @rule(host=hosts)
    def lose_the_cache(self, host: str) -> None:
        self.close(self.host(host))
        shutil.rmtree(self.host(host), ignore_errors=True)

    def file_of(self, host: str, group: int) -> str | None:
        directory = self.driver.cache(self.host(host), in_place=False).copies.directory
        pointer = os.path.join(directory, f"{group}.current")
        if not os.path.islink(pointer):
            return None
        path = os.path.join(directory, os.readlink(pointer))
        path += ".layer" if path.endswith(".base") else ""
        return path if os.path.exists(path) else None

    @rule(host=hosts, kept=st.sampled_from([None, 0, 100, 4096, 8192, 12288, 600_000]), groups=some_groups)
    def lose_files_of_the_cache_or_their_ends(self, host: str, groups: set[int], kept: int | None) -> None:
        for path in filter(None, (self.file_of(host, group) for group in groups)):
            close_environment(path)
            if kept is None:
                os.unlink(path)
            else:
                os.truncate(path, min(kept, os.path.getsize(path)))

    @rule(host=hosts, group=st.integers(0, 3), same_commit=st.booleans())
    def find_the_file_of_another_job_in_the_cache(self, host: str, group: int, same_commit: bool) -> None:
        path = self.file_of(host, group)
        if path is not None:
            changed = dict(enumerate(self.driver.state.changed)).get(group)
            close_environment(path)
            os.unlink(path)
            version = Version("another", *(changed if changed and same_commit else (0, "c")))
            store_kind(self.store).open(path).apply([Edits({b"\1rubbish": b"\1rubbish"})], version)

    @rule()
    def boot_the_machine(self) -> None:
        self.close(self.root)
        self.boots += 1
        location_module._boot = f"boot-{self.boots}"
        for host in HOSTS:
            discard_other_boots(self.host(host), self.driver.job)

    # --- what happens to its checkpoint ---

    @rule()
    def back_up_the_checkpoint(self) -> None:
        driver = self.driver
        if driver.last is not None:
            copy = self.new("backup")
            shutil.copytree(driver.checkpoint, copy)
            self.backup = (copy, driver.job, driver.groups, dict(self.model))

    @precondition(lambda self: self.backup is not None)
    @rule()
    def go_back_to_the_backup(self) -> None:
        """The history goes on from an older commit, and will differ from what the caches hold."""
        assert self.backup is not None
        copy, job, groups, model = self.backup
        checkpoint = self.driver.checkpoint
        shutil.rmtree(checkpoint)
        shutil.copytree(copy, checkpoint)
        self.driver = Driver(checkpoint, job, groups, self.driver.keep, self.store)
        self.model = dict(model)
        self.committed()
        self.back = 0

    @precondition(lambda self: self.driver.last is not None)
    @rule(epochs=st.integers(1, 2))
    def go_back_to_a_kept_epoch(self, epochs: int) -> None:
        """By hand: the newest records are deleted; as many epochs as are kept stay restorable."""
        driver = self.driver
        assert driver.last is not None
        target = driver.last.epoch - epochs
        if epochs <= self.back and driver.storage.exists(commit_file(target)):
            self.back -= epochs
            for epoch in range(target + 1, driver.last.epoch + 1):
                driver.storage.delete(commit_file(epoch))
            self.restart()
            assert self.driver.last is not None
            self.model = dict(self.models[self.driver.last.id])
            self.committed()

    @precondition(lambda self: self.driver.last is not None)
    @rule(groups=st.integers(1, 4))
    def go_through_a_savepoint(self, groups: int) -> None:
        scratch, checkpoint = self.new("scratch"), self.new("checkpoint")
        os.makedirs(scratch)
        before = self.driver.checkpoint
        self.driver = through_a_savepoint(self.driver, scratch, checkpoint, groups)
        self.close(scratch)
        shutil.rmtree(scratch)
        shutil.rmtree(before)
        self.backup = None
        self.committed()
        self.back = 0

    # --- what always holds ---

    @invariant()
    def a_new_host_reads_what_the_dictionary_holds(self) -> None:
        if self.checked:
            return
        scratch = self.new("scratch")
        in_place = self.driver.last is not None and self.driver.last.epoch % 2 == 0
        cache = groups_of(self.driver.head(scratch, in_place=in_place))
        for group in range(self.driver.groups):
            self.check(cache, group)
        self.close(scratch)
        shutil.rmtree(scratch, ignore_errors=True)
        self.checked = True


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody pulls the plug in these tests."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


TestStateOfAJob = StateOfAJob.TestCase
TestStateOfAJob.settings = settings(
    max_examples=50,
    stateful_step_count=25,
    phases=[Phase.generate],  # shrinking takes minutes: add Phase.shrink when one fails
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class StateInAnotherStore(StateOfAJob):
    """The same, in a store of another package."""

    store = "tests.outside.whole:Whole"


TestStateInAnotherStore = StateInAnotherStore.TestCase
TestStateInAnotherStore.settings = settings(TestStateOfAJob.settings, max_examples=20)


class StateInRuns(StateOfAJob):
    """The same, in sorted runs: there are no caches that could be damaged."""

    store = RUNS

    copy_what_is_read_in_place = lose_the_cache = find_the_file_of_another_job_in_the_cache = None  # type: ignore[assignment]
    lose_files_of_the_cache_or_their_ends = None  # type: ignore[assignment]

    @invariant()
    def nothing_is_kept_that_no_record_needs(self) -> None:
        """Every file of state is one that a kept record names, or of an epoch that was dropped."""
        driver = self.driver
        if driver.last is None:
            return
        kept = [driver.journal.commit(epoch) for epoch in driver.journal.epochs()]
        named = {run.path for commit in kept for state in commit.operators.values() for run in state.runs or ()}
        assert all(driver.storage.exists(path) for path in named)
        assert len(kept) <= driver.keep


TestStateInRuns = StateInRuns.TestCase
TestStateInRuns.settings = settings(TestStateOfAJob.settings, max_examples=60)
