"""Threads that work for a job are known, each by itself, for as long as they do."""

from __future__ import annotations

import threading

import pytest

from midstream.epoch.own_threads import OwnThreads
from midstream.errors import JobError


def elsewhere(threads: OwnThreads) -> bool:
    """Whether another thread is one of them."""
    found: list[bool] = []
    other = threading.Thread(target=lambda: found.append(threads.has_this))
    other.start()
    other.join()
    return found[0]


def test_a_thread_is_one_of_them_from_when_it_says_so_until_all_are_forgotten():
    threads = OwnThreads()
    assert not threads.has_this
    threads.add()
    assert threads.has_this
    assert not elsewhere(threads)
    threads.clear()
    assert not threads.has_this


def test_a_thread_may_be_one_of_them_for_a_while_also_within_itself_and_through_an_error():
    threads = OwnThreads()
    with threads.entered():
        with threads.entered():
            assert threads.has_this
        assert threads.has_this, "only the outer one ends it"
    assert not threads.has_this
    with pytest.raises(ValueError, match="no"), threads.entered():
        raise ValueError("no")
    assert not threads.has_this
    threads.add()
    with threads.entered():
        pass
    assert threads.has_this, "it was one of them before"


def test_a_call_that_would_wait_for_itself_is_refused_and_from_elsewhere_it_is_not():
    threads = OwnThreads()
    threads.refuse("job.stop()")
    with threads.entered(), pytest.raises(JobError, match=r"job.stop\(\) was called in a thread of the job"):
        threads.refuse("job.stop()")
