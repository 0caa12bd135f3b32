"""Errors: seven kinds, of which each can be caught by itself or with all others, and the line that is shown of them."""

from __future__ import annotations

import pytest

import midstream as ms
from midstream import errors
from midstream.errors import MidstreamError, first_line

KINDS = ["MidstreamError", "PlanError", "SchemaError", "StateError", "CheckpointError", "SinkError", "JobError"]


def test_there_are_seven_kinds_and_users_can_name_them_all():
    found = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    assert sorted(found) == sorted(KINDS)
    assert all(issubclass(kind, MidstreamError) and kind.__doc__ for kind in found.values())
    assert {name: getattr(ms, name) for name in KINDS} == found


def test_no_kind_is_caught_with_another_but_the_root():
    others = [getattr(errors, name) for name in KINDS[1:]]
    assert not [(one, other) for one in others for other in others if one is not other and issubclass(one, other)]


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("no thirteens"), "no thirteens"),
        (ValueError("no thirteens\n  at line 7\n"), "no thirteens"),
        (ValueError("\n\n  no thirteens  \nmore"), "no thirteens  "),
        (ValueError("windows\r\nmore"), "windows"),
        (ValueError(), "ValueError"),
        (ValueError(" \n\t"), "ValueError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (KeyError("id"), "'id'"),
    ],
    ids=repr,
)
def test_the_first_line_of_a_message_is_shown_or_the_kind_of_what_has_none(error: BaseException, shown: str):
    assert first_line(error) == shown
