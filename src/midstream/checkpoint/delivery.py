"""The comparison of a sink with the committed history: a pure decision.

A checkpoint may be restored from a backup while a sink is not, or the other way round. Both know the newest epoch of
the sink with rows by its number and by the id of its commit: numbers alone would take one history for another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from midstream.checkpoint.records import Delivered


@dataclass(frozen=True, slots=True)
class Agrees:
    """The sink has what was published to it, and nothing else."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The sink has rows of epochs that the checkpoint knows nothing of: it is a copy from before them."""

    reason: str


@dataclass(frozen=True, slots=True)
class Behind:
    """The sink lacks rows of epochs that were published to it."""

    reason: str


Verdict = Agrees | Ahead | Behind


def judged(
    found: Delivered | None, before: Delivered | None, now: Delivered | None, epoch: int, ids: Mapping[int, str]
) -> Verdict:
    """Compare what a sink says with what the commit records say.

    Args:
        found: the newest epoch with rows that the sink knows of.
        before: the newest epoch with rows that was published to it for sure.
        now: the newest committed epoch, if it has rows for the sink: it may be published or not.
        epoch: the newest committed epoch.
        ids: epoch -> commit, of the records that are kept.

    >>> judged(Delivered(20, "a"), Delivered(9, "b"), None, 10, {})
    Ahead(reason='it has rows of epoch 20, the checkpoint ends with epoch 10')
    >>> judged(Delivered(8, "c"), Delivered(9, "b"), None, 10, {})
    Behind(reason='the newest rows that it has are of epoch 8; those of epoch 9 were published to it')
    """
    if found is None:
        if before is None:
            return Agrees()
        return Behind(f"it has no rows of this job; those of epoch {before.epoch} were published to it")
    if found.epoch > epoch:
        return Ahead(f"it has rows of epoch {found.epoch}, the checkpoint ends with epoch {epoch}")
    known = {each.epoch: each.commit for each in (before, now) if each is not None}
    expected = known.get(found.epoch, ids.get(found.epoch, found.commit))
    if found.commit and found.commit != expected:
        return Ahead(
            f"its rows of epoch {found.epoch} are of commit {found.commit}, but the checkpoint has {expected}: another "
            "history"
        )
    if before is not None and found.epoch < before.epoch:
        return Behind(
            f"the newest rows that it has are of epoch {found.epoch}; those of epoch {before.epoch} were published to "
            "it"
        )
    return Agrees()
