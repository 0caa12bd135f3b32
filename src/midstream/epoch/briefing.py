"""The briefing of a keyed operator for one run of an epoch: where its state stands, what is due, where its rows go."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from midstream.checkpoint.records import Commit, OperatorState
from midstream.epoch.beginning import Beginning
from midstream.epoch.settings import Settings
from midstream.operators.keyed_run import KeyedRun
from midstream.operators.kinds import keyed_kind_of
from midstream.operators.task import Epoch, Relocation
from midstream.operators.watermarks import regimes_of, watermark_of
from midstream.placement.assignment import Serving
from midstream.plan.windows import END_OF_TIME
from midstream.state.history import Head, logs_of
from midstream.state.runs import tiers

_COMBINE_BELOW = 0.5  # distinct keys per row below which rows are folded in the JVM before they go to Python
_REWRITTEN = 4  # rows that merging may write for each that the epoch before has logged,
_LITTLE = 50_000  # and this many where it has logged few
_BUSY = 100  # rows of every slot in the last epoch from which all slots are expected to have some in the next


@dataclass(frozen=True, slots=True)
class Density:
    """How the rows of an operator were spread in the last epoch."""

    keys_per_row: float = 1.0
    fewest: int = 0  # rows of the slot that had fewest


@dataclass(frozen=True, slots=True)
class Briefing:
    """What the keyed operators of an epoch are told: what it begins with, the job, and where its state is stored."""

    beginning: Beginning
    job: str
    checkpoint: str
    settings: Settings
    recent: tuple[Commit, ...]  # whose logs are shipped with the tasks

    def keyed_run(self, id: str, serving: Serving, snapshots: frozenset[int], density: Density) -> KeyedRun:
        """Work out what one operator is told, from what is committed.

        Args:
            id: of the operator.
            serving: who serves its groups.
            snapshots: groups of which a snapshot is due.
            density: of its rows in the last epoch.
        """
        watermark = self._watermark(id)
        due = self._due(id, watermark)
        settings, tuned, state = self.settings, self.beginning.resolved.plan.tuning, self.beginning.state(id)
        epoch = Epoch(
            epoch=self.beginning.intent.epoch,
            clock=self.beginning.intent.clock,
            seed=self.beginning.intent.seed,
            watermark=watermark,
            before=state.watermark,
            due=due,
            snapshots=snapshots,
            merges=merges_due(state),
            prefetch=settings.prefetch_budget if tuned.prefetch_budget is None else tuned.prefetch_budget,
            prefetch_seconds=(settings.prefetch_time if tuned.prefetch_time is None else tuned.prefetch_time) / 1e6,
            keys_per_row=density.keys_per_row,
            heat=serving.heat,
            relocation=self._relocation(serving),
        )
        return KeyedRun(
            self._head(id),
            epoch,
            serving.routing,
            combine=density.keys_per_row < _COMBINE_BELOW,
            markers=bool(due) or density.fewest < _BUSY,
            anchor=serving.anchor,
            both=serving.both,
            regimes=regimes_of(self.beginning.resolved, id, state),
        )

    def _watermark(self, id: str) -> int | None:
        """The watermark of an operator: a longer delay, or one more source, does not open what is closed."""
        begins, before = self.beginning, self.beginning.state(id).watermark
        if begins.final:
            return END_OF_TIME
        watermark = watermark_of(begins.resolved, id, begins.last, begins.intent.clock)
        return watermark if watermark is None or before is None else max(watermark, before)

    def _due(self, id: str, watermark: int | None) -> frozenset[int]:
        """The groups of an operator that have a timer or an expiry due, or may close otherwise under a new plan."""
        begins, state = self.beginning, self.beginning.state(id)
        due = frozenset(
            group
            for group, (event, clock) in state.deadlines.items()
            if (event is not None and watermark is not None and event <= watermark)
            or (clock is not None and clock <= begins.intent.clock)
        )
        is_new = begins.last is not None and begins.last.version != begins.intent.version
        if is_new and keyed_kind_of(begins.resolved.plan[id]).closes_by_plan:
            due |= {group for group, changed in enumerate(state.changed) if changed is not None}
        return due

    def _relocation(self, serving: Serving) -> Relocation | None:
        """What moves; nothing is put aside for later where there is no later."""
        if serving.relocation is None or not self.beginning.final:
            return serving.relocation
        return replace(serving.relocation, defers=False)

    def _head(self, id: str) -> Head:
        """Where the state of an operator stands, and where it is stored."""
        begins, settings, state = self.beginning, self.settings, self.beginning.state(id)
        return Head(
            job=self.job,
            operator=id,
            checkpoint=self.checkpoint,
            cache=settings.cache,
            epoch=begins.last.epoch if begins.last is not None else -1,
            changed=state.changed or (None,) * begins.groups,
            born=state.born,
            runs=state.runs or (),
            recent=tuple(logs_of(commit, id) for commit in self.recent),
            backlog=state.backlog,
            in_place=settings.in_place,
            store=settings.store,
            apart=settings.apart,
            bytes_per_second=settings.store_bytes_per_second,
        )


def merges_due(state: OperatorState) -> dict[int, int]:
    """Choose the groups whose newest runs are merged in an epoch, and how many of each."""
    runs = defaultdict[int, list[int]](list)
    for run in state.runs or ():
        for group, entries in run.groups:
            runs[group].append(entries)
    written = sum(log.size for log in state.logs)
    return tiers.chosen(runs, max(_REWRITTEN * written, _LITTLE))
