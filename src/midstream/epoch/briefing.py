"""What a keyed operator is told for one run of an epoch: where its state stands, what is due, where its rows go."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from midstream.checkpoint.records import Intent, OperatorState
from midstream.operators.resolve import Resolved
from midstream.operators.shuffle import KeyedRun
from midstream.operators.task import Epoch
from midstream.operators.watermarks import regimes_of, watermark_of
from midstream.plan import plan as p
from midstream.plan.windows import END_OF_TIME
from midstream.state.history import Head, logs_of

if TYPE_CHECKING:
    from midstream.epoch.engine import Engine

_COMBINE_BELOW = 0.5  # distinct keys per row below which rows are folded in the JVM before they go to Python
_BUSY = 100  # rows of every slot in the last epoch from which all slots are expected to have some in the next


def keyed_run(engine: Engine, resolved: Resolved, id: str, intent: Intent, final: bool) -> KeyedRun:
    """Work out what an operator is told, from what is committed."""
    last, settings = engine.last, engine.settings
    known = last.operators if last is not None and id not in engine.forgetting else {}
    state = known.get(id, OperatorState(born=intent.epoch))
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
    if last is not None and last.version != intent.version and isinstance(resolved.plan[id], p.Window):
        due |= {
            group for group, changed in enumerate(state.changed) if changed is not None
        }  # it may close otherwise now
    places = engine.assignment.briefing(resolved, id)
    epoch = Epoch(
        epoch=intent.epoch,
        clock=intent.clock,
        seed=intent.seed,
        watermark=watermark,
        before=state.watermark,
        due=due,
        snapshots=frozenset(engine.housekeeping.snapshots_due(id, state, intent.epoch)),
        prefetch=settings.prefetch_budget if tuned.prefetch_budget is None else tuned.prefetch_budget,
        prefetch_seconds=(settings.prefetch_time if tuned.prefetch_time is None else tuned.prefetch_time) / 1e6,
        keys_per_row=engine.folds.get(id, 1.0),
        heat=engine.assignment.heat(id),
        relocation=replace(places.relocation, defers=False) if final and places.relocation else places.relocation,
    )
    head = Head(
        job=engine.job,
        operator=id,
        checkpoint=engine.journal.storage.root,
        cache=settings.cache,
        epoch=last.epoch if last is not None else -1,
        changed=state.changed or (None,) * engine.groups,
        born=state.born,
        recent=tuple(logs_of(commit, id) for commit in engine.recent),
        backlog=state.backlog,
        in_place=settings.in_place,
        apart=settings.apart,
        bytes_per_second=settings.store_bytes_per_second,
    )
    return KeyedRun(
        head,
        epoch,
        places.routing,
        combine=engine.folds.get(id, 1.0) < _COMBINE_BELOW,
        markers=bool(due) or engine.least.get(id, 0) < _BUSY,
        anchor=places.anchor,
        both=places.both,
        regimes=regimes_of(resolved, id, state),
    )
