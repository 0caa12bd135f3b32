"""What is decided for an epoch before it runs: plan version, clock, seed; journalled, so that a rerun is the same."""

from __future__ import annotations

import os

import msgspec

from midstream.checkpoint.records import Intent
from midstream.epoch.context import JobContext
from midstream.epoch.history import History
from midstream.epoch.plans import Plans
from midstream.events import After, Before, Step


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
