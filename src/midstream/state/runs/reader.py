"""The state of a group as its runs have it together: of each key what the newest run says."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from midstream.state.keys import Bytes
from midstream.state.runs.keys import MISSING, Flags, Wanted
from midstream.state.runs.part import Part
from midstream.state.runs.values import Array, NumberValues
from midstream.state.stores.contract import Reader

_FEW = 4  # keys that are looked up one by one
_FIRST = 64  # entries of a run that a scan reads first, and four times as many each time after


class RunsReader(Reader):
    """A view of the runs of a group; runs never change, so it lasts."""

    def __init__(self, parts: Sequence[Part]) -> None:
        """Read from what runs have of a group, the newest first."""
        self._parts = parts

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:  # noqa: D102 - as in the contract
        if len(keys) <= _FEW:
            return [self._get(key) for key in keys]
        found: list[bytes | None] = [None] * len(keys)
        for part, at, places in self._hits(Wanted(keys)):
            for i, value in zip(at.tolist(), part.values.take(places).to_list(), strict=True):
                found[i] = value
        return found

    def get_numbers(self, keys: Bytes, numbers: np.dtype[Any]) -> tuple[list[Array], Flags]:  # noqa: D102
        columns: list[Array] = [np.zeros(len(keys), numbers[name]) for name in numbers.names or ()]
        known = np.zeros(len(keys), bool)
        for part, at, places in self._hits(Wanted(keys)):
            values = part.values.take(places)
            if not (isinstance(values, NumberValues) and values.dtype == numbers):
                blank = bytes(numbers.itemsize)
                rows = b"".join(value or blank for value in values.to_list())
                records = np.frombuffer(rows, np.uint8).reshape(-1, numbers.itemsize)
                values = replace(NumberValues.of_rows(numbers, records), gone=values.gone)
            if values.gone is None:
                known[at] = True
                for column, of_run in zip(columns, values.columns, strict=True):
                    column[at] = of_run
            else:
                there = values.gone == 0
                known[at[there]] = True
                for column, of_run in zip(columns, values.columns, strict=True):
                    column[at[there]] = of_run[there]
        return columns, known

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:  # noqa: D102
        spans = [(part.keys.first_from(start), part.keys.first_from(stop)) for part in self._parts]
        size = _FIRST
        while any(at < end for at, end in spans):
            pieces = [
                (part, at, min(at + size, end)) for part, (at, end) in zip(self._parts, spans, strict=True) if at < end
            ]
            keys = [part.keys.to_list(at, until) for part, at, until in pieces]
            whole = [part.keys.first_from(stop) == until for part, _, until in pieces]
            last = min((k[-1] for k, all_read in zip(keys, whole, strict=True) if not all_read), default=None)
            entries: dict[bytes, bytes | None] = {}
            taken: dict[int, int] = {}
            for (part, at, _), its in reversed(list(zip(pieces, keys, strict=True))):
                count = len(its) if last is None else _up_to(its, last)
                values = part.values.take(np.arange(at, at + count)).to_list()
                entries.update(zip(its[:count], values, strict=True))
                taken[id(part)] = at + count
            spans = [(taken.get(id(part), at), end) for part, (at, end) in zip(self._parts, spans, strict=True)]
            for key in sorted(entries):
                value = entries[key]
                if value is not None:
                    yield key, value
            size *= 4

    def _get(self, key: bytes) -> bytes | None:
        for part in self._parts:
            at = part.keys.place_of(key)
            if at != MISSING:
                return part.values.take(np.array([at])).to_list()[0]
        return None

    def _hits(self, wanted: Wanted) -> Iterator[tuple[Part, Array, Array]]:
        """Each run with the keys that it is the newest to have: their places in the question, and in the run."""
        is_open: Flags | None = None
        for part in self._parts:
            places = part.keys.find(wanted)
            found = places != MISSING
            hits = np.flatnonzero(found if is_open is None else found & is_open)
            if len(hits):
                is_open = ~found if is_open is None else is_open & ~found
                yield part, hits, places[hits]
                if not is_open.any():
                    return


def _up_to(keys: list[bytes], last: bytes) -> int:
    """Count the keys, which are in order, up to one and including it."""
    return bisect_right(keys, last)
