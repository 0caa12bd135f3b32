"""A report on the sinks of a stopped job beside its checkpoint: after a backup was restored, for example."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from midstream.checkpoint.delivery import Agrees, Ahead
from midstream.checkpoint.journal import Journal
from midstream.checkpoint.retention import gaps
from midstream.checkpoint.storage import Storage
from midstream.epoch.publication import verdicts
from midstream.errors import CheckpointError, MidstreamError
from midstream.plan import plan as p


@dataclass(frozen=True, slots=True)
class SinkReport:
    """One sink of a checkpoint."""

    sink: str
    target: str
    fits: bool
    found: str  # what is wrong, or that nothing is


def report(checkpoint: str, show: Callable[[str], None] = lambda text: None) -> list[SinkReport]:
    """Compare every sink of the plan that a checkpoint ran last with its records; nothing is changed.

    Sinks whose secrets are not in the environment cannot be asked, and are reported as such.
    """
    storage = Storage.at(checkpoint)
    journal = Journal(storage)
    identity, last = journal.identity(), journal.newest_commit()
    if identity is None:
        raise CheckpointError(f"{storage.root} is not a checkpoint of Midstream")
    if last is None:
        raise CheckpointError(f"{storage.root} has no committed epoch yet: nothing was published")
    if wrong := gaps([journal.commit(epoch) for epoch in journal.epochs()]):
        raise CheckpointError(f"the history in {storage.root} is not whole: {'; '.join(wrong)}")
    plan = journal.plan(last.version)
    show(f"checkpoint {storage.root}: epoch {last.epoch}, commit {last.id}")
    found = []
    for sink in plan.of(p.Sink):
        alone = p.Plan(name=plan.name, operators=(sink,), version=plan.version)
        try:
            verdict = verdicts(alone, identity.job, last, journal)[sink.id]
        except MidstreamError as error:
            found.append(SinkReport(sink.id, sink.describe, False, f"cannot be asked: {error}"))
            continue
        if isinstance(verdict, Agrees):
            found.append(
                SinkReport(sink.id, sink.describe, True, "has what was published to it, as far as it remembers")
            )
        else:
            kind = "ahead of the checkpoint" if isinstance(verdict, Ahead) else "has lost rows"
            found.append(SinkReport(sink.id, sink.describe, False, f"{kind}: {verdict.reason}"))
    return found
