"""What the last epochs have shown of a job: rows to try new code on, how keys repeat, how large groups are."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from midstream.checkpoint.records import Report
from midstream.epoch.briefing import Density

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SAMPLED = 4  # epochs whose rows new code may be tried on


class Observed:
    """Observations of committed epochs; none of them outlives the driver."""

    def __init__(self) -> None:
        self._rows: deque[DataFrame] = deque(maxlen=_SAMPLED)
        self._densities: dict[str, Density] = {}
        self._sizes: dict[str, dict[int, tuple[int, int]]] = {}

    @property
    def rows(self) -> list[DataFrame]:
        """The rows of the last epochs, newest first."""
        return list(reversed(self._rows))

    @property
    def sizes(self) -> Mapping[str, Mapping[int, tuple[int, int]]]:
        """Operator -> group -> entries and bytes."""
        return self._sizes

    def density(self, id: str) -> Density:
        """Return how the rows of an operator were spread in the last epoch."""
        return self._densities.get(id, Density())

    def after(self, rows: DataFrame, reports: Mapping[str, list[Report]]) -> None:
        """Take note of a committed epoch."""
        self._rows.append(rows)
        for id, found in reports.items():
            total, keys = sum(report.rows for report in found), sum(report.keys for report in found)
            per_row = keys / total if total else self.density(id).keys_per_row
            self._densities[id] = Density(per_row, min(report.rows for report in found))
            for report in found:
                self._sizes.setdefault(id, {}).update(report.sizes)
