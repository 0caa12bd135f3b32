"""The panes of a group: read in the order of time, put together to windows, taken out when they are over.

A pane of a key is an entry like that of any declared aggregate, its start before the key: a window's panes lie side by
side in the store of their group, and closing a window is one scan.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from midstream.aggregate_task import TAG
from midstream.aggregation import Columns, Merger, joined, taken
from midstream.slot import Work

HEAD = len(TAG) + 9  # of an entry: the tag, and the start of the pane
AFTER_ALL = bytes((TAG[0] + 1,))
_SIGN = 1 << 63

Times = npt.NDArray[np.int64]
Span = tuple[int, int]


@dataclass(slots=True)
class Panes:
    """Panes of a group, in the order of time."""

    keys: list[bytes]
    starts: Times
    columns: Columns
    ranks: Times = field(default_factory=lambda: np.zeros(0, np.int64))  # the number of each one's key

    @classmethod
    def stored(cls, work: Work, merger: Merger, group: int, low: int) -> Panes:
        """Read the panes from a moment on."""
        start = TAG + b"\1" + (low + _SIGN).to_bytes(8, "big")
        with work.cache.view(group).reader() as reader:
            entries = list(reader.scan(start, AFTER_ALL))
        keys = [key for key, _ in entries]
        return cls(keys, pane_starts(keys), merger.decode([value for _, value in entries])[0])

    def updated(self, touched: list[bytes], changed: Columns) -> Panes:
        """The same with panes that are new or have changed."""
        if not touched:
            return self
        now = set(touched)
        kept = [i for i, key in enumerate(self.keys) if key not in now]
        keys = [self.keys[i] for i in kept] + touched
        starts = np.concatenate([self.starts[kept], pane_starts(touched)]) if kept else pane_starts(touched)
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.intp)  # two runs: quick
        columns = joined(taken(self.columns, np.array(kept, dtype=np.intp)), changed)
        return Panes([keys[i] for i in order.tolist()], starts[order], taken(columns, order))

    def within(self, spans: dict[bytes, list[Span]]) -> Panes:
        """Those of some keys, within spans of time for each."""
        held = [
            any(start <= at < end for start, end in spans.get(key[HEAD:], ()))
            for key, at in zip(self.keys, self.starts.tolist(), strict=True)
        ]
        some = np.flatnonzero(held)
        return Panes([self.keys[i] for i in some.tolist()], self.starts[some], taken(self.columns, some))

    def before(self, moment: int) -> list[bytes]:
        """The entries of panes that nothing needs any more."""
        return self.keys[: int(np.searchsorted(self.starts, moment))]

    def first_after(self, moment: int) -> int | None:
        """The first pane that is still needed."""
        at = int(np.searchsorted(self.starts, moment))
        return int(self.starts[at]) if at < len(self.starts) else None

    def rank(self) -> None:
        """Number the keys, in their order."""
        keys = [key[HEAD:] for key in self.keys]
        known = {key: i for i, key in enumerate(sorted(set(keys)))}
        self.ranks = np.array([known[key] for key in keys], dtype=np.int64)

    def windows(
        self, merger: Merger, lows: Times, highs: Times, wanted: npt.NDArray[np.bool_] | None
    ) -> tuple[list[bytes], Times, Columns] | None:
        """Merge panes `lows` to `highs` key by key: keys, numbers of windows, results; only where one is wanted."""
        if len(lows) > 1 and highs[0] > lows[-1]:
            shared, wanted = self._with_shared(merger, int(lows[-1]), int(highs[0]), wanted)
            whole = np.arange(len(self.keys), len(shared.keys))
            parts = [
                np.concatenate([np.arange(low, lows[-1]), whole, np.arange(highs[0], high)])
                for low, high in zip(lows, highs, strict=True)
            ]
        else:
            shared, parts = self, [np.arange(low, high) for low, high in zip(lows, highs, strict=True)]
        items, number = np.concatenate(parts), np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        order = np.lexsort((shared.ranks[items], number))  # panes of a key stay in the order of time
        items, number = items[order], number[order]
        starts = _starts(shared.ranks[items], number)
        if wanted is not None and len(items):
            kept = np.logical_or.reduceat(wanted[items], starts)
            within = np.repeat(kept, np.diff(starts, append=len(items)))
            items, number = items[within], number[within]
            starts = _starts(shared.ranks[items], number)
        if not len(items):
            return None
        keys = [shared.keys[i] for i in items[starts].tolist()]
        return keys, number[starts], merger.folded(shared.columns, items, starts)

    def _with_shared(
        self, merger: Merger, low: int, high: int, wanted: npt.NDArray[np.bool_] | None
    ) -> tuple[Panes, npt.NDArray[np.bool_] | None]:
        """Put what some panes are together, key by key, behind all panes."""
        items = low + np.argsort(self.ranks[low:high], kind="stable")
        starts = _starts(self.ranks[items])
        first = items[starts]
        found = Panes(
            self.keys + [self.keys[i] for i in first.tolist()],
            np.concatenate([self.starts, self.starts[first]]),
            joined(self.columns, merger.folded(self.columns, items, starts)),
            np.concatenate([self.ranks, self.ranks[first]]),
        )
        if wanted is not None:
            wanted = np.concatenate([wanted, np.logical_or.reduceat(wanted[items], starts)])
        return found, wanted


def _starts(*columns: Times) -> Times:
    """Where rows begin that differ from the one before."""
    new = np.zeros(len(columns[0]), dtype=bool)
    new[:1] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)


def pane_starts(keys: list[bytes]) -> Times:
    """When panes begin."""
    if len({len(key) for key in keys}) == 1:
        matrix = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), -1)
        heads = np.ascontiguousarray(matrix[:, len(TAG) + 1 : HEAD]).view(">u8").ravel()
    else:
        heads = np.frombuffer(b"".join([key[len(TAG) + 1 : HEAD] for key in keys]), ">u8")
    return (heads.astype(np.uint64) ^ np.uint64(_SIGN)).view(np.int64)


def first_pane(work: Work, group: int, touched: list[bytes]) -> int | None:
    """The first pane of a group, where its rows have only been added."""
    with work.cache.view(group).reader() as reader:
        stored = next(iter(reader.scan(TAG, AFTER_ALL)), None)
    keys = [key for key in (stored[0] if stored is not None else None, min(touched, default=None)) if key is not None]
    return int(pane_starts(keys).min()) if keys else None
