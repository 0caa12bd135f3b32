"""The rules of a join: which rows match, how long they are kept, who comes out alone, and how a plan sees a change."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.operators.functions.declare import KeyedFunction, state_fields
from midstream.operators.functions.deduplicate import Deduplicate
from midstream.operators.joins.rules import KINDS, LEFT, RIGHT, SIDES, Join, UnboundedJoin
from midstream.plan.code import capture
from tests.support.join_slot import END_OF_TIME, TYPES, bounded

FIRST_TIME = -62_135_596_800_000_000
SPAN = range(-60, 60)


def reach(join: Join, side: str, time: int) -> tuple[int, int]:
    low, high = join.reach(side, np.array([time], np.int64))
    return int(low[0]), int(high[0])


def matching(side: str, time: int, related: Callable[[int, int], bool]) -> list[int]:
    """All times on the other side that match, one by one."""
    return [other for other in SPAN if (related(time, other) if side == LEFT else related(other, time))]


@given(st.sampled_from(SIDES), st.integers(-20, 20), st.integers(-9, 9), st.integers(0, 12))
def test_the_reach_of_an_interval_is_from_the_first_match_to_the_last(side: str, time: int, lower: int, span: int):
    join = bounded("inner", lower=lower, upper=lower + span)
    found = matching(side, time, lambda left, right: lower <= right - left <= lower + span)
    assert reach(join, side, time) == (found[0], found[-1])


@given(st.sampled_from(SIDES), st.integers(-20, 20), st.integers(1, 13))
def test_the_reach_of_a_window_is_the_window(side: str, time: int, size: int):
    found = matching(side, time, lambda left, right: left // size == right // size)
    assert reach(bounded("inner", size=size), side, time) == (found[0], found[-1])


@given(st.sampled_from(SIDES), st.integers(-20, 20), st.integers(-9, 9), st.integers(0, 12))
def test_a_row_is_kept_until_what_comes_can_match_it_no_more(side: str, time: int, lower: int, span: int):
    join = bounded("inner", lower=lower, upper=lower + span)
    (deadline,) = join.deadlines(side, np.array([time])).tolist()
    found = matching(side, time, lambda left, right: lower <= right - left <= lower + span)
    assert [watermark > found[-1] for watermark in (deadline - 1, deadline)] == [False, True]


def test_a_deadline_lies_in_time():
    join = bounded("full", lower=-(10**15), upper=10**15)
    ends = np.array([FIRST_TIME, END_OF_TIME, END_OF_TIME + 999_999])
    assert join.deadlines(LEFT, ends).tolist() == [FIRST_TIME + 10**15 + 1, END_OF_TIME, END_OF_TIME]
    early = bounded("full", lower=-(10**15), upper=-(10**14))
    assert early.deadlines(LEFT, ends[:1]).tolist() == [FIRST_TIME]


@pytest.mark.parametrize(
    ("how", "pairs", "alone", "noted"),
    [
        ("inner", True, (), ()),
        ("left", True, (LEFT,), (LEFT,)),
        ("right", True, (RIGHT,), (RIGHT,)),
        ("full", True, (LEFT, RIGHT), (LEFT, RIGHT)),
        ("semi", False, (), (LEFT,)),
        ("anti", False, (LEFT,), (LEFT,)),
    ],
)
def test_who_comes_out_alone_and_of_whom_it_matters(
    how: str, pairs: bool, alone: tuple[str, ...], noted: tuple[str, ...]
):
    join = bounded(how)
    assert join.gives_pairs == pairs
    assert tuple(side for side in SIDES if join.comes_alone(side)) == alone
    assert tuple(side for side in SIDES if join.is_noted(side)) == noted


def test_of_rows_of_the_right_that_match_the_same_all_but_the_first_are_repeated_where_no_pairs_come_out():
    keys, times = np.array([0, 0, 0, 1, 1, 1]), np.array([1, 9, 11, 11, 12, 25])
    for how in KINDS:
        expected = [False, True, False, False, True, False] if how in ("semi", "anti") else [False] * 6
        assert bounded(how, size=10).is_repeated(keys, times).tolist() == expected
    assert bounded("semi", size=10).is_repeated(keys[:0], times[:0]).tolist() == []
    assert not bounded("semi", lower=0, upper=9).is_repeated(keys, times).any(), "each is another interval"


def test_a_bounded_join_keeps_rows_with_their_times_and_an_unbounded_one_for_a_ttl():
    assert bounded("left").is_bounded
    kept = "struct<time: timestamp, matched: boolean, row: struct<n: bigint>>"
    assert [(field.name, field.kind, field.type, field.ttl) for field in state_fields(bounded("left"))] == [
        ("deadline", "value", "timestamp", 0),
        ("latest", "value", "timestamp", 0),
        ("left", "list", kept, 0),
        ("right", "list", kept, 0),
    ]
    for ttl in (0, 7):
        join = UnboundedJoin(widths=(1, 1), types=TYPES, ttl=ttl)
        assert not join.is_bounded
        assert join.how == "inner"
        assert [(field.name, field.kind, field.type, field.ttl) for field in state_fields(join)] == [
            ("left", "list", TYPES[0], ttl),
            ("right", "list", TYPES[1], ttl),
        ]


def digest(function: KeyedFunction) -> str:
    return capture(function, what="a join", shipped=True).digest


def test_a_join_is_the_same_code_in_every_process_and_other_code_if_it_is_changed() -> None:
    program = "from tests.unit.operators.joins.test_rules import *\nprint(digest(bounded('full', lower=1, upper=2)))"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == digest(bounded("full", lower=1, upper=2))
    assert told.stdout.strip() != digest(bounded("full", lower=1, upper=3))
    assert digest(Deduplicate("1 hour")) == digest(Deduplicate("60 min")) != digest(Deduplicate("2 hours"))
