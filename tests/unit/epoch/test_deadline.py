"""A block that may hang ends when its time is over, or when it is given up; one that ends in time is left alone."""

from __future__ import annotations

import threading
import time

import pytest

from midstream.epoch.deadline import DeadlineError, Limit


def never() -> None:
    raise AssertionError("nothing is to be cancelled")


def test_a_block_that_ends_in_time_is_left_alone_and_its_own_errors_are_raised():
    with Limit(60, "the epoch", never) as limit:
        pass
    assert not limit.passed.is_set()
    with pytest.raises(ValueError, match="mine"), Limit(60, "the epoch", never):
        raise ValueError("mine")


def test_a_block_that_waits_is_cancelled_when_its_time_is_over():
    cancelled = threading.Event()

    def hang() -> None:
        with Limit(0.01, "the first epoch", cancelled.set) as limit:
            assert cancelled.wait(60)
            assert limit.passed.is_set(), "the block need not try again"
            raise RuntimeError("Spark was cancelled")

    with pytest.raises(DeadlineError, match=r"the first epoch was given up after 0\.01 seconds: it may hang") as ended:
        hang()
    assert isinstance(ended.value.__cause__, RuntimeError)


def test_a_block_that_ends_well_though_its_time_is_over_has_ended_well():
    cancelled = threading.Event()
    with Limit(0.01, "the epoch", cancelled.set) as limit:
        assert cancelled.wait(60)
    assert limit.passed.is_set()


def test_a_block_that_loops_in_python_is_interrupted_when_it_is_given_up():
    limit = Limit(600, "the rehearsal", lambda: None)

    def spin() -> None:
        with limit:
            limit.give_up("since somebody cancelled it")
            end = time.monotonic() + 60
            while time.monotonic() < end:
                pass
            raise AssertionError("it was not interrupted")

    with pytest.raises(DeadlineError, match="the rehearsal was given up since somebody cancelled it"):
        spin()


def test_what_comes_behind_the_block_is_not_hit():
    for _ in range(50):
        limit = Limit(600, "the epoch", lambda: None)
        with limit:
            pass
        limit.give_up("too late")
        time.sleep(0)
    time.sleep(0.05)
