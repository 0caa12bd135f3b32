"""The contract of what sees every epoch after it is committed: a shadow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from midstream.checkpoint.records import Intent
from midstream.epoch.batch import Batch

if TYPE_CHECKING:
    from midstream.sinks.contract import Sink


class Follower(Protocol):
    """Sees every epoch after it is committed."""

    witness: Sink  # and the rows of every sink before

    def follow(self, batch: Batch, intent: Intent) -> None:
        """Take note of an epoch; must not raise."""
