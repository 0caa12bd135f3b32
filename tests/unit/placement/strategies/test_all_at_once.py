"""All groups flip at once, and are copied before a row is processed."""

from __future__ import annotations

import pytest

from midstream.placement.strategies import all_at_once, named
from midstream.placement.strategies.contract import Moving, Step


@pytest.mark.parametrize("ready", [frozenset(), frozenset({1})])
def test_everything_flips_whether_it_is_ready_or_not(ready: frozenset[int]) -> None:
    assert all_at_once().step(Moving((3, 1), ready)) == Step(flip=frozenset({1, 3}))


def test_what_becomes_of_copies() -> None:
    strategy = named("all_at_once")
    assert strategy == all_at_once()
    assert (strategy.copies_first, strategy.starts_afresh) == (True, False)
