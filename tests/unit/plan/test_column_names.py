"""Names of columns are compared as Spark does: upper and lower case are one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import PlanError
from midstream.plan.column_names import clash, refuse_taken, repeated

NAMES = st.lists(st.sampled_from(["a", "A", "b", "B", "aa", "_epoch", "_Epoch", "größe", "GRÖSSE", "GRÖẞE"]))


@given(NAMES, NAMES)
def test_the_first_name_that_is_taken_is_found(names: list[str], taken: list[str]):
    expected = [name for name in names if any(name.lower() == other.lower() for other in taken)]
    assert clash(names, taken) == (expected[0] if expected else None)


@given(NAMES)
def test_the_first_name_that_another_one_has_is_found(names: list[str]):
    expected = [name for at, name in enumerate(names) if any(name.lower() == before.lower() for before in names[:at])]
    assert repeated(names) == (expected[0] if expected else None)


def test_names_may_be_given_once_only():
    assert clash(iter(["x", "N"]), iter(["n"])) == "N"
    assert repeated(iter(["n", "x", "N"])) == "N"


def test_a_column_that_is_taken_is_refused_with_its_operator():
    refuse_taken("sums", ["total", "epochs"], ["_epoch", "epoch"])
    with pytest.raises(PlanError, match="operator 'sums': the column name 'Epoch' is taken by Midstream; rename it"):
        refuse_taken("sums", ["total", "Epoch"], ["_epoch", "epoch"])
