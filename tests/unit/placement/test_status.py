"""How long a move will take, as far as it can be said."""

from __future__ import annotations

import pytest

from midstream.placement.status import MoveStatus


@pytest.mark.parametrize(
    ("groups", "waiting", "seconds", "expected"),
    [(10, 10, 5.0, None), (10, 5, 6.0, 6.0), (10, 8, 2.0, 8.0), (10, 0, 9.0, 0.0), (0, 0, 1.0, None)],
    ids=["nothing has moved", "half", "a fifth", "all", "there was nothing"],
)
def test_what_waits_takes_as_long_as_what_has_moved(groups: int, waiting: int, seconds: float, expected: float | None):
    assert MoveStatus("sums", "Live", groups, waiting, 0, 0, seconds).seconds_to_go == expected
