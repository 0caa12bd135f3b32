"""The plans of a job, and which of them an epoch runs under: the running one, or the one that is armed for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from midstream.checkpoint.journal import Journal
from midstream.checkpoint.records import Commit, Cut, Intent
from midstream.epoch.context import JobContext
from midstream.epoch.history import History
from midstream.events import After, Before, Step
from midstream.operators.resolve import resolve
from midstream.operators.resolved import Resolved
from midstream.plan import code
from midstream.plan import plan as p

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Armed:
    """A new plan, with a callback for each thing that can become of it."""

    resolved: Resolved
    begun: Callable[[], None]
    committed: Callable[[Cut], None]
    broken: Callable[[BaseException], None]
    first: int = 0  # the first epoch that it may apply to

    @property
    def version(self) -> int:
        """The plan version."""
        return self.resolved.plan.version


class Plans:
    """Which plan runs, and which is to follow it."""

    def __init__(self, spark: SparkSession, journal: Journal, running: Resolved) -> None:
        self._spark, self._journal = spark, journal
        self._running = running
        self._armed: Armed | None = None
        self._known = {running.plan.version: running}

    @property
    def running(self) -> Resolved:
        """The plan of the newest epoch, and of the next one unless another is armed."""
        return self._running

    @property
    def armed(self) -> Armed | None:
        """The plan that waits for the next epoch, if one does."""
        return self._armed

    def arm(self, armed: Armed) -> None:
        """Let the next epoch run under a new plan."""
        self._armed = armed

    def disarm(self, version: int | None = None) -> Armed | None:
        """Let the next epoch run under the running plan; return what was armed, if it has the version asked for."""
        armed = self._armed
        if armed is None or version not in (None, armed.version):
            return None
        self._armed = None
        return armed

    def due(self, epoch: int) -> int:
        """Return the version that an epoch is to run under."""
        is_due = self._armed is not None and epoch >= self._armed.first
        return self._armed.version if self._armed is not None and is_due else self._running.plan.version

    def armed_as(self, version: int) -> Armed | None:
        """Return what is armed if it has this version."""
        return self._armed if self._armed is not None and self._armed.version == version else None

    def run(self, resolved: Resolved) -> None:
        """Make a plan the running one."""
        self.add(resolved)
        self._running = resolved

    def add(self, resolved: Resolved) -> None:
        """Make a plan known."""
        self._known[resolved.plan.version] = resolved

    def version(self, version: int) -> Resolved:
        """Return a plan version, resolved."""
        if version not in self._known:
            self._known[version] = resolve(self._spark, self._journal.plan(version))
        return self._known[version]

    def of(self, commit: Commit) -> p.Plan:
        """Return the plan of a committed epoch, as it was: code of an older one may not fit together any more."""
        known = self._known.get(commit.version)
        return known.plan if known is not None else self._journal.plan(commit.version)

    def keep(self, versions: Collection[int]) -> None:
        """Drop all other plans, and the code that only they use."""
        kept = {version: resolved for version, resolved in self._known.items() if version in versions}
        dropped = [resolved for version, resolved in self._known.items() if version not in versions]
        used = {key for resolved in kept.values() for key in p.code_keys(resolved.plan)}
        code.forget({key for resolved in dropped for key in p.code_keys(resolved.plan)} - used)
        self._known = kept


class Intents:
    """Decides on epochs, once each."""

    def __init__(self, context: JobContext, plans: Plans, history: History) -> None:
        self._context, self._journal = context, context.journal
        self._plans, self._history = plans, history

    def of(self, epoch: int) -> Intent:
        """Return what is decided for an epoch: as journalled if it was begun before, else decided now."""
        intent = self._journal.intent(epoch)
        if intent is None:
            last, listener = self._history.last, self._context.listener
            now = self._context.clock.after(last.clock if last is not None else 0)
            intent = Intent(epoch=epoch, version=self._plans.due(epoch), clock=now, seed=os.urandom(8).hex())
            self._context.guard()
            listener(Before(Step.JOURNAL, epoch))
            self._journal.write_intent(intent)
            listener(After(Step.JOURNAL, epoch))
        return intent

    def under_running_plan(self, intent: Intent) -> Intent:
        """Decide anew that an epoch runs under the running plan: it has failed under the one that was armed."""
        again = msgspec.structs.replace(intent, version=self._plans.running.plan.version)
        self._journal.write_intent(again)
        return again

    def adopt(self, version: int | None = None) -> None:
        """Move an epoch that was begun but not committed to a plan of this start: nobody has seen its rows.

        Args:
            version: of the plan that it must run under; by default it keeps its own, if the job still knows that.
        """
        intent = self._journal.intent(self._history.next_epoch)
        if intent is None:
            return
        running, armed = self._plans.running.plan.version, self._plans.armed
        known = {running, armed.version if armed is not None else 0}
        if intent.version not in known if version is None else intent.version != version:
            adopted = running if version is None else version
            self._journal.write_intent(msgspec.structs.replace(intent, version=adopted))
