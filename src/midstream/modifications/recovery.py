"""Modifications of a job that is started again: what was committed is finished, what was armed is armed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from midstream.checkpoint.journal import Journal
from midstream.checkpoint.offsets import Feed, by_source
from midstream.checkpoint.records import Cut, Phase
from midstream.epoch.plans import Plans
from midstream.errors import MidstreamError
from midstream.modifications import phases as m
from midstream.modifications.arming import Arming
from midstream.modifications.entry import Entry
from midstream.modifications.preparation import Preparation
from midstream.operators.resolve import resolve
from midstream.plan.compatibility import with_sinks_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from midstream.checkpoint.records import Commit


@dataclass(frozen=True, slots=True)
class Recovery:
    """Brings modifications to where the journal and the commit records say that they are."""

    spark: SparkSession
    journal: Journal
    plans: Plans
    preparation: Preparation
    arming: Arming

    def __call__(self, known: Sequence[Entry], feeds: tuple[Feed, ...]) -> None:
        """Finish what was applied, drop what was not armed, arm again what was."""
        unfinished = [one for one in known if not one.phase.is_final]
        cuts = self._cuts(feeds) if unfinished else {}
        for one in unfinished:
            while (event := m.recovered(one.record, cuts)) is not None:
                one.move(event)
            if one.phase is Phase.ARMED:
                self._arm_again(one)

    def _cuts(self, feeds: tuple[Feed, ...]) -> dict[int, Cut]:
        """Plan version -> the first epoch that was committed under it, of those whose records are kept."""
        cuts: dict[int, Cut] = {}
        before: Commit | None = None
        for epoch in self.journal.epochs():
            commit = self.journal.commit(epoch)
            offsets = before.offsets if before is not None and before.id == commit.parent else ()
            cuts.setdefault(commit.version, Cut(epoch, by_source(offsets, feeds)))
            before = commit
        return cuts

    def _arm_again(self, one: Entry) -> None:
        running = self.plans.running.plan
        if one.record.base != running.version:
            one.move(m.Abandoned("the job was started with another plan since; submit it again"))
            return
        try:
            kept = with_sinks_of(self.journal.plan(one.version), running)
            self.plans.add(resolve(self.spark, kept))
            self.preparation.open_sinks(self.plans.version(one.version).plan)
        except MidstreamError as error:
            one.move(m.Broken(f"its plan cannot be taken up again: {error}"))
            return
        self.arming.arm(one)
