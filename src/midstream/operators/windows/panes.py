"""The panes of a group: read in the order of time, merged into windows, deleted once unneeded.

A pane of a key is an entry like that of any declared aggregate, its start before the key: a window's panes lie side by
side in the store of their group, and closing a window is one scan.

Where a row ends the windows of its key that it lies in, panes near it still count in others, but no longer in those:

    pane      |--x--|            windows over x and the row are over; those that end before the row are not,
    row                  p       and rows that come to x from now on count in all

What such a pane holds becomes a *part* of it, an entry of its own, with the two moments between which its windows lie.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from midstream.operators.aggregates.merge import Columns, Merger, joined, taken
from midstream.operators.aggregates.task import TAG
from midstream.operators.task import Work
from midstream.plan.window_regimes import FOR_EVER, Regime
from midstream.plan.windows import LONG_AGO
from midstream.state.entries import PART, after, deadline_bytes, part_entry, split_part_entry

_PART = bytes((PART,))
_HEAD = len(TAG) + 9  # of an entry: the tag, and the start of the pane
_SIGN = 1 << 63

Times = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Panes:
    """Panes of a group, in the order of time; parts of a pane before the rest of it, older ones first."""

    keys: list[bytes]  # the entries of panes; of a part, that of its pane
    starts: Times
    columns: Columns
    entries: list[bytes]  # as they are stored: the keys, except for parts
    bounds: tuple[Times, Times] | None = None  # if there are parts: windows start after, and end until
    ranks: Times = field(default_factory=lambda: np.zeros(0, np.int64))  # the number of each one's key
    parted: Flags = field(default_factory=lambda: np.zeros(0, bool))  # whether there are parts of its key

    @classmethod
    def stored(cls, work: Work, merger: Merger, group: int, low: int) -> Panes:
        """Read the panes from a moment on."""
        start = b"\1" + deadline_bytes(low)
        with work.cache.view(group).reader() as reader:
            whole = list(reader.scan(TAG + start, after(TAG)))
            parts = list(reader.scan(_PART + start, after(_PART)))
        keys = [key for key, _ in whole]
        found = cls(keys, pane_starts(keys), merger.decode([value for _, value in whole])[0], keys)
        return found._with_parts(merger, parts) if parts else found

    def _with_parts(self, merger: Merger, parts: list[tuple[bytes, bytes]]) -> Panes:
        entries = [entry for entry, _ in parts] + self.entries
        split = [split_part_entry(entry) for entry, _ in parts]
        keys = [TAG + key for key, _, _ in split] + self.keys
        bounds = [(-begin, end) for _, begin, end in split] + [(-LONG_AGO, FOR_EVER)] * len(self.keys)
        order = sorted(range(len(keys)), key=lambda i: (keys[i], bounds[i]))  # an older part lies within a newer one
        columns = joined(merger.decode([value for _, value in parts])[0], self.columns)
        begins, ends = np.array([bounds[i] for i in order], dtype=np.int64).T
        keys = [keys[i] for i in order]
        return Panes(
            keys, pane_starts(keys), taken(columns, np.array(order)), [entries[i] for i in order], (-begins, ends)
        )

    def updated(self, touched: list[bytes], changed: Columns) -> Panes:
        """The same with panes that are new or have changed."""
        if not touched:
            return self
        now = set(touched)
        kept = np.array([i for i, entry in enumerate(self.entries) if entry not in now], dtype=np.intp)
        old = self.take(kept)
        keys = old.keys + touched
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.intp)  # two runs: fast
        new = Panes(touched, pane_starts(touched), changed, touched)
        return old.followed_by(new).take(order)

    def take(self, at: npt.NDArray[np.intp]) -> Panes:
        """Some of them."""
        keys = [self.keys[i] for i in at.tolist()]
        entries = keys if self.bounds is None else [self.entries[i] for i in at.tolist()]
        bounds = None if self.bounds is None else (self.bounds[0][at], self.bounds[1][at])
        return Panes(keys, self.starts[at], taken(self.columns, at), entries, bounds)

    def followed_by(self, whole: Panes) -> Panes:
        """The same with others appended, which are not parts."""
        bounds = None
        if self.bounds is not None:
            begins, ends = (
                np.concatenate([bound, np.full(len(whole.keys), limit)])
                for bound, limit in zip(self.bounds, (LONG_AGO, FOR_EVER), strict=True)
            )
            bounds = begins, ends
        keys = self.keys + whole.keys
        entries = keys if bounds is None else self.entries + whole.entries
        return Panes(
            keys, np.concatenate([self.starts, whole.starts]), joined(self.columns, whole.columns), entries, bounds
        )

    def of_same_keys(self, some: set[bytes]) -> Panes:
        """All panes of the keys of some panes."""
        keys = {key[_HEAD:] for key in some}
        return self.take(np.flatnonzero([key[_HEAD:] in keys for key in self.keys]))

    def without_windows(
        self, over: set[bytes], merger: Merger, regimes: Sequence[Regime], passed: int
    ) -> dict[bytes, bytes | None]:
        """What to store, or to drop, so that windows over some panes are empty for the keys of these.

        Args:
            over: the panes, whose keys are those of all panes here.
            merger: for what panes hold.
            regimes: which windows there are.
            passed: windows that end by then take no more rows.
        """
        marks = defaultdict[bytes, list[int]](list)
        for key, start in zip(sorted(over), pane_starts(sorted(over)).tolist(), strict=True):
            marks[key[_HEAD:]].append(start)
        left = defaultdict[bytes, list[int]](list)  # entries that stay or are new -> what they hold
        for i, (key, start) in enumerate(zip(self.keys, self.starts.tolist(), strict=True)):
            begin, end = (LONG_AGO, FOR_EVER) if self.bounds is None else (int(b[i]) for b in self.bounds)
            near = marks[key[_HEAD:]]
            at = bisect_right(near, start)
            if at > 0 and any(regime.has_window(near[at - 1], start) for regime in regimes):
                begin = max(begin, near[at - 1])
            if at < len(near) and any(regime.has_window(start, near[at]) for regime in regimes):
                end = min(end, near[at])
            if any(regime.has_window(start, max(start, passed), begin, end) for regime in regimes):
                is_whole = begin == LONG_AGO and end == FOR_EVER
                left[key if is_whole else part_entry(key[len(TAG) :], begin, end)].append(i)
        changes: dict[bytes, bytes | None] = dict.fromkeys(self.entries)
        new = {entry: items for entry, items in left.items() if [self.entries[i] for i in items] != [entry]}
        for entry in left.keys() - new.keys():
            del changes[entry]
        if new:
            order = np.array([i for items in new.values() for i in items])
            starts = np.cumsum([0, *(len(items) for items in new.values())])[:-1]
            changes |= zip(new, merger.encode(merger.folded(self.columns, order, starts)), strict=True)
        return changes

    def before(self, moment: int) -> list[bytes]:
        """The entries of panes that nothing needs any more."""
        return self.entries[: int(np.searchsorted(self.starts, moment))]

    def first_after(self, moment: int) -> int | None:
        """The first pane that is still needed."""
        at = int(np.searchsorted(self.starts, moment))
        return int(self.starts[at]) if at < len(self.starts) else None

    def rank(self) -> None:
        """Number the keys, in their order."""
        keys = [key[_HEAD:] for key in self.keys]
        known = {key: i for i, key in enumerate(sorted(set(keys)))}
        self.ranks = np.array([known[key] for key in keys], dtype=np.int64)
        self.parted = np.zeros(len(keys), bool)
        if self.bounds is not None:
            self.parted = np.isin(self.ranks, self.ranks[(self.bounds[0] > LONG_AGO) | (self.bounds[1] < FOR_EVER)])

    def windows(
        self, merger: Merger, begins: Times, ends: Times, wanted: Flags | None
    ) -> tuple[list[bytes], Times, Columns] | None:
        """Merge the panes of windows key by key: keys, numbers of windows, results; only where a pane is wanted."""
        lows, highs = np.searchsorted(self.starts, begins), np.searchsorted(self.starts, ends)
        if len(lows) > 1 and highs[0] > lows[-1]:
            middle = np.arange(lows[-1], highs[0])
            is_parted = self.parted[middle]  # not all windows share these, and a key's panes stay in their order
            shared, wanted = self._with_shared(merger, middle[~is_parted], wanted)
            whole = np.concatenate([np.arange(len(self.keys), len(shared.keys)), middle[is_parted]])
            lists = [
                np.concatenate([np.arange(low, lows[-1]), whole, np.arange(highs[0], high)])
                for low, high in zip(lows, highs, strict=True)
            ]
        else:
            shared, lists = self, [np.arange(low, high) for low, high in zip(lows, highs, strict=True)]
        items, number = np.concatenate(lists), np.repeat(np.arange(len(lists)), [len(some) for some in lists])
        if shared.bounds is not None:
            counts = (shared.bounds[0][items] < begins[number]) & (shared.bounds[1][items] >= ends[number])
            items, number = items[counts], number[counts]
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
        self, merger: Merger, some: npt.NDArray[np.intp], wanted: Flags | None
    ) -> tuple[Panes, Flags | None]:
        """Merge some panes key by key, and append the results to all panes."""
        if not len(some):
            return self, wanted
        items = some[np.argsort(self.ranks[some], kind="stable")]
        starts = _starts(self.ranks[items])
        first = items[starts]
        keys = [self.keys[i] for i in first.tolist()]
        found = self.followed_by(Panes(keys, self.starts[first], merger.folded(self.columns, items, starts), keys))
        found.ranks = np.concatenate([self.ranks, self.ranks[first]])
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
        heads = np.ascontiguousarray(matrix[:, len(TAG) + 1 : _HEAD]).view(">u8").ravel()
    else:
        heads = np.frombuffer(b"".join([key[len(TAG) + 1 : _HEAD] for key in keys]), ">u8")
    return (heads.astype(np.uint64) ^ np.uint64(_SIGN)).view(np.int64)


def first_pane(work: Work, group: int, touched: list[bytes]) -> int | None:
    """The first pane of a group, where its rows have only been added."""
    with work.cache.view(group).reader() as reader:
        stored = [next(iter(reader.scan(tag, after(tag))), None) for tag in (TAG, _PART)]
    keys = [*(one[0] for one in stored if one is not None), *([min(touched)] if touched else ())]
    return int(pane_starts(keys).min()) if keys else None
