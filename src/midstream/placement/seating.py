"""The executors of the application, and the seats anchored on them: which of them can serve groups at all.

On one host there are no seats: tasks run anywhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from midstream.placement.anchor import Anchor, anchored, executors, keep_executors, warmed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class Seating:
    """The seats of one job, and the executors that they are on."""

    spark: SparkSession
    cores: int  # without those of drained executors
    is_apart: bool  # executors have caches of their own
    where: tuple[str, ...] = ()  # seat -> executor, as the last epoch saw it
    drained: frozenset[str] = frozenset()  # executors that get nothing any more
    _anchor: Anchor | None = None
    _known: frozenset[str] = frozenset()  # executors that were there when seats were made, or were reported since
    _most: int = 0  # how many there were at most, without those that were released

    @property
    def serving(self) -> set[str]:
        """The executors that have seats and get groups."""
        return set(self.where) - self.drained

    def anchor(self, slots: int) -> str:
        """Return the table that keeps slots on their executors; seats are made if there are none."""
        if self._anchor is None:
            self.look_around(slots)
        assert self._anchor is not None
        return self._anchor.view

    def is_current(self, slots: int) -> bool:
        """Tell whether the seats are those of the current executors, and enough for this many slots."""
        if not self.is_apart:
            return True
        known = self._anchor is not None and self._present() == set(self.where)
        return known and len(self.where) == self._seats(slots)

    def look_around(self, slots: int) -> None:
        """Find the executors, and anchor seats on all of them; between two epochs."""
        if not self.is_current(slots):
            self._make_seats(self._cores(), self._seats(slots))

    def warm(self) -> None:
        """Start Python on all executors, while epochs go on."""
        if self.is_apart:
            warmed(self.spark, self._present())

    def seen(self, places: Mapping[int, str]) -> None:
        """Note where tasks ran: seat -> executor."""
        self.where = tuple(places.get(seat, place) for seat, place in enumerate(self.where))

    def has_grown(self) -> bool:
        """Tell whether there are executors that were not there at the last call."""
        before, self._known = self._known, self._present()
        return bool(self._known - before)

    def release(self, executor: str, slots: int) -> None:
        """Hand an executor that serves nothing back to Spark; between two epochs.

        Spark puts nothing on an executor once it is told to kill it, so seats are made again on the others before the
        next epoch: a seat that was lost with its executor cost an epoch 5 seconds and more. Spark is also told how many
        executors to have: without a number, killing one makes it want none, and others that are lost would not be
        replaced.
        """
        self._most = max(self._most, len(self._present())) - 1
        self.drained |= {executor}
        cores, seats = self._cores(), self._seats(slots)  # Spark's count of cores falls at some time after this
        self.spark.sparkContext._jsc.sc().killExecutor(executor)
        keep_executors(self.spark, self._most)
        self._make_seats(cores, seats)

    def by_seat(self, groups: Sequence[tuple[int, str]]) -> dict[int, tuple[int, ...]]:
        """Assign each group a seat of its executor; one whose executor has none is left out."""
        seats: dict[str, list[int]] = defaultdict(list)
        for seat, place in enumerate(self.where):
            seats[place].append(seat)
        found: dict[int, list[int]] = defaultdict(list)
        for group, place in groups:
            if place in seats:
                found[seats[place][group % len(seats[place])]].append(group)
        return {seat: tuple(mine) for seat, mine in found.items()}

    def close(self) -> None:
        """Release what is cached on the executors."""
        if self._anchor is not None:
            self._anchor.drop()
            self._anchor = None

    def _seats(self, slots: int) -> int:
        """How many seats are wanted: one for every core, or several if there are more slots than cores."""
        cores = self._cores()
        return -(-max(cores, slots) // cores) * cores

    def _cores(self) -> int:
        """How many cores there are, without those of drained executors."""
        cores, all_of_them = self.spark.sparkContext.defaultParallelism, executors(self.spark)
        return max(cores * len(all_of_them - self.drained) // max(len(all_of_them), 1), 1)

    def _present(self) -> frozenset[str]:
        """The executors that may serve groups."""
        return executors(self.spark) - self.drained

    def _make_seats(self, cores: int, seats: int) -> None:
        self.cores, self._known = cores, self._present()
        self._most = max(self._most, len(self._known))
        old, self._anchor = self._anchor, anchored(self.spark, seats, self._known)
        self.where = self._anchor.where
        if old is not None:
            old.drop()
