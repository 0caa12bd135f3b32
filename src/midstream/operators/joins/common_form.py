"""The one form that rows of both sides of a join get, as SQL: key columns, `_time`, and a struct per side.

The struct of the other side is null, which tells the side of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from midstream.operators.aggregates.declare import event_time
from midstream.operators.joins.rules import SIDES
from midstream.plan.sql import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OWN = ("_time", "_left", "_right")  # columns of the common form, besides the key


@dataclass(frozen=True)
class SideForm:
    """Brings the rows of one side into the common form: the function of a transform.

    Its attributes are plain, so that a plan sees what has changed.
    """

    side: str
    keys: tuple[tuple[str, str], ...]  # column, and what it is called on the left
    time: str | None
    columns: tuple[str, ...]
    types: tuple[str, str]
    needs_key: bool  # rows with a null in the key are never emitted

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Select the common form."""
        return rows.where(self._condition).selectExpr(*self._selected)

    def query(self, table: str) -> str:
        """The same as a query over a table."""
        return f"select {', '.join(self._selected)} from {table} where {self._condition}"

    @property
    def _condition(self) -> str:
        needed = [f"{quote(column)} is not null" for column, _ in self.keys] if self.needs_key else []
        return " and ".join(needed) or "true"

    @property
    def _selected(self) -> list[str]:
        kept = f"struct({', '.join(map(quote, self.columns)) or 'true'})"
        return [
            *(f"{quote(column)} as {quote(name)}" for column, name in self.keys),
            f"{f'timestamp_micros({event_time(self.time)})' if self.time else 'cast(null as timestamp)'} as _time",
            *(
                f"cast({kept if side == self.side else 'null'} as {type}) as _{side}"
                for side, type in zip(SIDES, self.types, strict=True)
            ),
        ]
