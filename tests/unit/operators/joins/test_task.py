"""Joins against nested loops over all rows; kind, outer sides, epochs and disorder are random."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from midstream.operators.joins.rules import UnboundedJoin
from tests.support.join_slot import TYPES, Row, bounded, cut, run_join, stream


def nested_loops(rows: list[Row], how: str, related: Callable[[int, int], bool]) -> Counter[Any]:
    """What the join is, by its definition."""
    lefts, rights = ([row for row in rows if row[0] == side] for side in ("left", "right"))

    def match(left: Row, right: Row) -> bool:
        if left[1] is None or left[1] != right[1] or left[2] is None or right[2] is None:
            return False
        return related(left[2], right[2])

    if how in ("semi", "anti"):
        has_match = [any(match(left, right) for right in rights) for left in lefts]
        return Counter((left[1], left[3]) for left, has in zip(lefts, has_match, strict=True) if has == (how == "semi"))
    found = Counter((left[1], left[3], right[3]) for left in lefts for right in rights if match(left, right))
    if how in ("left", "full"):
        found.update((left[1], left[3], None) for left in lefts if not any(match(left, right) for right in rights))
    if how in ("right", "full"):
        found.update((right[1], None, right[3]) for right in rights if not any(match(left, right) for left in lefts))
    return found


def within(lower: int, upper: int) -> Callable[[int, int], bool]:
    return lambda left, right: lower <= right - left <= upper


def one_window(size: int) -> Callable[[int, int], bool]:
    return lambda left, right: left // size == right // size


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_an_interval_join_is_what_nested_loops_give(how: str) -> None:
    for seed in range(80):
        draw = Random(seed)
        rows, lower = stream(draw), draw.randrange(-8, 9)
        upper = lower + draw.randrange(10)
        runner, found = run_join(bounded(how, lower=lower, upper=upper), cut(rows, draw))
        assert found == nested_loops(rows, how, within(lower, upper)), seed
        assert runner.entries() == 0, "at the end of the input nothing is kept"


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_a_window_join_is_what_nested_loops_give(how: str) -> None:
    for seed in range(80):
        draw = Random(seed)
        rows, size = stream(draw), draw.randrange(1, 12)
        runner, found = run_join(bounded(how, size=size), cut(rows, draw))
        assert found == nested_loops(rows, how, one_window(size)), seed
        assert runner.entries() == 0, "at the end of the input nothing is kept"


def test_an_unbounded_join_gives_every_pair_once() -> None:
    for seed in range(80):
        draw = Random(seed)
        rows = [(side, key, 0, number) for side, key, _, number in stream(draw)]
        _, found = run_join(UnboundedJoin(widths=(1, 1), types=TYPES, ttl=0), cut(rows, draw))
        assert found == nested_loops(rows, "inner", lambda left, right: True), seed
