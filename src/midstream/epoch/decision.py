"""The decision on an epoch that Spark hands over: pure, over what is committed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Run:
    """The epoch is new: run it."""


@dataclass(frozen=True, slots=True)
class Republish:
    """The epoch was committed before a crash: publish it again and go on."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The epoch does not continue the committed history."""

    reason: str


Decision = Run | Republish | Refuse


def decide(committed: int | None, committed_offsets: tuple[str, ...], epoch: int, offsets: tuple[str, ...]) -> Decision:
    """Compare the epoch that Spark hands over with the newest committed one.

    >>> decide(None, (), 0, ("5",)), decide(3, ("5",), 4, ("9",)), decide(3, ("5",), 3, ("5",))
    (Run(), Run(), Republish())
    """
    if epoch == (0 if committed is None else committed + 1):
        return Run()
    if committed is None:
        return Refuse(f"Spark's log goes on at epoch {epoch}, but there is no commit record at all")
    if epoch == committed:
        if offsets == committed_offsets:
            return Republish()
        return Refuse(
            f"epoch {epoch} was committed with the source offsets {list(committed_offsets)}, but Spark now asks for "
            f"{list(offsets)}: its offset log was changed"
        )
    if epoch < committed:
        return Refuse(f"Spark's log goes on at epoch {epoch}, but epoch {committed} is committed already")
    return Refuse(f"Spark's log goes on at epoch {epoch}, but the newest committed epoch is {committed}")
