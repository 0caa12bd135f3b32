"""Publishing a committed epoch: to every sink, until it is done, and only where sink and history agree."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from midstream.checkpoint import layout
from midstream.checkpoint.delivery import Agrees, Ahead, Behind, Verdict, judged
from midstream.checkpoint.journal import Journal
from midstream.checkpoint.records import Commit, Delivered, Staged
from midstream.errors import SinkError
from midstream.events import Event, Republish
from midstream.plan import code
from midstream.plan import plan as p
from midstream.plan.plan import Plan
from midstream.sinks.contract import LostRowsError, OtherHistoryError, Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("midstream")
_FIRST_PAUSE = 0.2  # seconds before a publication is tried again; each pause is twice as long as the one before


@dataclass(frozen=True, slots=True)
class Publication:
    """Makes what a commit record names visible in the sinks."""

    spark: SparkSession
    journal: Journal
    tries: int
    accept_lost: bool  # go on without rows that are gone before they were published
    stopping: threading.Event
    listener: Callable[[Event], None]
    lost: set[str] = field(default_factory=set)  # sinks of which the next record forgets what was given to them

    def check(self, plan: Plan, job: str, last: Commit) -> None:
        """Refuse to go on where a sink does not have what was published to it."""
        for sink, verdict in verdicts(plan, job, last, self.journal).items():
            if isinstance(verdict, Ahead):
                raise SinkError(
                    f"sink {sink!r} and the checkpoint {self.journal.storage.root} do not fit together: "
                    f"{verdict.reason}. A checkpoint that is restored from a copy needs the sink as it was then: "
                    "restore that too, or take the newer epochs out of it; docs/operations.md says how, and `midstream "
                    "sinks` shows what each sink has"
                )
            if isinstance(verdict, Behind) and not self.accept_lost:
                raise SinkError(
                    f"sink {sink!r} has lost rows: {verdict.reason}. Restore them from a copy, or start with "
                    "on_lost_output='accept' to go on without them"
                )
            if isinstance(verdict, Behind):
                self.lost.add(sink)

    def __call__(self, commit: Commit, plan: Plan) -> None:
        """Publish an epoch to all sinks; one that is published already is left alone.

        Raises:
            SinkError: a sink cannot take it, also when it is tried again, or what was staged is gone.
        """
        sinks = {operator.id: code.load(operator.code) for operator in plan.of(p.Sink)}
        staged = [each for each in commit.sinks if each.sink in sinks]
        forgetful = [each for each in staged if each.files and not sinks[each.sink].remembers]
        if forgetful and self.journal.published() == commit.id:
            return
        for each in staged:
            self._publish(sinks[each.sink], each)
        if forgetful:
            self.journal.write_published(commit.id)  # before anything is cleaned: then nothing is left to look at
        for each in staged:
            sinks[each.sink].clean(each)
            self.journal.storage.delete(layout.spool_directory(each.sink, each.epoch))

    def _publish(self, sink: Sink, staged: Staged) -> None:
        pause = _FIRST_PAUSE
        for attempt in range(1, max(self.tries, 2) + 1):
            try:
                sink.publish(staged, self.spark)
                return
            except OtherHistoryError:
                raise
            except LostRowsError as error:
                if not self.accept_lost:
                    raise
                _log.warning("the job goes on without rows that are lost: %s", error)
                if attempt > 1:  # what was staged is gone; else it was only what the sink had before
                    return
                continue
            except Exception as error:
                if attempt >= self.tries or self.stopping.is_set():
                    raise
                self.listener(Republish(staged.epoch, staged.sink, attempt, str(error)))
            self.stopping.wait(pause)
            pause *= 2


def delivered(last: Commit | None, targets: Mapping[str, str]) -> dict[str, Delivered]:
    """Say what each sink has been given for sure when the epoch after a commit is committed.

    Args:
        last: the commit.
        targets: sink -> a digest of its configuration, of the plan that follows: of another target nothing is known.
    """
    if last is None:
        return {}
    given = {id: each for id, each in last.delivered.items() if targets.get(id) == each.target}
    for staged in last.sinks:
        if staged.files and targets.get(staged.sink) == staged.target:
            given[staged.sink] = Delivered(last.epoch, last.id, staged.target)
    return given


def targets_of(plan: Plan) -> dict[str, str]:
    """Return a short digest of the configuration of every sink."""
    return {sink.id: sha256(sink.describe.encode()).hexdigest()[:8] for sink in plan.of(p.Sink)}


def verdicts(plan: Plan, job: str, last: Commit, journal: Journal) -> Mapping[str, Verdict]:
    """Ask every sink of a plan that remembers what it has, and compare it with the records.

    A sink of the newest commit that the plan does not have, or has with another target, is not asked.
    """
    found: dict[str, Verdict] = {}
    ids = {epoch: journal.commit(epoch).id for epoch in journal.epochs()}
    targets = targets_of(plan)
    for operator in plan.of(p.Sink):
        sink = code.load(operator.code)
        if not sink.remembers:
            found[operator.id] = Agrees()
            continue
        target = targets[operator.id]
        before = last.delivered.get(operator.id)
        has_rows = any(s.files and s.sink == operator.id and s.target == target for s in last.sinks)
        now = Delivered(last.epoch, last.id) if has_rows else None
        known = before if before is not None and before.target == target else None
        found[operator.id] = judged(sink.published(operator.id, job), known, now, last.epoch, ids)
    return found
