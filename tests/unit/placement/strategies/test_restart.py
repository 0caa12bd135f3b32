"""All groups flip at once, after every place has given up all it had."""

from __future__ import annotations

import pytest

from midstream.placement.strategies import named, restart
from midstream.placement.strategies.contract import Moving, Step


@pytest.mark.parametrize("ready", [frozenset(), frozenset({1})])
def test_everything_flips_whether_it_is_ready_or_not(ready: frozenset[int]) -> None:
    assert restart().step(Moving((3, 1), ready)) == Step(flip=frozenset({1, 3}))


def test_what_becomes_of_copies() -> None:
    strategy = named("restart")
    assert strategy == restart()
    assert (strategy.copies_first, strategy.starts_afresh) == (True, True)
