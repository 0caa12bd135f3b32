"""A plan that waits for the next epoch, with a callback for each outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from midstream.checkpoint.records import Cut
from midstream.operators.resolved import Resolved


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
