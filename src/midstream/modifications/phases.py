"""The life of a modification: a pure machine, events in, the next record out; one table of legal moves.

`Submitted → Validated → Prepared → Armed → Applied → (Moving) → Completed`, or `Rejected`, `Cancelled`, `RolledBack`,
`Failed`.
Every record is journalled by whoever moves it on; after a restart the journal says where each one stood.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from midstream.checkpoint.records import Cut, Phase, Record
from midstream.errors import MidstreamError

TRIES = 2  # starts of the first epoch under a new plan before it is given up: code that kills the driver must not loop


@dataclass(frozen=True, slots=True)
class Fits:
    """The new plan is valid."""

    base: int
    version: int


@dataclass(frozen=True, slots=True)
class Tried:
    """The dry run has gone well."""

    rows: int = 0  # that it was tried on
    note: str = ""  # why there were none, where there should have been some


@dataclass(frozen=True, slots=True)
class Kept:
    """The new plan is in the journal."""


@dataclass(frozen=True, slots=True)
class Begun:
    """An epoch begins under the new plan."""


@dataclass(frozen=True, slots=True)
class Committed:
    """An epoch has been committed under the new plan."""

    cut: Cut


@dataclass(frozen=True, slots=True)
class Moves:
    """Groups begin to move to other executors."""


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do."""

    note: str = ""  # what did not come out as it was meant


@dataclass(frozen=True, slots=True)
class Refused:
    """It cannot be applied: the plan is not valid, or the dry run failed."""

    error: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Somebody took it back before it was applied."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The first epoch failed under the new plan."""

    error: str


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The job or the driver has ended."""

    error: str


Event = Fits | Tried | Kept | Begun | Committed | Moves | Done | Refused | Cancelled | Broken | Abandoned

MOVES: dict[tuple[Phase, type[Event]], Phase] = {
    (Phase.SUBMITTED, Fits): Phase.VALIDATED,
    (Phase.SUBMITTED, Refused): Phase.REJECTED,
    (Phase.SUBMITTED, Cancelled): Phase.CANCELLED,
    (Phase.SUBMITTED, Abandoned): Phase.FAILED,
    (Phase.VALIDATED, Tried): Phase.PREPARED,
    (Phase.VALIDATED, Refused): Phase.REJECTED,
    (Phase.VALIDATED, Cancelled): Phase.CANCELLED,
    (Phase.VALIDATED, Abandoned): Phase.FAILED,
    (Phase.PREPARED, Kept): Phase.ARMED,
    (Phase.PREPARED, Refused): Phase.REJECTED,
    (Phase.PREPARED, Cancelled): Phase.CANCELLED,
    (Phase.PREPARED, Abandoned): Phase.FAILED,
    (Phase.ARMED, Begun): Phase.ARMED,
    (Phase.ARMED, Committed): Phase.APPLIED,
    (Phase.ARMED, Broken): Phase.ROLLED_BACK,
    (Phase.ARMED, Cancelled): Phase.CANCELLED,
    (Phase.ARMED, Abandoned): Phase.FAILED,
    (Phase.APPLIED, Moves): Phase.MOVING,
    (Phase.APPLIED, Done): Phase.COMPLETED,
    (Phase.MOVING, Done): Phase.COMPLETED,
}


class IllegalMoveError(MidstreamError):
    """An event that cannot happen to a modification where it stands: a defect of Midstream."""


def advance(record: Record, event: Event, seconds: float = 0.0) -> Record:
    """Move a modification on.

    >>> advance(Record(number=1, what="replace 'big'"), Refused("no operator 'big'")).phase
    <Phase.REJECTED: 'Rejected'>
    """
    after = MOVES.get((record.phase, type(event)))
    if after is None:
        raise IllegalMoveError(f"{event} cannot happen to a modification that is {record.phase.value}: {record}")
    changes: dict[str, object] = {"phase": after}
    if after is not record.phase:
        changes["durations"] = {**record.durations, after.value: seconds}
    if isinstance(event, Fits):
        changes["base"], changes["version"] = event.base, event.version
    elif isinstance(event, Tried):
        changes["rehearsed"], changes["note"] = event.rows, event.note
    elif isinstance(event, Done) and event.note:
        changes["note"] = "; ".join(filter(None, (record.note, event.note)))
    elif isinstance(event, Begun):
        changes["tries"] = record.tries + 1
    elif isinstance(event, Committed):
        changes["cut"] = event.cut
    elif isinstance(event, (Refused, Broken, Abandoned)):
        changes["error"] = event.error
    return msgspec.structs.replace(record, **changes)


def recovered(record: Record, cuts: Mapping[int, Cut]) -> Event | None:
    """What has happened to a modification while nobody looked: the driver was killed. None: it stands where it stood.

    Args:
        record: as journalled.
        cuts: plan version -> the first epoch that was committed under it, of those whose records are kept.
    """
    if record.phase.is_final:
        return None
    if record.phase in (Phase.APPLIED, Phase.MOVING):  # the executors of a driver end with it: nothing is on its way
        return Done()
    if record.phase is not Phase.ARMED:
        return Abandoned("the driver ended before it was armed; submit it again")
    if record.version in cuts:
        return Committed(cuts[record.version])
    if record.tries >= TRIES:
        return Broken(f"the driver ended {record.tries} times in the first epoch under the new plan")
    return None
