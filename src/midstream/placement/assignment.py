"""Which executor serves which groups, epoch by epoch, and what is told to the tasks while groups move.

On one host there is one place, and a plan says which slot owns which group. On a cluster the seats of an anchor lie on
executors; what is in force changes only when an epoch has been committed, and a driver that is started again finds
other executors, so nothing of it is kept.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from midstream.checkpoint.records import Report
from midstream.operators.resolve import Resolved
from midstream.operators.task import Relocation
from midstream.placement.anchor import (
    Anchor,
    anchored,
    executors,
    keep_executors,
    warmed,
)
from midstream.placement.move import Move, Outcome
from midstream.placement.seats import homes_for, seated
from midstream.placement.standbys import Copy, Standbys
from midstream.placement.strategies.contract import Step, Strategy
from midstream.plan import plan as p
from midstream.plan.routing import Routing
from midstream.state.heat import cooled

if TYPE_CHECKING:
    from midstream.epoch.engine import Engine


class SlotState(Enum):
    """What a slot does besides processing rows."""

    SERVING = "Serving"
    PREFETCHING = "Prefetching"  # it copies groups that it will own
    MOVING = "Moving"  # groups that it owns are about to leave
    RESTORING = "Restoring"  # it had to read groups from the durable store, or still reads them there
    LOST = "Lost"  # its executor is gone: another one did its last epoch


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """Where a slot is and what it does."""

    operator: str
    slot: int
    executor: str
    groups: int
    state: SlotState
    standbys: int = 0  # second copies of its groups that other executors have


@dataclass(frozen=True, slots=True)
class MoveStatus:
    """How far the groups of an operator have come on their way to other executors."""

    operator: str
    strategy: str
    groups: int  # that move
    waiting: int  # of them, those that their old place still serves
    bytes: int  # that were copied
    bytes_to_go: int  # of the waiting ones, as their snapshots are
    seconds: float  # since it began
    differing: int = 0  # groups of which the new place, processing beside the old one, has made something else

    @property
    def seconds_to_go(self) -> float | None:
        """An estimate, from what has been moved so far; `None` while that is nothing."""
        moved = self.groups - self.waiting
        return self.seconds * self.waiting / moved if moved else None


@dataclass(frozen=True, slots=True)
class Briefing:
    """What an operator is told in an epoch about who serves what."""

    routing: Routing
    relocation: Relocation | None = None
    anchor: str = ""  # the table to join with, "" for none

    @property
    def both(self) -> dict[int, int]:
        """Groups whose rows go to a second slot too."""
        both = self.relocation.both if self.relocation is not None else {}
        return {group: slot for slot, groups in both.items() for group in groups}


@dataclass(slots=True)
class Places:
    """The places of one job."""

    engine: Engine
    homes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # operator -> group -> executor, in force
    load: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))  # operator -> group -> rows
    moves: dict[str, Move] = field(default_factory=dict)
    standbys: dict[str, Standbys] = field(default_factory=lambda: defaultdict(Standbys))
    drained: frozenset[str] = frozenset()  # executors that get nothing any more
    where: tuple[str, ...] = ()  # seat -> executor, as the last epoch saw it
    joined: Callable[[], object] | None = None  # is told once when there are more executors than seats were made for
    _anchor: Anchor | None = None
    _states: dict[str, dict[int, SlotState]] = field(default_factory=lambda: defaultdict(dict))
    _given: dict[str, tuple[Routing, Step]] = field(default_factory=dict)  # what the epoch at hand was told
    _done: Callable[[str], None] | None = None  # is told of groups that stayed
    _executors: frozenset[str] = frozenset()  # that were there when seats were made, or that were told of since
    _behind: frozenset[str] = frozenset()  # operators of which some place has not all groups that it serves
    _most: int = 0  # how many there were at most, without those that were released
    _since: float = 0.0  # when groups began to move

    @property
    def are_several(self) -> bool:
        """Whether there are executors, each with a cache of its own."""
        return self.engine.settings.apart

    # --- told to the tasks ---

    def briefing(self, resolved: Resolved, id: str) -> Briefing:
        """Say who serves the groups of an operator in the next epoch, and what comes and goes."""
        slots = self.engine.slots(id, resolved)
        if not self.are_several:
            operator = resolved.plan[id]
            assert isinstance(operator, (p.Process, p.Aggregate))
            groups = self.engine.groups
            return Briefing(planned_routing(operator, groups, slots) or Routing.even(groups, slots))
        if self._anchor is None:
            self.look_around()
        assert self._anchor is not None
        homes, move = self.homes_of(id, resolved), self.moves.get(id)
        step = move.step(self.load[id]) if move is not None else Step()
        if move is not None:
            homes = tuple(move.target[g] if g in step.flip else home for g, home in enumerate(homes))
        routing = seated(homes, self.where, slots)
        self._given[id] = routing, step
        copies, left = self._second_copies(id, homes, resolved, move)
        if move is None:
            defers = self.engine.settings.defers
            fetch, drop = self._by_seat(copies), self._by_seat(left)
            return Briefing(routing, Relocation(fetch=fetch, drop=drop, lazy=True, defers=defers), self._anchor.view)
        fetch = self._by_seat([*((group, move.target[group]) for group in step.fetch), *copies])
        drop = self._by_seat([*move.left, *left])
        if move.strategy.starts_afresh and not move.has_begun:
            drop = {seat: routing.groups_of(seat) for seat in set(routing.owners)}
        first = step.flip if move.strategy.copies_first else frozenset()
        first = frozenset(range(len(homes))) if move.strategy.starts_afresh and step.flip else first
        lazy = not move.strategy.copies_first
        both = self._by_seat([(group, move.target[group]) for group in sorted(step.both)])
        relocation = Relocation(first, fetch, drop, both, lazy, defers=lazy and self.engine.settings.defers)
        return Briefing(routing, relocation, self._anchor.view)

    def _second_copies(
        self, id: str, homes: Sequence[str], resolved: Resolved, move: Move | None
    ) -> tuple[list[Copy], list[Copy]]:
        """Which copies the next epoch brings beside those that move, those of busy groups first, and which it drops."""
        settings, tuned = self.engine.settings, resolved.plan.tuning
        number = settings.standbys if tuned.standbys is None else tuned.standbys
        asked = self.standbys[id].ask(homes, set(self.where) - self.drained, number)
        coming = {(group, move.target[group]) for group in move.waiting} if move is not None else set()
        load = self.load[id]
        copies = sorted(set(asked) - coming, key=lambda copy: (-load.get(copy[0], 0.0), copy))
        return copies, [copy for copy in self.standbys[id].left(homes) if copy not in coming]

    def heat(self, id: str) -> dict[int, float]:
        """How busy groups of an operator were, for who copies some: else nobody asks, and nothing is sent."""
        return self.load[id] if id in self._behind or id in self.moves else {}

    def homes_of(self, id: str, resolved: Resolved) -> tuple[str, ...]:
        """Give the executor of each group, as it is; a new operator's groups are dealt out."""
        if id not in self.homes:
            operator = resolved.plan[id]
            assert isinstance(operator, (p.Process, p.Aggregate))
            known = operator.homes if len(operator.homes) == self.engine.groups else ("",) * self.engine.groups
            slots = self.engine.slots(id, resolved)
            self.homes[id] = homes_for(self.where, slots, known, self.load[id], self.drained)
        return self.homes[id]

    # --- learnt from the tasks ---

    def after(self, reports: Mapping[str, Sequence[Report]]) -> None:
        """Take note of a committed epoch: where its tasks ran, what they had to do, and what has moved."""
        for id, found in reports.items():
            self.load[id] = cooled(self.load[id], *(report.heat for report in found))
            is_behind = any(report.in_place or report.deferred is not None for report in found)
            self._behind = self._behind | {id} if is_behind else self._behind - {id}
        if not self.are_several:
            return
        was, seen = self.where, list(self.where)
        for report in [report for found in reports.values() for report in found]:
            seen[report.slot] = report.place
        self.where = tuple(seen)
        for id, found in reports.items():
            (routing, step), homes = self._given[id], list(self.homes[id])
            for report in found:
                is_lost = report.place != was[report.slot]
                for group in routing.groups_of(report.slot):
                    standby = self.standbys[id].home(group, self.where) if is_lost else None
                    homes[group] = standby or report.place
                self._states[id][report.slot] = self._state(id, report, was=was[report.slot])
            if id in self.moves:
                target = self.moves[id].target
                outcome = Outcome(
                    frozenset(self.where),
                    [group for report in found for group in report.fetched if target[group] == report.place],
                    _agreed(step.both, found),
                    sum(report.in_place + len(report.deferred.groups if report.deferred else ()) for report in found),
                    sum(report.copied for report in found),
                )
                self.moves[id] = self.moves[id].after(step, self.homes[id], outcome)
            self.homes[id] = tuple(homes)
            self.standbys[id].after((group, report.place) for report in found for group in report.fetched)
        self._tell_joined()
        if self.moves and all(move.is_done for move in self.moves.values()):
            done, self._done = self._done, None
            stayed = [f"{len(move.stayed)} groups of {id!r}" for id, move in self.moves.items() if move.stayed]
            self.moves.clear()
            if done is not None:
                done(f"{' and '.join(stayed)} stayed: the new place makes something else of them" if stayed else "")

    def _tell_joined(self) -> None:
        if self.joined is None or self.moves:
            return
        before, self._executors = self._executors, self._present()
        if self._executors - before:
            self.joined()

    # --- asked for by modifications ---

    @property
    def is_current(self) -> bool:
        """Whether the seats are those of the executors that there are."""
        if not self.are_several:
            return True
        known = self._anchor is not None and self._present() == set(self.where)
        return known and len(self.where) == self._seats()

    def _seats(self) -> int:
        """How many seats are wanted: one for every core, or several if there are more slots than cores."""
        cores = self._cores()
        wanted = max([cores, *(self.engine.slots(id) for id in self.engine.resolved.keyed)])
        return -(-wanted // cores) * cores

    def _cores(self) -> int:
        """How many cores there are, without those of drained executors."""
        cores, all_of_them = self.engine.spark.sparkContext.defaultParallelism, executors(self.engine.spark)
        return max(cores * len(all_of_them - self.drained) // max(len(all_of_them), 1), 1)

    def _present(self) -> frozenset[str]:
        """The executors that may serve groups."""
        return executors(self.engine.spark) - self.drained

    def look_around(self) -> None:
        """Find the executors, and anchor seats on all of them; between two epochs."""
        if self.is_current:
            return
        self._make_seats(self._cores(), self._seats())

    def _make_seats(self, cores: int, seats: int) -> None:
        self.engine.cores, self._executors = cores, self._present()
        self._most = max(self._most, len(self._executors))
        old, self._anchor = self._anchor, anchored(self.engine.spark, seats, self._executors)
        self.where = self._anchor.where
        if old is not None:
            old.drop()

    def warm(self) -> None:
        """Start Python on all executors, while epochs go on."""
        if self.are_several:
            warmed(self.engine.spark, self._present())

    def begin(self, resolved: Resolved, strategy: Strategy, done: Callable[[str], None]) -> bool:
        """Begin to move groups to where a plan wants them; False if they are there."""
        if not self.are_several:
            return False
        for operator in resolved.plan.of(p.Process, p.Aggregate):
            homes = self.homes_of(operator.id, resolved)
            if operator.homes and operator.homes != homes:
                standing = self.standbys[operator.id].standing
                self.moves[operator.id] = Move.begun(homes, operator.homes, strategy, standing)
        self._done, self._since = (done if self.moves else None), time.monotonic()
        return bool(self.moves)

    def moving(self) -> list[MoveStatus]:
        """How far groups have come that are on their way."""
        last, seconds, found = self.engine.last, time.monotonic() - self._since, []
        for id, move in list(self.moves.items()):
            snapshots = last.operators[id].snapshots if last is not None and id in last.operators else ()
            sizes = [snapshots[group] for group in move.waiting] if snapshots else []
            to_go = sum(snapshot.size for snapshot in sizes if snapshot is not None)
            moved = move.total, len(move.waiting), move.bytes
            found.append(MoveStatus(id, str(move.strategy), *moved, to_go, seconds, move.differing))
        return found

    def release(self, executor: str) -> None:
        """Give an executor that serves nothing back to Spark; between two epochs.

        Spark puts nothing on an executor from when it is told to kill it, so seats are made anew on the others before
        the next epoch: a seat that is lost with its executor took an epoch 5 seconds and more. Spark is told how many
        it shall have: where nobody has ever said so, killing one lets it want none, and others that are lost would not
        be replaced.
        """
        self._most = max(self._most, len(self._present())) - 1
        self.drained |= {executor}
        cores, seats = self._cores(), self._seats()  # Spark's count of cores falls at some time after this
        self.engine.spark.sparkContext._jsc.sc().killExecutor(executor)
        keep_executors(self.engine.spark, self._most)
        self._make_seats(cores, seats)

    def settled(self, plan: p.Plan, resolved: Resolved) -> p.Plan:
        """Write the homes in force into a plan."""
        if not self.are_several:
            return plan
        keyed = {o.id: self.homes_of(o.id, resolved) for o in plan.of(p.Process, p.Aggregate)}
        operators = tuple(msgspec.structs.replace(o, homes=keyed[o.id]) if o.id in keyed else o for o in plan.operators)
        return msgspec.structs.replace(plan, operators=operators)

    def status(self) -> list[SlotStatus]:
        """Where every slot is and what it does."""
        resolved, found = self.engine.resolved, []
        for id in resolved.keyed:
            slots = self.engine.slots(id, resolved)
            if not self.are_several:
                routing = self.briefing(resolved, id).routing
            elif id in self.homes:
                routing = seated(self.homes[id], self.where, slots)
            else:
                continue
            for slot in sorted(set(routing.owners)):
                executor = self.where[slot] if self.where else ""
                state = self._states[id].get(slot, SlotState.SERVING)
                mine = routing.groups_of(slot)
                standbys = sum(group in mine for group, _ in self.standbys[id].standing)
                found.append(SlotStatus(id, slot, executor, len(mine), state, standbys))
        return found

    def close(self) -> None:
        """Give up what is cached on the executors."""
        if self._anchor is not None:
            self._anchor.drop()
            self._anchor = None

    def _by_seat(self, groups: Sequence[tuple[int, str]]) -> dict[int, tuple[int, ...]]:
        """Give each group to a seat of its executor; one whose executor has none is left out."""
        seats: dict[str, list[int]] = defaultdict(list)
        for seat, place in enumerate(self.where):
            seats[place].append(seat)
        found: dict[int, list[int]] = defaultdict(list)
        for group, place in groups:
            if place in seats:
                found[seats[place][group % len(seats[place])]].append(group)
        return {seat: tuple(mine) for seat, mine in found.items()}

    def _state(self, id: str, report: Report, was: str) -> SlotState:
        move = self.moves.get(id)
        if report.place != was:
            return SlotState.LOST
        if report.restored or report.in_place:
            return SlotState.RESTORING
        if report.fetched and move is not None:
            return SlotState.PREFETCHING
        if move is not None and any(self.homes[id][group] == report.place for group in move.waiting):
            return SlotState.MOVING
        return SlotState.SERVING


def _agreed(twice: Iterable[int], reports: Sequence[Report]) -> list[int]:
    """Groups that two slots have processed, and made the same of."""
    found = {group: [report.digests[group] for report in reports if group in report.digests] for group in twice}
    return [group for group, digests in found.items() if len(digests) == 2 and digests[0] == digests[1]]


def planned_routing(operator: p.Keyed, groups: int, slots: int) -> Routing | None:
    """The routing that a plan has for an operator on one host, if it fits the numbers of groups and slots."""
    fits = len(operator.owners) == groups and max(operator.owners) < slots
    return Routing(operator.owners, slots) if fits else None
