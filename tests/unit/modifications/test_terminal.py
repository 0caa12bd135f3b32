"""A modification on the terminal: its phase until the end, and a bar for every operator that moves."""

from __future__ import annotations

import pytest

from midstream.modifications.terminal import described, watched
from midstream.placement.status import MoveStatus


def move(waiting: int, seconds: float = 2.0, differing: int = 0) -> MoveStatus:
    return MoveStatus("sums", "Live", 10, waiting, 1_500_000_000, 2_000_000, seconds, differing)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (move(10), "0 of 10 groups, 1,500 MB copied, 2 MB to go"),
        (move(5), "5 of 10 groups, 1,500 MB copied, 2 MB to go, about 2 s"),
        (move(0), "10 of 10 groups, 1,500 MB copied"),
    ],
)
def test_how_far_a_move_is(status: MoveStatus, expected: str):
    assert described(status) == expected


def test_groups_that_differ_are_told():
    assert described(move(0, differing=3)).startswith("10 of 10 groups, 1,500 MB copied, 3 ")


def test_it_is_drawn_until_it_has_ended_and_shows_the_end(capsys: pytest.CaptureFixture[str]):
    phases, ended = iter(["Armed", "Moving", "Completed"]), iter([False, False, True])
    moves = iter([[], [move(4)], []])
    watched(lambda: (next(phases), next(moves)), lambda: next(ended))
    shown = capsys.readouterr().out
    assert "Completed" in shown
    assert "sums" in shown
    assert list(phases) == [], "it was looked at as often as it had not ended, and once more"


def test_it_ends_when_its_time_is_over(capsys: pytest.CaptureFixture[str]):
    looks = []
    watched(lambda: (looks.append("Moving") or "Moving", [move(4)]), lambda: False, timeout=0.0)
    assert 1 <= len(looks) <= 2
    assert "6 of 10 groups" in capsys.readouterr().out
