"""The assignment of groups to executors, epoch by epoch, and the instructions for tasks while groups move.

On one host there is one cache, and a plan says which slot owns which group. On a cluster the seats of an anchor are on
executors; what is in force changes only when an epoch has been committed, and a driver that is started again finds
other executors, so nothing of it is stored.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from midstream.checkpoint.records import Commit, Report
from midstream.operators.resolved import Resolved
from midstream.operators.task import Relocation
from midstream.placement.housing import Dealing, seated
from midstream.placement.move import Move, MoveReport
from midstream.placement.seating import Seating
from midstream.placement.standbys import Copy, Standbys
from midstream.placement.status import MoveStatus, SlotState, SlotStatus
from midstream.placement.strategies.contract import Step, Strategy
from midstream.plan import plan as p
from midstream.plan.routing import Routing
from midstream.state.heat import cooled


@dataclass(frozen=True, slots=True)
class Serving:
    """Which slots serve the groups of an operator in an epoch, and which groups arrive and leave."""

    routing: Routing
    relocation: Relocation | None = None
    anchor: str = ""  # the table to join with, "" for none
    heat: Mapping[int, float] = field(default_factory=dict)  # how busy groups were, where some are copied

    @property
    def both(self) -> dict[int, int]:
        """Groups whose rows go to a second slot too."""
        both = self.relocation.both if self.relocation is not None else {}
        return {group: slot for slot, groups in both.items() for group in groups}


@dataclass(slots=True)
class Assignment:
    """Which executors serve the groups of one job."""

    groups: int
    seating: Seating
    defers: bool = False  # rows of groups whose state cannot arrive soon are put aside
    second_copies: int = 0  # of every group, on other executors, unless the plan is tuned otherwise
    homes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # operator -> group -> executor, in force
    load: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))  # operator -> group -> rows
    moves: dict[str, Move] = field(default_factory=dict)
    standbys: dict[str, Standbys] = field(default_factory=lambda: defaultdict(Standbys))
    joined: Callable[[], object] | None = None  # called once when there are more executors than seats were made for
    _states: dict[str, dict[int, SlotState]] = field(default_factory=lambda: defaultdict(dict))
    _given: dict[str, tuple[Routing, Step]] = field(default_factory=dict)  # what the current epoch does
    _done: Callable[[str], None] | None = None  # called with a note on groups that stayed
    _behind: frozenset[str] = frozenset()  # operators of which some executor lacks groups that it serves
    _since: float = 0.0  # when groups began to move

    @property
    def is_apart(self) -> bool:
        """Whether there are executors, each with a cache of its own."""
        return self.seating.is_apart

    def slots(self, plan: p.Plan, id: str) -> int:
        """How many slots a keyed operator has."""
        wanted = next((o.slots for o in plan.of(p.KeyedOperator) if o.id == id), 0)
        return min(wanted or self.seating.cores, self.groups)

    def most_slots(self, plan: p.Plan) -> int:
        """How many slots the operator with most of them has."""
        return max((self.slots(plan, operator.id) for operator in plan.of(p.KeyedOperator)), default=0)

    def look_around(self, plan: p.Plan) -> None:
        """Find the executors that there are now, for the slots of a plan; between two epochs."""
        self.seating.look_around(self.most_slots(plan))

    def release(self, executor: str, plan: p.Plan) -> None:
        """Return a drained executor to Spark."""
        self.seating.release(executor, self.most_slots(plan))

    # --- instructions for the tasks ---

    def serving(self, resolved: Resolved, id: str) -> Serving:
        """Return which slots serve the groups of an operator in the next epoch, and which arrive and leave."""
        slots = self.slots(resolved.plan, id)
        if not self.is_apart:
            operator = resolved.plan[id]
            assert isinstance(operator, p.KeyedOperator)
            return Serving(planned_routing(operator, self.groups, slots) or Routing.even(self.groups, slots))
        anchor = self.seating.anchor(self.most_slots(resolved.plan))
        homes, move = self.homes_of(id, resolved), self.moves.get(id)
        step = move.step(self.load[id]) if move is not None else Step()
        if move is not None:
            homes = tuple(move.target[g] if g in step.flip else home for g, home in enumerate(homes))
        routing = seated(homes, self.seating.where, slots)
        self._given[id] = routing, step
        copies, left = self._second_copies(id, homes, resolved, move)
        if move is None:
            fetch, drop = self.seating.by_seat(copies), self.seating.by_seat(left)
            return Serving(
                routing, Relocation(fetch=fetch, drop=drop, lazy=True, defers=self.defers), anchor, self._heat(id)
            )
        fetch = self.seating.by_seat([*((group, move.target[group]) for group in step.fetch), *copies])
        drop = self.seating.by_seat([*move.left, *left])
        if move.strategy.starts_afresh and not move.has_begun:
            drop = {seat: routing.groups_of(seat) for seat in set(routing.owners)}
        first = step.flip if move.strategy.copies_first else frozenset()
        first = frozenset(range(len(homes))) if move.strategy.starts_afresh and step.flip else first
        lazy = not move.strategy.copies_first
        both = self.seating.by_seat([(group, move.target[group]) for group in sorted(step.both)])
        relocation = Relocation(first, fetch, drop, both, lazy, defers=lazy and self.defers)
        return Serving(routing, relocation, anchor, self._heat(id))

    def _second_copies(
        self, id: str, homes: Sequence[str], resolved: Resolved, move: Move | None
    ) -> tuple[list[Copy], list[Copy]]:
        """Which copies the next epoch makes beside those that move, those of busy groups first, and which it drops."""
        tuned = resolved.plan.tuning.standbys
        asked = self.standbys[id].ask(homes, self.seating.serving, self.second_copies if tuned is None else tuned)
        coming = {(group, move.target[group]) for group in move.waiting} if move is not None else set()
        load = self.load[id]
        copies = sorted(set(asked) - coming, key=lambda copy: (-load.get(copy[0], 0.0), copy))
        return copies, [copy for copy in self.standbys[id].left(homes) if copy not in coming]

    def _heat(self, id: str) -> dict[int, float]:
        """How busy groups of an operator were, where some are copied: otherwise it is not needed, and not sent."""
        return self.load[id] if id in self._behind or id in self.moves else {}

    def homes_of(self, id: str, resolved: Resolved) -> tuple[str, ...]:
        """Return the current executor of each group; the groups of a new operator are spread evenly."""
        if id not in self.homes:
            operator = resolved.plan[id]
            assert isinstance(operator, p.KeyedOperator)
            known = operator.homes if len(operator.homes) == self.groups else ("",) * self.groups
            slots, seating = self.slots(resolved.plan, id), self.seating
            self.homes[id] = Dealing(seating.where, slots, self.load[id], seating.drained).by_number(known)
        return self.homes[id]

    # --- reports of the tasks ---

    def after(self, reports: Mapping[str, Sequence[Report]]) -> None:
        """Take note of a committed epoch: where its tasks ran, what they had to do, and what has moved."""
        for id, found in reports.items():
            self.load[id] = cooled(self.load[id], *(report.heat for report in found))
            is_behind = any(report.in_place or report.deferred is not None for report in found)
            self._behind = self._behind | {id} if is_behind else self._behind - {id}
        if not self.is_apart:
            return
        was = self.seating.where
        self.seating.seen({report.slot: report.place for found in reports.values() for report in found})
        for id, found in reports.items():
            self._settle(id, found, was)
        if self.joined is not None and not self.moves and self.seating.has_grown():
            self.joined()
        if self.moves and all(move.is_done for move in self.moves.values()):
            self._end_moves()

    def _settle(self, id: str, found: Sequence[Report], was: tuple[str, ...]) -> None:
        """Take note of where the groups of an operator are now, whose tasks ran at `was` before."""
        (routing, step), homes = self._given[id], list(self.homes[id])
        for report in found:
            is_lost = report.place != was[report.slot]
            for group in routing.groups_of(report.slot):
                standby = self.standbys[id].home(group, self.seating.where) if is_lost else None
                homes[group] = standby or report.place
            self._states[id][report.slot] = self._state(id, report, was=was[report.slot])
        if id in self.moves:
            self.moves[id] = self.moves[id].after(step, self.homes[id], self._outcome(id, step, found))
        self.homes[id] = tuple(homes)
        self.standbys[id].after((group, report.place) for report in found for group in report.fetched)

    def _outcome(self, id: str, step: Step, found: Sequence[Report]) -> MoveReport:
        """What an epoch has done for the groups of an operator that move."""
        target = self.moves[id].target
        return MoveReport(
            frozenset(self.seating.where),
            [group for report in found for group in report.fetched if target[group] == report.place],
            _agreed(step.both, found),
            sum(report.in_place + len(report.deferred.groups if report.deferred else ()) for report in found),
            sum(report.copied for report in found),
        )

    def _end_moves(self) -> None:
        done, self._done = self._done, None
        stayed = [f"{len(move.stayed)} groups of {id!r}" for id, move in self.moves.items() if move.stayed]
        self.moves.clear()
        if done is not None:
            done(f"{' and '.join(stayed)} stayed: they differ on the new executor" if stayed else "")

    # --- asked for by modifications ---

    def begin(self, resolved: Resolved, strategy: Strategy, done: Callable[[str], None]) -> bool:
        """Begin to move groups to where a plan wants them; False if they are there."""
        if not self.is_apart:
            return False
        for operator in resolved.plan.of(p.KeyedOperator):
            homes = self.homes_of(operator.id, resolved)
            if operator.homes and operator.homes != homes:
                standing = self.standbys[operator.id].standing
                self.moves[operator.id] = Move.begun(homes, operator.homes, strategy, standing)
        self._done, self._since = (done if self.moves else None), time.monotonic()
        return bool(self.moves)

    def moving(self, last: Commit | None) -> list[MoveStatus]:
        """How far groups that move have come; the newest commit says how large they are."""
        seconds, found = time.monotonic() - self._since, []
        for id, move in list(self.moves.items()):
            snapshots = last.operators[id].snapshots if last is not None and id in last.operators else ()
            sizes = [snapshots[group] for group in move.waiting] if snapshots else []
            to_go = sum(snapshot.size for snapshot in sizes if snapshot is not None)
            moved = move.total, len(move.waiting), move.bytes
            found.append(MoveStatus(id, str(move.strategy), *moved, to_go, seconds, move.differing))
        return found

    def settled(self, plan: p.Plan, resolved: Resolved) -> p.Plan:
        """Write the homes in force into a plan."""
        if not self.is_apart:
            return plan
        keyed = {o.id: self.homes_of(o.id, resolved) for o in plan.of(p.KeyedOperator)}
        operators = tuple(msgspec.structs.replace(o, homes=keyed[o.id]) if o.id in keyed else o for o in plan.operators)
        return msgspec.structs.replace(plan, operators=operators)

    def status(self, resolved: Resolved) -> list[SlotStatus]:
        """Where every slot of a plan is and what it does."""
        where, found = self.seating.where, []
        for id in resolved.keyed:
            slots = self.slots(resolved.plan, id)
            if not self.is_apart:
                routing = self.serving(resolved, id).routing
            elif id in self.homes:
                routing = seated(self.homes[id], where, slots)
            else:
                continue
            for slot in sorted(set(routing.owners)):
                executor = where[slot] if where else ""
                state = self._states[id].get(slot, SlotState.SERVING)
                mine = routing.groups_of(slot)
                standbys = sum(group in mine for group, _ in self.standbys[id].standing)
                found.append(SlotStatus(id, slot, executor, len(mine), state, standbys))
        return found

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
    """Groups that two slots have processed with equal results."""
    found = {group: [report.digests[group] for report in reports if group in report.digests] for group in twice}
    return [group for group, digests in found.items() if len(digests) == 2 and digests[0] == digests[1]]


def planned_routing(operator: p.KeyedOperator, groups: int, slots: int) -> Routing | None:
    """The routing that a plan has for an operator on one host, if it fits the numbers of groups and slots."""
    fits = len(operator.owners) == groups and max(operator.owners) < slots
    return Routing(operator.owners, slots) if fits else None
