"""What a run has of one group: keys in their order, and a value for each, or that it is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from midstream.state.runs.keys import KeyColumn, concatenated
from midstream.state.runs.values import ValueColumn, joined


@dataclass(frozen=True, slots=True)
class Part:
    """What a run has of one group."""

    keys: KeyColumn
    values: ValueColumn

    def __len__(self) -> int:
        return len(self.keys)


def merged(parts: Sequence[Part], *, whole: bool) -> Part:
    """Merge what several runs have of a group: of each key the newest.

    Args:
        parts: the newest first; those of runs that follow each other.
        whole: the oldest is the first that there is. Then nothing lies below it, and no deletion is kept.
    """
    keys, values = concatenated([part.keys for part in parts]), joined([part.values for part in parts])
    order = keys.order()  # of equal keys the newest comes first
    chosen = order[keys.differ_in(order)]
    if whole and values.gone is not None:
        chosen = chosen[values.gone[chosen] == 0]
    return Part(keys.take(chosen), values.take(chosen))
