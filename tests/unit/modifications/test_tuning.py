"""How a job runs is changed number by number, and what it computes is not."""

from __future__ import annotations

import re
from typing import Any

import pytest

from midstream.errors import PlanError
from midstream.modifications.tuning import tune
from midstream.plan import plan as p

PLAN = p.Plan(
    name="flow", operators=(p.Source(id="s", schema="n long"),), version=3, tuning=p.Tuning(standbys=1, prefetch_time=9)
)


def test_what_is_named_changes_and_the_rest_stays():
    change = tune(rows_per_arrow_batch=10, epoch_interval="2 s")
    assert (change.what, change.wish) == ("tune rows_per_arrow_batch, epoch_interval", None)
    after = change.apply(PLAN)
    assert after.tuning == p.Tuning(rows_per_arrow_batch=10, epoch_interval=2_000_000, standbys=1, prefetch_time=9)
    assert (after.operators, after.name, after.version) == (PLAN.operators, PLAN.name, PLAN.version)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_rows_per_epoch": 1}, 1),
        ({"prefetch_budget": 0}, 0),
        ({"prefetch_time": "50 ms"}, 50_000),
        ({"epoch_interval": 0}, 0),
        ({"standbys": 0}, 0),
    ],
)
def test_a_number_may_be_as_small_as_it_makes_sense(given: dict[str, Any], expected: int):
    ((name, _),) = given.items()
    assert getattr(tune(**given).apply(PLAN).tuning, name) == expected


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "tune needs at least one of rows_per_arrow_batch, max_rows_per_epoch, epoch_interval, prefetch_budget"),
        ({"rows_per_arrow_batch": 0}, "tune: rows_per_arrow_batch must be 1 or more, not 0"),
        ({"max_rows_per_epoch": 0}, "tune: max_rows_per_epoch must be 1 or more, not 0"),
        ({"standbys": -1}, "tune: standbys must be 0 or more, not -1"),
        ({"prefetch_budget": -1}, "tune: prefetch_budget must be 0 or more, not -1"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(given: dict[str, Any], complaint: str):
    with pytest.raises(PlanError, match=re.escape(complaint)):
        tune(**given)
