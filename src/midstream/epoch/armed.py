"""Values and protocols between the engine and those around it: a plan that waits for the next epoch, a follower."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from midstream.checkpoint.records import Cut, Intent
from midstream.errors import MidstreamError
from midstream.operators.resolved import Resolved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from midstream.sinks.contract import Sink


class StopRequestedError(MidstreamError):
    """Raised into a new epoch when the job is being stopped: the epoch has not begun, and is run after a restart."""


@dataclass(frozen=True, slots=True)
class Armed:
    """A new plan that waits for the next epoch, and whom to tell what becomes of it."""

    resolved: Resolved
    begun: Callable[[], None]
    committed: Callable[[Cut], None]
    broken: Callable[[BaseException], None]
    first: int = 0  # the first epoch that it may apply to

    @property
    def version(self) -> int:
        """The plan version."""
        return self.resolved.plan.version


class Follower(Protocol):
    """Sees every epoch after it is committed."""

    witness: Sink  # and the rows of every sink before

    def follow(self, batch: DataFrame, intent: Intent, offsets: tuple[str, ...], *, final: bool) -> None:
        """Take note of an epoch; must not raise."""
