"""What an epoch begins with: the last record, what was decided, and the plan that it runs under."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.checkpoint.records import Commit, Intent, OperatorState
from midstream.operators.resolved import Resolved


@dataclass(frozen=True, slots=True)
class Beginning:
    """What an epoch begins with; its run and its record follow from that."""

    last: Commit | None
    intent: Intent
    resolved: Resolved
    groups: int
    forgetting: frozenset[str] = frozenset()  # operators whose state goes with the epoch
    final: bool = False  # the input has ended

    def states(self) -> dict[str, OperatorState]:
        """Return what is known of all keyed operators, also of those that the plan no longer has."""
        known = self.last.operators if self.last is not None else {}
        return {id: state for id, state in known.items() if id not in self.forgetting}

    def state(self, id: str) -> OperatorState:
        """Return what is known of a keyed operator; one that is new is born in the epoch."""
        known = self.last.operators if self.last is not None and id not in self.forgetting else {}
        return known.get(id, OperatorState(born=self.intent.epoch))
