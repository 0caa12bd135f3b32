"""Pure decisions over commit records: which groups to snapshot, and which epochs to keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from midstream.checkpoint.records import NEVER, Commit, OperatorState

MAX_AGE = 64  # epochs after which a changed group is snapshotted, however little it changed
_SMALL = 64 << 10


def snapshots_due(state: OperatorState, epoch: int, logged: Mapping[int, int], budget: int) -> list[int]:
    """Choose groups to snapshot now: those whose logs outgrew their snapshot or that waited long, oldest first.

    `logged` counts the bytes logged per group since its snapshot. At least one group is chosen if any is due, and no
    more than `budget` bytes: snapshots are spread over epochs, so that none of them is slow.
    """
    due = []
    for group in changed_since_snapshot(state):
        snapshot = state.snapshots[group] if state.snapshots else None
        size = snapshot.size if snapshot is not None else logged.get(group, 0)
        age = epoch - (snapshot.epoch if snapshot is not None else -1)
        if age >= MAX_AGE or logged.get(group, 0) >= max(size, _SMALL):
            due.append((-age, group, size))
    chosen: list[int] = []
    for _, group, size in sorted(due):
        budget -= size
        if chosen and budget < 0:
            break
        chosen.append(group)
    return chosen


def changed_since_snapshot(state: OperatorState) -> list[int]:
    """List the groups whose newest snapshot is not as new as they are."""
    snapshots = state.snapshots or (None,) * len(state.changed)
    return [
        group
        for group, (changed, snapshot) in enumerate(zip(state.changed, snapshots, strict=True))
        if changed is not None and (snapshot is None or snapshot.commit != changed[1])
    ]


def gaps(commits: Sequence[Commit]) -> list[str]:
    """Say what is wrong with the records of a checkpoint, given in order; nothing: they are one history.

    Each record names its parent by its id. The state of a group is what its newest snapshot and every change after it
    make, so all records that lead from the one to the other must be there.
    """
    known = {commit.epoch: commit for commit in commits}
    strangers = [e for e, commit in known.items() if e - 1 in known and commit.parent != known[e - 1].id]
    return [f"the record of epoch {epoch} is missing" for epoch in sorted(_absent(commits))] + [
        f"the record of epoch {epoch} does not follow that of epoch {epoch - 1}" for epoch in strangers
    ]


def _absent(commits: Sequence[Commit]) -> set[int]:
    """Find the epochs without a record in which a group has changed since the snapshot that the newest record names."""
    before = {  # {(epoch, operator, group): epoch of the change before}
        (commit.epoch, operator, group): earlier
        for commit in commits
        for operator, state in commit.operators.items()
        for log in state.logs
        for group, _, earlier in log.groups
    }
    absent = set()
    for operator, state in commits[-1].operators.items() if commits else ():
        if state.runs is not None:
            continue  # the record names all that makes up the state
        for group in changed_since_snapshot(state):
            snapshot, change = state.snapshots[group] if state.snapshots else None, state.changed[group]
            at = change[0] if change is not None else NEVER
            while at > (snapshot.epoch if snapshot is not None else NEVER):
                if (at, operator, group) not in before:
                    absent.add(at)
                    break
                at = before[at, operator, group]
    return absent


def needed(commits: Iterable[Commit]) -> list[tuple[int, int]]:
    """Tell which epochs' records and logs must stay so that commits can be restored, as ranges (first, last) in order.

    For each of them its own epoch; and for every group the epochs from its snapshot to its last change. An operator
    that left the plan keeps its ranges, and holds nothing else.
    """
    commits = list(commits)
    ranges = {(commit.epoch, commit.epoch) for commit in commits}
    for state in (s for commit in commits for s in commit.operators.values() if s.runs is None):
        for group, changed in enumerate(state.changed):
            if changed is not None:
                snapshot = state.snapshots[group] if state.snapshots else None
                if snapshot is None or snapshot.commit != changed[1]:
                    ranges.add((snapshot.epoch if snapshot is not None else state.born, changed[0]))
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged
