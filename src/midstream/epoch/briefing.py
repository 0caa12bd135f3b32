"""The briefing of a keyed operator for one run of an epoch: where its state stands, what is due, where its rows go."""

from __future__ import annotations

from dataclasses import dataclass, replace

from midstream.checkpoint.records import Commit, Intent, OperatorState
from midstream.epoch.settings import Settings
from midstream.operators.kinds import keyed_kind_of
from midstream.operators.resolved import Resolved
from midstream.operators.shuffle import KeyedRun
from midstream.operators.task import Epoch
from midstream.operators.watermarks import regimes_of, watermark_of
from midstream.placement.assignment import Serving
from midstream.plan.windows import END_OF_TIME
from midstream.state.history import Head, logs_of

_COMBINE_BELOW = 0.5  # distinct keys per row below which rows are folded in the JVM before they go to Python
_BUSY = 100  # rows of every slot in the last epoch from which all slots are expected to have some in the next


@dataclass(frozen=True, slots=True)
class Committed:
    """What an epoch begins with: the job, where its state is stored, and what the epochs before it have left."""

    job: str
    checkpoint: str
    groups: int
    settings: Settings
    last: Commit | None
    recent: tuple[Commit, ...]  # whose logs are shipped with the tasks
    forgetting: frozenset[str] = frozenset()  # operators whose state goes with the epoch

    def state(self, id: str, epoch: int) -> OperatorState:
        """Return what is known of a keyed operator; one that is new is born in the epoch."""
        known = self.last.operators if self.last is not None and id not in self.forgetting else {}
        return known.get(id, OperatorState(born=epoch))


@dataclass(frozen=True, slots=True)
class Density:
    """How the rows of an operator were spread in the last epoch."""

    keys_per_row: float = 1.0
    fewest: int = 0  # rows of the slot that had fewest


def keyed_run(
    committed: Committed,
    resolved: Resolved,
    id: str,
    intent: Intent,
    serving: Serving,
    snapshots: frozenset[int],
    density: Density,
    *,
    final: bool,
) -> KeyedRun:
    """Work out what an operator is told, from what is committed.

    Args:
        committed: what the epoch begins with.
        resolved: the plan that it runs under.
        id: of the operator.
        intent: what was decided for the epoch.
        serving: who serves its groups.
        snapshots: groups of which a snapshot is due.
        density: of its rows in the last epoch.
        final: whether the input has ended.
    """
    last, settings, state = committed.last, committed.settings, committed.state(id, intent.epoch)
    watermark = END_OF_TIME if final else watermark_of(resolved, id, last, intent.clock)
    if watermark is not None and state.watermark is not None:
        watermark = max(watermark, state.watermark)  # a longer delay, or one more source, does not open what is closed
    tuned = resolved.plan.tuning
    due = frozenset(
        group
        for group, (event, clock) in state.deadlines.items()
        if (event is not None and watermark is not None and event <= watermark)
        or (clock is not None and clock <= intent.clock)
    )
    if last is not None and last.version != intent.version and keyed_kind_of(resolved.plan[id]).closes_by_plan:
        due |= {
            group for group, changed in enumerate(state.changed) if changed is not None
        }  # it may close otherwise now
    epoch = Epoch(
        epoch=intent.epoch,
        clock=intent.clock,
        seed=intent.seed,
        watermark=watermark,
        before=state.watermark,
        due=due,
        snapshots=snapshots,
        prefetch=settings.prefetch_budget if tuned.prefetch_budget is None else tuned.prefetch_budget,
        prefetch_seconds=(settings.prefetch_time if tuned.prefetch_time is None else tuned.prefetch_time) / 1e6,
        keys_per_row=density.keys_per_row,
        heat=serving.heat,
        relocation=replace(serving.relocation, defers=False) if final and serving.relocation else serving.relocation,
    )
    head = Head(
        job=committed.job,
        operator=id,
        checkpoint=committed.checkpoint,
        cache=settings.cache,
        epoch=last.epoch if last is not None else -1,
        changed=state.changed or (None,) * committed.groups,
        born=state.born,
        recent=tuple(logs_of(commit, id) for commit in committed.recent),
        backlog=state.backlog,
        in_place=settings.in_place,
        apart=settings.apart,
        bytes_per_second=settings.store_bytes_per_second,
    )
    return KeyedRun(
        head,
        epoch,
        serving.routing,
        combine=density.keys_per_row < _COMBINE_BELOW,
        markers=bool(due) or density.fewest < _BUSY,
        anchor=serving.anchor,
        both=serving.both,
        regimes=regimes_of(resolved, id, state),
    )
