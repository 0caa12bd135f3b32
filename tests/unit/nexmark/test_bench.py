"""The comparison of Nexmark with plain Spark: how many events a run has, and how much faster it was."""

from __future__ import annotations

import pytest

from midstream.nexmark.bench import PER_EPOCH, Load, QueryRates
from midstream.nexmark.queries import QUERIES


@pytest.mark.parametrize("query", QUERIES)
def test_a_load_is_nine_epochs_of_a_second_unless_it_is_said(query: str):
    assert Load.of(query, 0, 0).events == 9 * PER_EPOCH[query]
    assert Load.of(query, 0, 0).per_epoch == PER_EPOCH[query]
    assert (Load.of(query, 100, 7).events, Load.of(query, 100, 7).per_epoch) == (100, 7)
    assert Load.of(query, 0, 7).events == 63
    assert set(Load.of(query, 0, 0).tables) <= {"person", "auction", "bid"}


def test_a_load_reads_the_streams_of_its_query():
    assert Load.of("q0", 0, 0).tables == ("bid",)
    assert set(Load.of("q3", 0, 0).tables) == {"person", "auction"}


@pytest.mark.parametrize(
    ("ours", "plain", "ratios", "ratio"),
    [
        ([1.0, 4.0, 9.0], [2.0, 2.0, 3.0], [0.5, 2.0, 3.0], 2.0),
        ([1.0, 4.0], [2.0], [0.5], 0.5),
        ([1.0], None, [], None),
    ],
)
def test_rounds_are_compared_one_by_one_and_the_median_counts(
    ours: list[float], plain: list[float] | None, ratios: list[float], ratio: float | None
):
    rates = {"midstream": ours} | ({"plain": plain} if plain is not None else {})
    measured = QueryRates("q0", rates)
    assert (measured.ratios, measured.ratio) == (ratios, ratio)
