"""Which groups are snapshotted, and which epochs stay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from midstream.checkpoint.records import Commit, OperatorState, SnapshotRef
from midstream.checkpoint.retention import MAX_AGE, needed, snapshots_due

LARGE = 1 << 20


def snapshot(epoch: int, size: int = LARGE) -> SnapshotRef:
    return SnapshotRef(epoch, f"c{epoch}", f"snapshot-{epoch}", size, 0)


def state(*groups: tuple[int | None, SnapshotRef | None]) -> OperatorState:
    """Groups as (epoch of the last change, newest snapshot)."""
    return OperatorState(
        changed=tuple(None if epoch is None else (epoch, f"c{epoch}") for epoch, _ in groups),
        snapshots=tuple(taken for _, taken in groups),
    )


def commit(epoch: int, **operators: OperatorState) -> Commit:
    return Commit(epoch=epoch, id="", parent="", version=1, clock=0, offsets=(), operators=operators)


# --- what is snapshotted --------------------------------------------------------------------------------------------


def due(groups: OperatorState, epoch: int, logged: dict[int, int] | None = None, budget: int = 1 << 30) -> list[int]:
    return snapshots_due(groups, epoch, logged or {}, budget)


def test_a_group_that_never_changed_or_has_not_changed_since_its_snapshot_is_not_due():
    groups = state((None, None), (7, snapshot(7)))
    assert due(groups, 10_000, {0: LARGE * 9, 1: LARGE * 9}) == []


def test_a_group_is_due_when_its_logs_have_outgrown_its_snapshot():
    groups = state((9, snapshot(5, LARGE)))
    assert due(groups, 10, {0: LARGE - 1}) == []
    assert due(groups, 10, {0: LARGE}) == [0]


def test_a_small_group_is_not_snapshotted_for_every_little_change():
    assert due(state((9, snapshot(5, 8_192))), 10, {0: 20_000}) == []
    assert due(state((9, None)), 10, {0: 20_000}) == []
    assert due(state((9, None)), 10, {0: 200_000}) == [0]


def test_a_group_that_changed_a_little_is_due_by_age():
    groups = state((9, snapshot(5)))
    assert due(groups, 5 + MAX_AGE - 1) == []
    assert due(groups, 5 + MAX_AGE) == [0]
    assert due(state((3, None)), MAX_AGE - 1) == [0]


def test_the_oldest_come_first_and_as_many_as_the_budget_holds_but_one_at_least():
    groups = state((90, snapshot(3)), (90, snapshot(1)), (90, snapshot(2)), (90, snapshot(89)))
    assert due(groups, 100, budget=2 * LARGE) == [1, 2]
    assert due(groups, 100, budget=10 * LARGE) == [1, 2, 0]
    assert due(groups, 100, budget=0) == [1]


def test_an_operator_without_a_record_has_nothing_due():
    assert due(OperatorState(), 1_000) == []


# --- what stays -----------------------------------------------------------------------------------------------------


def test_the_epochs_of_the_kept_commits_stay():
    assert needed([commit(50)]) == [(50, 50)]
    assert needed([commit(48), commit(49), commit(50)]) == [(48, 50)]
    assert needed([commit(50, sums=state((None, None), (20, snapshot(20))))]) == [(50, 50)]
    assert needed([]) == []


def test_from_its_first_change_on_everything_stays_that_may_have_changed_a_group_without_a_snapshot():
    assert needed([commit(50, sums=state((20, snapshot(20)), (40, None)))]) == [(0, 40), (50, 50)]


def test_for_a_group_the_epochs_from_its_snapshot_to_its_last_change_stay():
    groups = state((40, snapshot(30)), (48, snapshot(45)), (10, snapshot(10)))
    assert needed([commit(50, sums=groups)]) == [(30, 40), (45, 48), (50, 50)]
    assert needed([commit(50, sums=groups, others=state((35, snapshot(12))))]) == [(12, 40), (45, 48), (50, 50)]


def test_what_an_older_kept_commit_needs_stays_though_the_newest_does_not_need_it():
    older, newer = commit(49, sums=state((48, snapshot(30)))), commit(50, sums=state((48, snapshot(48))))
    assert needed([newer]) == [(50, 50)]
    assert needed([older, newer]) == [(30, 50)]


Drawn = tuple[set[int], set[int]]  # the epochs in which a group changed, and those as of which it was snapshotted


def seen_at(epoch: int, group: Drawn) -> tuple[int | None, SnapshotRef | None]:
    """What the record of an epoch says of a group: a snapshot of an epoch is named in the next one."""
    changes, snapshots = group
    changed = max((e for e in changes if e <= epoch), default=None)
    taken = max((e for e in snapshots & changes if e < epoch), default=None)
    return changed, None if taken is None else snapshot(taken)


epochs = st.sets(st.integers(0, 20))


@given(st.lists(st.tuples(epochs, epochs), max_size=4), st.integers(1, 6), st.integers(0, 20))
def test_everything_that_restoring_a_kept_commit_needs_stays_and_no_epoch_beyond(
    groups: list[Drawn], keep: int, newest: int
):
    kept = range(max(newest - keep + 1, 0), newest + 1)
    ranges = needed([commit(epoch, sums=state(*(seen_at(epoch, group) for group in groups))) for epoch in kept])
    stays = {epoch for first, last in ranges for epoch in range(first, last + 1)}
    read, between = set(kept), set(kept)
    for epoch in kept:
        for changed, taken in (seen_at(epoch, group) for group in groups):
            since = taken.epoch if taken is not None else -1
            if changed is not None and changed > since:
                between |= set(range(max(since, 0), changed + 1))
        for (changes, _), (_, taken) in ((group, seen_at(epoch, group)) for group in groups):
            since = taken.epoch if taken is not None else -1
            read |= {change for change in changes if since < change <= epoch}
    assert read <= stays
    assert stays == between
