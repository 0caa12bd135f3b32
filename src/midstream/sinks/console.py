"""Rows on the screen."""

from __future__ import annotations

from decimal import Decimal

from pyspark.sql import SparkSession
from rich.console import Console as Screen
from rich.table import Table
from rich.text import Text

from midstream.checkpoint.records import Staged
from midstream.errors import SinkError
from midstream.sinks import spooled
from midstream.sinks.contract import call
from midstream.sinks.spooled import SpooledSink
from midstream.spark.arrow_values import python_values

_CELL = 60  # characters of a value that are shown


class Console(SpooledSink):
    """Prints the first rows of each committed epoch as a table, headed by sink, epoch and number of rows.

    Promised: nothing is printed of an epoch that did not commit. Not promised: that an epoch is printed only
    once, since a screen cannot be asked what it has shown. Epochs without rows print nothing.
    """

    guarantee = "each committed epoch at least once on the screen"

    def __init__(self, rows: int = 20) -> None:
        """Print at most `rows` rows of an epoch."""
        if rows < 1:
            raise SinkError(f"console(rows={rows}) would show nothing: ask for 1 row or more")
        self._rows = rows

    def publish(self, staged: Staged, spark: SparkSession) -> None:
        """Print the epoch."""
        if not staged.files:
            return
        spooled.refuse_lost(staged)
        total, reader = spooled.count(staged), spooled.read(staged)
        table = Table()
        for name in reader.schema.names:
            table.add_column(Text(name), no_wrap=True)
        for batch in reader:
            wanted = batch[: self._rows - table.row_count]
            for row in zip(*map(python_values, wanted.columns), strict=True):
                table.add_row(*map(_cell, row))
            if table.row_count == self._rows:
                break
        screen = Screen(highlight=False)
        if not screen.is_terminal:
            screen.width = 10_000  # a log has no edge to wrap at; the table takes what it needs
        rows = f"{total} row{'s'[: total != 1]}" + (f", {self._rows} shown" if total > self._rows else "")
        screen.print(Text(f"{staged.sink} · epoch {staged.epoch} · {rows}", style="bold"))
        screen.print(table)

    def describe(self) -> str:
        """Say how many rows are shown."""
        return call("console", rows=self._rows)


def _cell(value: object) -> Text:
    if value is None:
        return Text("null", style="dim")
    text = str(value)
    shown = text if len(text) <= _CELL else text[: _CELL - 1] + "…"
    return Text(shown, justify="right" if isinstance(value, int | float | Decimal) else "left")
