"""Rows that a function fails on: what is told of them, and how they leave the task."""

from __future__ import annotations

from midstream.operators.dead_letters import FAILED
from tests.support.function_slot import Breaks, Ledger, Slot


def test_what_is_put_aside_says_why_and_shows_the_users_code_only():
    slot = Slot(Ledger())
    (failed,) = [row[FAILED] for row in slot.epoch([(1, 5)], 0)]
    assert failed["reason"] == "ValueError: 5 is a multiple of five"
    assert failed["traceback"].startswith("Traceback (most recent call last):\n")
    assert failed["traceback"].rstrip().endswith("ValueError: 5 is a multiple of five")
    assert "in process" in failed["traceback"]
    assert "calls.py" not in failed["traceback"]
    (unfit,) = [row[FAILED] for row in slot.epoch([(1, 13)], 0)]
    assert "yielded 'thirteen' (str) for column 'n'" in unfit["reason"]
    assert slot.succeeded == 0


class UnspeakableError(Exception):
    """Has a message that is no text."""

    def __str__(self) -> str:
        return "\ud800"


def test_a_message_that_is_no_text_is_escaped():
    (failed,) = [row[FAILED] for row in Slot(Breaks(UnspeakableError())).epoch([(1, 1)], 0)]
    assert failed["reason"].endswith(r"UnspeakableError: \ud800")
