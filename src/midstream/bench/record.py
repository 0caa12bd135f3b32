"""The record of a benchmark: text for a terminal, and a JSON file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from midstream.errors import MidstreamError


def rendered(table: Table, *notes: str) -> str:
    """Return a table and the lines below it as text, as wide as the terminal is."""
    console = Console()
    with console.capture() as captured:
        console.print(table)
        for note in notes:
            console.print(note, highlight=False)
    return captured.get().rstrip("\n")


def save(record: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a record as JSON, whole or not at all."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.tmp")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
    temporary.replace(target)


def at_least_one(**numbers: int) -> None:
    """Refuse numbers below one, under the name that the user knows."""
    for name, number in numbers.items():
        if number < 1:
            raise MidstreamError(f"{name} must be 1 or more, not {number}")
