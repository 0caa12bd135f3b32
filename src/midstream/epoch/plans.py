"""The plan versions of a job: the one that runs, the one that waits for the next epoch, and those still needed."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from midstream.checkpoint.journal import Journal
from midstream.checkpoint.records import Commit
from midstream.epoch.armed import Armed
from midstream.operators.resolve import resolve
from midstream.operators.resolved import Resolved
from midstream.plan import code
from midstream.plan import plan as p

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
