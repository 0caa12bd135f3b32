"""What a join keeps of the rows of both sides, and until when."""

from __future__ import annotations

from collections import Counter

import pytest

from midstream.operators.joins.rules import UnboundedJoin
from midstream.state.stores.contract import FIRST, LAST
from tests.support.join_slot import END_OF_TIME, TYPES, Runner, bounded


def test_a_row_is_kept_as_long_as_the_watermark_allows_a_match_and_no_longer() -> None:
    runner = Runner(bounded("full", lower=-2, upper=3))
    rows = [("left", "a", 10, 1), ("right", "b", 10, 2)]
    runner.epoch(rows, None)
    assert runner.epoch([], 12) == []
    assert runner.epoch([], 13) == [("b", None, 2)]  # a left row of 12 could have come until now, at 10 - (-2)
    late = [("right", "a", 13, 3)]
    assert runner.epoch(late, 13) == [("a", 1, 3)]  # 13 is not before the watermark: it is in time
    assert runner.epoch([], 14) == []
    assert runner.entries() == 3  # the record with its deadline, the timer, and the right row: a left one may have 15
    assert runner.epoch([], 16) == []
    assert runner.entries() == 0


def test_a_late_row_that_can_find_nothing_any_more_comes_out_at_once_and_is_not_kept() -> None:
    runner = Runner(bounded("left", lower=0, upper=3))
    assert runner.epoch([("left", "a", 1, 7)], 50) == [("a", 7, None)]
    assert runner.entries() == 0


def test_times_at_the_end_of_time_still_come_out_at_the_end_of_the_input() -> None:
    runner = Runner(bounded("full", lower=-(10**15), upper=10**15))
    rows = [("left", "a", END_OF_TIME + 999_999, 1), ("right", "b", -62_135_596_800_000_000, 2)]
    assert runner.epoch(rows, None) == []
    assert Counter(runner.epoch([], END_OF_TIME)) == Counter([("a", 1, None), ("b", None, 2)])
    assert runner.entries() == 0


def test_one_timer_is_kept_per_key_however_many_rows_wait() -> None:
    runner = Runner(bounded("left", lower=0, upper=100))
    for time in (50, 20, 70, 10):
        runner.epoch([("left", "a", time, time)], None)
    assert runner.entries() == 4 + 2  # four rows, the record and the timer
    assert sorted(runner.epoch([], 121)) == [("a", 10, None), ("a", 20, None)]
    assert runner.entries() == 2 + 2


@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize(("before", "after"), [(3, 50), (50, 3)])
def test_a_join_whose_bounds_were_changed_still_drops_all_that_was_kept(how: str, before: int, after: int) -> None:
    runner = Runner(bounded(how, lower=0, upper=before))
    for time in range(0, 100, 7):
        runner.epoch([("left", "a", time, time)], None)
    runner.join = bounded(how, lower=0, upper=after)
    for watermark in range(0, 160, 10):
        runner.epoch([], watermark)
    assert runner.entries() == 0


def test_rows_that_wider_bounds_still_need_are_kept_when_the_old_bounds_have_passed() -> None:
    runner = Runner(bounded("inner", lower=0, upper=3))
    runner.epoch([("left", "a", 10, 1)], None)
    runner.join = bounded("inner", lower=0, upper=50)
    assert runner.epoch([], 30) == []
    assert runner.epoch([("right", "a", 40, 2)], 30) == [("a", 1, 2)]


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_of_rows_of_the_right_that_match_the_same_one_is_kept(how: str) -> None:
    runner = Runner(bounded(how, size=10))
    runner.epoch([("right", "a", time, time) for time in (1, 5, 9, 11, 12)], None)
    assert runner.entries() == 2 + 2  # one row for each window, the record and the timer
    found = runner.epoch([("left", "a", 8, 8), ("left", "a", 18, 18), ("left", "a", 28, 28)], None)
    assert sorted(found) == ([("a", 8), ("a", 18)] if how == "semi" else [])
    assert runner.epoch([], 100) == ([("a", 28)] if how == "anti" else [])
    assert runner.entries() == 0


def test_rows_kept_by_an_inner_join_do_not_come_out_alone_after_it_became_a_left_one() -> None:
    runner = Runner(bounded("inner", lower=0, upper=5))
    runner.epoch([("left", "a", 1, 1)], None)
    runner.join = bounded("left", lower=0, upper=5)
    runner.epoch([("left", "a", 2, 2)], None)
    assert runner.epoch([], 50) == [("a", 2, None)]


def test_a_ttl_ends_an_unbounded_wait() -> None:
    runner = Runner(UnboundedJoin(widths=(1, 1), types=TYPES, ttl=10))
    row = ("left", "a", None, 1), ("right", "a", None, 2)
    assert runner.epoch([row[0]], None, now=100) == []
    assert runner.epoch([row[1]], None, now=109) == [("a", 1, 2)]
    assert runner.epoch([row[1]], None, now=110) == []
    assert runner.epoch([row[0]], None, now=112) == [("a", 1, 2), ("a", 1, 2)]


def test_a_list_that_is_mostly_holes_is_put_together_again() -> None:
    runner = Runner(bounded("left", lower=0, upper=10))
    for time in range(100):
        runner.epoch([("left", "a", time, time)], None)
    assert sorted(runner.epoch([], 106)) == [("a", time, None) for time in range(96)], "96 + 10 is before 107"
    assert places(runner) == [0, 1, 2, 3]
    runner.epoch([("left", "a", 200, 200)], 106)
    assert places(runner) == [0, 1, 2, 3, 4], "new rows come behind"
    assert sorted(runner.epoch([("right", "a", 106, 7)], 106)) == [("a", time, 7) for time in (96, 97, 98, 99)]
    assert runner.epoch([], END_OF_TIME) == [("a", 200, None)]
    assert runner.entries() == 0


def places(runner: Runner) -> list[int]:
    """Where in their list the rows of the left are that are kept, given one key."""
    with runner.store.reader() as reader:
        entries = [entry for entry, _ in reader.scan(FIRST, LAST)]
    ((rows, _),) = Counter(entry[:1] for entry in entries).most_common(1)  # a timer and a record are one each
    return [int.from_bytes(entry[-4:], "big") for entry in entries if entry[:1] == rows]
