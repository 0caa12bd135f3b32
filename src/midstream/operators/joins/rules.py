"""The rules of a join: which rows match, how long a row is kept, and in what form. `joins/task.py` does the work.

Rows of both sides come in one form, see `join_form`.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import numpy as np
import numpy.typing as npt

from midstream.operators.functions.declare import KeyedFunction, StateDeclaration, list_of, value
from midstream.state.values import micros_of

LEFT, RIGHT = "left", "right"
SIDES = (LEFT, RIGHT)
KINDS = ("inner", "left", "right", "full", "semi", "anti")
HALVES = ("semi", "anti")  # they emit rows of the left only
ALONE = {LEFT: ("left", "full", "anti"), RIGHT: ("right", "full")}  # those that emit rows without a match
_FIRST = micros_of(datetime(1, 1, 1, tzinfo=timezone.utc))
_LAST = micros_of(datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc))  # the watermark after the end of the input

Times = npt.NDArray[np.int64]


class Join(KeyedFunction):
    """What all joins share. Attributes are plain, so that a plan can tell a changed join from an equal one."""

    def __init__(self, *, widths: tuple[int, int], types: tuple[str, str], how: str) -> None:
        self.widths, self.types, self.how = widths, types, how  # columns that each side emits; types of its rows

    @property
    def is_bounded(self) -> bool:
        """Whether event time decides too."""
        return False

    @property
    def gives_pairs(self) -> bool:
        """Whether pairs are emitted; otherwise rows of the left are, by whether they have a match."""
        return self.how not in HALVES

    def comes_alone(self, side: str) -> bool:
        """Tell whether a row of a side is emitted when it has no match."""
        return self.how in ALONE[side]

    def is_noted(self, side: str) -> bool:
        """Tell whether it matters that a row has had a match."""
        return self.comes_alone(side) or (side == LEFT and not self.gives_pairs)

    def reach(self, side: str, times: Times) -> tuple[Times, Times]:
        """The first and the last event time on the other side that rows can match."""
        return times, times

    def is_repeated(self, owners: npt.NDArray[np.intp], times: Times) -> npt.NDArray[np.bool_]:
        """Which rows of the right add nothing to the row before them, given the number of each one's key.

        Where rows of the left are emitted by whether there is a match, one of several that match the same is enough.
        """
        repeated = np.zeros(len(owners), dtype=bool)
        if not self.gives_pairs:
            low, high = self.reach(RIGHT, times)
            repeated[1:] = (np.diff(owners) == 0) & (np.diff(low) == 0) & (np.diff(high) == 0)
        return repeated

    def deadlines(self, side: str, times: Times) -> Times:
        """The watermark from which on nothing can match a row: later rows are not before it."""
        return np.clip(self.reach(side, times)[1] + 1, _FIRST, _LAST)


class UnboundedJoin(Join):
    """Every pair of rows with one key, once, when the later one arrives; rows are kept for ever, or for a TTL."""

    def __init__(self, *, widths: tuple[int, int], types: tuple[str, str], ttl: int) -> None:
        super().__init__(widths=widths, types=types, how="inner")
        self.ttl = ttl

    def declared(self) -> dict[str, StateDeclaration]:
        """A list per side, to which rows are only appended."""
        ttl = timedelta(microseconds=self.ttl) if self.ttl else None
        return {side: list_of(type, ttl=ttl) for side, type in zip(SIDES, self.types, strict=True)}


class BoundedJoin(Join):
    """Pairs of rows with one key whose event times lie in one window, or in an interval of each other.

    Promised: a row is kept until the watermark has passed all that it could match, and is then emitted alone, if its
    side is kept by the join and it has had no match. The emitted rows as a whole do not depend on epochs.

    Not promised: that a late row finds the matches that it would have found in time.
    """

    def __init__(
        self,
        *,
        widths: tuple[int, int],
        types: tuple[str, str],
        how: str,
        lower: int = 0,
        upper: int = 0,
        size: int = 0,
    ) -> None:
        super().__init__(widths=widths, types=types, how=how)
        self.lower, self.upper = lower, upper  # of right time - left time, in microseconds
        self.size = size  # of a window; 0: an interval

    def declared(self) -> dict[str, StateDeclaration]:
        """The time of the next drop; the latest row's time; and a list per side: each row with its time."""
        moments: dict[str, StateDeclaration] = {"deadline": value("timestamp"), "latest": value("timestamp")}
        return moments | {
            side: list_of(f"struct<time: timestamp, matched: boolean, row: {type}>")
            for side, type in zip(SIDES, self.types, strict=True)
        }

    @property
    def is_bounded(self) -> bool:
        """Whether event time decides too."""
        return True

    def reach(self, side: str, times: Times) -> tuple[Times, Times]:
        """The first and the last event time on the other side that rows can match."""
        if self.size:
            starts = times - times % self.size
            return starts, starts + (self.size - 1)
        lower, upper = (self.lower, self.upper) if side == LEFT else (-self.upper, -self.lower)
        return times + lower, times + upper
