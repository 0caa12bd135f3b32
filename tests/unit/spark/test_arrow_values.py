"""What functions get of times: UTC, whatever the session's zone, and the ends of Python's calendar beyond it."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from midstream.spark.arrow_values import python_values

UTC = timezone.utc
TIME = pa.timestamp("us", "America/New_York")
FAR = 1 << 61
LAST, FIRST = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)


def test_the_day_on_which_clocks_are_put_forward_has_24_hours() -> None:
    noon = datetime(2026, 3, 7, 17, tzinfo=UTC)
    before, after = python_values(pa.array([noon, noon + timedelta(days=1)], TIME))
    assert (before, after - before) == (noon, timedelta(days=1))
    assert (before.utcoffset(), after.hour) == (timedelta(0), before.hour)
    assert (before + timedelta(days=1)) == after, "over the change of summer time too"


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([0, FAR, None, -FAR], TIME), [datetime(1970, 1, 1, tzinfo=UTC), LAST, None, FIRST]),
        (pa.array([FAR, -FAR], pa.timestamp("us")), [datetime.max, datetime.min]),
        (pa.array([10**8, None, -(10**8)], pa.date32()), [date.max, None, date.min]),
        (pa.array([[0, FAR], None, []], pa.list_(TIME)), [[datetime(1970, 1, 1, tzinfo=UTC), LAST], None, []]),
        (pa.array([None, [FAR]], pa.list_(TIME))[1:], [[LAST]]),
        (pa.array([{"a": FAR}, None], pa.struct([("a", TIME)])), [{"a": LAST}, None]),
        (pa.array([None, {"a": FAR}], pa.struct([("a", TIME)]))[1:], [{"a": LAST}]),
        (pa.array([[(1, FAR)], None], pa.map_(pa.int32(), TIME)), [[(1, LAST)], None]),
        (pa.array(["x", None]), ["x", None]),
    ],
)
def test_years_that_python_lacks_are_put_to_the_ends(column: pa.Array, expected: list[Any]) -> None:
    assert python_values(column) == expected
