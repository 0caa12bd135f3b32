"""Seats of executors that there are not: for what only asks where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from midstream.placement.seating import Seating


@dataclass(slots=True)
class Chairs(Seating):
    """Seats as they are given; nothing of Spark is asked."""

    def anchor(self, slots: int) -> str:
        return "chairs"

    def has_grown(self) -> bool:
        return False


def chairs(where: Sequence[str], **given: Any) -> Chairs:
    """Seats on some executors, one core for each."""
    return Chairs(None, len(where), True, tuple(where), **given)  # type: ignore[arg-type]


def one_host(cores: int) -> Chairs:
    """No executors: tasks run where they run."""
    return Chairs(None, cores, False)  # type: ignore[arg-type]
