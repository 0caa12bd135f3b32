"""Copying of state beside the work of a slot: in the order given, within its budget."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from random import SystemRandom
from typing import Protocol

from midstream.state.budget import Budget
from midstream.state.cache import Cache

_PAGE = 4096  # what is read of a file at least
_PROBES = 8  # pages that are read to see how fast a store is
_random = SystemRandom()  # what a user's code makes of `random` stays as it is


class Copied(Protocol):
    """Groups that may have to be copied before they are here."""

    budget: Budget

    def is_whole(self, group: int) -> bool:
        """Whether all of a group is here."""
        ...

    def lacks_logs_only(self, group: int) -> bool:
        """Whether a group is here but for its last changes."""
        ...

    def bring_whole(self, group: int) -> None:
        """Copy a group."""
        ...


def complete(cache: Copied, groups: Iterable[int]) -> int:
    """Copy groups that are not here, or only read in place, until the budget is spent; return how many are left."""
    left = 0
    for group in groups:
        if not cache.is_whole(group):
            if cache.budget.is_spent:
                left += 1
                continue
            with cache.budget.bringing():
                cache.bring_whole(group)
    return left


def fetch(cache: Copied, groups: Iterable[int]) -> list[int]:
    """Bring groups until the budget is spent; return those that are here.

    One that is here already costs nothing of it: it only follows along.
    """
    fetched = []
    for group in groups:
        if cache.budget.is_spent and not cache.lacks_logs_only(group):
            continue
        with cache.budget.bringing():
            cache.bring_whole(group)
        fetched.append(group)
    return fetched


def seconds_to_look_up(cache: Cache, keys: Mapping[int, int], patience: float) -> float:
    """Say how long it would take to look keys up in snapshots where they lie, from a few pages that are read now.

    A mounted store may be the disk of this host or one that is far away, and a page may be in memory already: it is
    measured, not known. Promised: no more than eight pages are read, and none after `patience` seconds.

    Args:
        cache: that reads there.
        keys: group -> how many are looked up, each in a page of its own as long as there are enough. Of a snapshot that
            was not opened here before, every page is read: it is verified before its first use.
        patience: seconds.
    """
    files = {group: path for group in keys if (path := cache.stored(group)) is not None and os.path.exists(path)}
    wanted = 0
    for group, path in files.items():
        pages = os.path.getsize(path) // _PAGE
        is_here = cache.copies.is_here(group)  # else it is verified first, as a whole
        wanted += min(max(keys[group], 1), pages) if is_here else pages
    begun, read = time.perf_counter(), 0
    while files and read < _PROBES and time.perf_counter() - begun <= patience:
        path = _random.choice(list(files.values()))
        with open(path, "rb", buffering=0) as file, cache.snapshots.throttle.reading() as reading:
            pages = os.fstat(file.fileno()).st_size // _PAGE
            file.seek(_random.randrange(max(pages, 1)) * _PAGE)
            reading.bytes += len(file.read(_PAGE))
        read += 1
    return wanted * (time.perf_counter() - begun) / max(read, 1)
