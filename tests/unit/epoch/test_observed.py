"""What committed epochs have shown: rows to try code on, how keys repeat, how large groups are."""

from __future__ import annotations

from typing import Any

from midstream.checkpoint.records import Report
from midstream.epoch.briefing import Density
from midstream.epoch.observed import Observed


def report(rows: int, keys: int, **sizes: tuple[int, int]) -> Report:
    return Report(operator="sums", slot=0, rows=rows, keys=keys, sizes={int(g[1:]): size for g, size in sizes.items()})


def after(*epochs: list[Report]) -> Observed:
    observed, rows = Observed(), list[Any](range(len(epochs)))
    for number, reports in enumerate(epochs):
        observed.after(rows[number], {"sums": reports} if reports else {})
    return observed


def test_nothing_is_known_of_an_operator_that_has_not_run() -> None:
    assert Observed().density("sums") == Density()
    assert Observed().rows == []


def test_the_rows_of_the_last_four_epochs_are_kept_newest_first() -> None:
    assert after([], [], [], [], [], []).rows == [5, 4, 3, 2]


def test_density_is_over_all_slots_and_knows_the_slot_with_fewest_rows() -> None:
    assert after([report(300, 30), report(100, 70)]).density("sums") == Density(0.25, 100)


def test_an_epoch_without_rows_does_not_change_how_keys_repeat() -> None:
    assert after([report(10, 5)], [report(0, 0)]).density("sums") == Density(0.5, 0)


def test_sizes_of_groups_stay_until_they_are_reported_again() -> None:
    observed = after([report(1, 1, g0=(1, 10), g1=(2, 20))], [report(1, 1, g1=(3, 30))])
    assert observed.sizes == {"sums": {0: (1, 10), 1: (3, 30)}}
