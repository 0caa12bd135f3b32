"""Tops as written: what is refused before a column is looked at; see `tests/spark/operators/test_resolve.py` too."""

from __future__ import annotations

import re
from typing import Any

import pytest

import midstream as ms
from midstream.errors import PlanError
from midstream.flow.tops import Ranked, top
from midstream.plan import plan as p

PLAN = p.Plan(name="given", operators=(p.Source(id="a", schema="n long"),))


@pytest.mark.parametrize(
    ("n", "window", "complaint"),
    [
        (0, ms.tumbling(1), "top 'best' needs a whole number of rows, 1 or more, not 0"),
        (-1, ms.tumbling(1), "top 'best' needs a whole number of rows, 1 or more, not -1"),
        (1.5, ms.tumbling(1), "top 'best' needs a whole number of rows, 1 or more, not 1.5"),
        ("3", None, "top 'best' needs a whole number of rows, 1 or more, not '3'"),
        (3, ms.session(1), "top 'best' needs ms.tumbling(...) or ms.sliding(...); the rows of other"),
        (3, ms.count_window(9), "top 'best' needs ms.tumbling(...) or ms.sliding(...)"),
    ],
)
def test_what_cannot_be_ranked_is_refused_before_a_session_is_needed(n: Any, window: Any, complaint: str):
    with pytest.raises(PlanError, match=re.escape(complaint)):
        top(None, PLAN, Ranked("a", window=window), id="best", n=n, by="n", ties=True, slots=0)  # type: ignore[arg-type]
