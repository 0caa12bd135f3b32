"""Joins as written: what is refused before a column is looked at; the rest is in `tests/spark/test_joins.py`."""

from __future__ import annotations

import re
from typing import Any

import pytest

import midstream as ms
from midstream.errors import PlanError
from midstream.flow.joins import Between, JoinInput, between, join
from midstream.plan import plan as p

PLAN = p.Plan(name="given", operators=(p.Source(id="a", schema="n long"), p.Source(id="b", schema="n long")))


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        ("0 s", "1 hour", (0, 3_600_000_000)),
        ("-5 minutes", "-1 minute", (-300_000_000, -60_000_000)),
        (-1.5, 2, (-1_500_000, 2_000_000)),
        (0, 0, (0, 0)),
    ],
)
def test_bounds_are_durations_of_either_sign(lower: Any, upper: Any, expected: tuple[int, int]):
    assert between(lower, upper) == Between(*expected)


def test_an_empty_interval_is_refused():
    with pytest.raises(PlanError, match=re.escape("between('1 s', '0 s') is empty: the lower bound comes first")):
        between("1 s", "0 s")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"how": "outer"}, "join 'j': how is one of inner, left, right, full, semi, anti, not 'outer'"),
        ({"within": "1 hour"}, "join 'j': within is ms.between(lower, upper) or ms.tumbling(size), not '1 hour'"),
        ({"within": ms.sliding(10, 5)}, "join 'j': within is ms.between(lower, upper) or ms.tumbling(size), not"),
        ({"within": ms.session(10)}, "join 'j': within is ms.between(lower, upper) or ms.tumbling(size), not"),
        ({"how": "left"}, "join 'j': without within= nothing proves that a row has no match"),
        ({"how": "anti"}, "bound the anti join with ms.between(...) or ms.tumbling(...)"),
        ({"within": between(0, 1), "ttl": 5}, "join 'j': ttl= is for joins without within="),
        ({"ttl": 0}, "join 'j': ttl= must be longer than 0"),
        ({"id": "a"}, "the id 'a' is used twice in flow 'given'"),
    ],
)
def test_what_cannot_be_joined_is_refused_before_a_session_is_needed(given: dict[str, Any], complaint: str):
    options: dict[str, Any] = {"id": "j", "how": "inner", "within": None, "ttl": None, "slots": 0, **given}
    with pytest.raises(PlanError, match=re.escape(complaint)):
        join(None, PLAN, JoinInput("a", ("n",)), JoinInput("b", ("n",)), partition_by="", **options)  # type: ignore[arg-type]
