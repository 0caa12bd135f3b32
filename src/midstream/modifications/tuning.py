"""The change of how a job runs, which leaves what it computes as it is. Pure."""

from __future__ import annotations

import msgspec

from midstream.durations import Duration, micros
from midstream.errors import PlanError
from midstream.modifications.changes import Change
from midstream.plan.plan import Plan


def tune(
    *,
    rows_per_arrow_batch: int | None = None,
    max_rows_per_epoch: int | None = None,
    epoch_interval: Duration | None = None,
    prefetch_budget: int | None = None,
    prefetch_time: Duration | None = None,
    standbys: int | None = None,
) -> Change:
    """Change how a job runs, not what it computes; what is not named stays. `undo` takes it back.

    Args:
        rows_per_arrow_batch: rows per batch between the JVM and Python.
        max_rows_per_epoch: for sources given as a function with a parameter `max_rows`, which gets this number.
        epoch_interval: as in `ms.every`.
        prefetch_budget: bytes of state that a slot copies per epoch beside its work.
        prefetch_time: how long that may take.
        standbys: second copies of every group that other executors keep, on a cluster.
    """
    named = {
        "rows_per_arrow_batch": rows_per_arrow_batch,
        "max_rows_per_epoch": max_rows_per_epoch,
        "epoch_interval": None if epoch_interval is None else micros(epoch_interval),
        "prefetch_budget": prefetch_budget,
        "prefetch_time": None if prefetch_time is None else micros(prefetch_time),
        "standbys": standbys,
    }
    told = {name: number for name, number in named.items() if number is not None}
    if not told:
        raise PlanError(f"tune needs at least one of {', '.join(named)}")
    for name, number in told.items():
        least = 1 if name.startswith(("rows", "max")) else 0
        if number < least:
            raise PlanError(f"tune: {name} must be {least} or more, not {number}")

    def apply(plan: Plan) -> Plan:
        return msgspec.structs.replace(plan, tuning=msgspec.structs.replace(plan.tuning, **told))

    return Change(f"tune {', '.join(told)}", apply)
