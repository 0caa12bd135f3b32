"""Publishing a committed epoch: to every sink, until it is done, and only where sink and history agree."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from midstream import code
from midstream import plan as p
from midstream import storage as layout
from midstream.delivery import Agrees, Ahead, Behind, Delivered, Verdict, judged
from midstream.errors import SinkError
from midstream.events import Event, Republish
from midstream.journal import Commit, Journal
from midstream.plan import Plan
from midstream.sinks.base import LostRowsError, OtherHistoryError, Sink, Staged

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
                    f"sink {sink!r} has lost rows: {verdict.reason}. Bring them back from a copy, or start with "
                    "on_lost_output='accept' to go on without them"
                )

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
        for attempt in range(1, self.tries + 1):
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
            except Exception as error:
                if attempt == self.tries or self.stopping.is_set():
                    raise
                self.listener(Republish(staged.epoch, staged.sink, attempt, str(error)))
            self.stopping.wait(pause)
            pause *= 2


def delivered(last: Commit | None, plan: Plan) -> dict[str, Delivered]:
    """Say what each sink of a plan has been given for sure when the epoch after a commit is committed."""
    if last is None:
        return {}
    targets = {sink.id: target_of(sink.describe) for sink in plan.of(p.Sink)}
    given = {id: each for id, each in last.delivered.items() if targets.get(id) == each.target}
    for staged in last.sinks:
        if staged.files and staged.sink in targets:
            given[staged.sink] = Delivered(last.epoch, last.id, targets[staged.sink])
    return given


def target_of(describe: str) -> str:
    """Return a short digest of a sink's configuration."""
    return sha256(describe.encode()).hexdigest()[:8]


def verdicts(plan: Plan, job: str, last: Commit, journal: Journal) -> Mapping[str, Verdict]:
    """Ask every sink that remembers what it has, and compare it with the records."""
    found: dict[str, Verdict] = {}
    ids = {epoch: journal.commit(epoch).id for epoch in journal.epochs()}
    has_rows = {staged.sink for staged in last.sinks if staged.files}
    for operator in plan.of(p.Sink):
        sink = code.load(operator.code)
        if not sink.remembers:
            found[operator.id] = Agrees()
            continue
        before = last.delivered.get(operator.id)
        if before is not None and before.target != target_of(operator.describe):
            before = None
        now = Delivered(last.epoch, last.id) if operator.id in has_rows else None
        found[operator.id] = judged(sink.published(operator.id, job), before, now, last.epoch, ids)
    return found
