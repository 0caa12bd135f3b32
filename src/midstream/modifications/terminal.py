"""A modification on the terminal: its phase, and a bar for every operator whose groups move."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from midstream.placement.status import MoveStatus


def watched(
    look: Callable[[], tuple[str, Sequence[MoveStatus]]], has_ended: Callable[[], bool], timeout: float | None = None
) -> None:
    """Draw until it has ended.

    Args:
        look: gives the status of the modification, and the moves under way.
        has_ended: waits a moment, and tells.
        timeout: seconds after which the drawing ends anyway.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"))
    end = None if timeout is None else time.monotonic() + timeout
    with Progress(*columns) as progress:
        phase = progress.add_task("", total=None, told="")
        bars: dict[str, TaskID] = {}
        while True:
            is_over = has_ended() or (end is not None and time.monotonic() > end)
            status, moves = look()
            progress.update(phase, description=status, total=1 if is_over else None, completed=1 if is_over else 0)
            for move in moves:
                if move.operator not in bars:
                    bars[move.operator] = progress.add_task(f"  {move.operator}", total=move.groups, told="")
                progress.update(bars[move.operator], completed=move.groups - move.waiting, told=described(move))
            if is_over:
                for operator, bar in bars.items():
                    if operator not in {move.operator for move in moves}:
                        progress.update(bar, completed=progress.tasks[bar].total)
                return


def described(move: MoveStatus) -> str:
    """Say how far a move is.

    >>> described(
    ...     MoveStatus("sums", "Live", groups=42, waiting=21, bytes=80_000_000, bytes_to_go=79_000_000, seconds=3.0)
    ... )
    '21 of 42 groups, 80 MB copied, 79 MB to go, about 3 s'
    """
    told = f"{move.groups - move.waiting} of {move.groups} groups, {move.bytes / 1e6:,.0f} MB copied"
    if move.waiting:
        told += f", {move.bytes_to_go / 1e6:,.0f} MB to go"
        if move.seconds_to_go is not None:
            told += f", about {move.seconds_to_go:.0f} s"
    if move.differing:
        told += f", {move.differing} differ on the new executor"
    return told
