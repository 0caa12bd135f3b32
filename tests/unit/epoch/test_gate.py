"""When an epoch may begin: one at a time, none while the job is being stopped or its query exchanged."""

from __future__ import annotations

import threading

import pytest

from midstream.epoch.gate import Gate, StopRequestedError
from midstream.errors import JobError

SECONDS = 10.0  # for what must happen


def in_a_thread(action: object) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


def test_an_epoch_holds_the_gate_until_its_end() -> None:
    gate = Gate()
    with gate.epoch():
        assert gate.is_running
    assert not gate.is_running


def test_what_is_done_between_epochs_waits_for_the_one_under_way() -> None:
    gate, begun, done = Gate(), threading.Event(), list[str]()

    def between() -> None:
        begun.set()
        with gate.between_epochs():
            done.append("between")

    with gate.epoch():
        thread = in_a_thread(between)
        assert begun.wait(SECONDS)
        done.append("epoch")
    thread.join(SECONDS)
    assert done == ["epoch", "between"]


def test_no_epoch_begins_in_a_job_that_is_being_stopped() -> None:
    gate = Gate()
    gate.stopping.set()
    with pytest.raises(StopRequestedError), gate.epoch():
        raise AssertionError("it has begun")
    assert not gate.is_running


def test_no_epoch_begins_while_the_query_is_exchanged_and_the_next_does_afterwards() -> None:
    gate = Gate()
    with gate.closed(), pytest.raises(StopRequestedError), gate.epoch():
        raise AssertionError("it has begun")
    with gate.epoch():
        assert gate.is_running


def test_the_query_is_exchanged_after_the_epoch_under_way() -> None:
    gate, begun, done = Gate(), threading.Event(), list[str]()

    def exchange() -> None:
        begun.set()
        with gate.closed():
            done.append("exchange")

    with gate.epoch():
        thread = in_a_thread(exchange)
        assert begun.wait(SECONDS)
        done.append("epoch")
    thread.join(SECONDS)
    assert done == ["epoch", "exchange"]


def test_an_exchange_that_fails_opens_the_gate_again() -> None:
    gate = Gate()
    with pytest.raises(ZeroDivisionError), gate.closed():
        raise ZeroDivisionError
    with gate.epoch():
        assert gate.is_running


def test_an_epoch_that_fails_leaves_the_gate_open() -> None:
    gate = Gate()
    with pytest.raises(ZeroDivisionError), gate.epoch():
        raise ZeroDivisionError
    assert not gate.is_running


def test_the_thread_of_an_epoch_is_one_of_the_job_only_meanwhile() -> None:
    gate = Gate()
    with gate.epoch(), pytest.raises(JobError, match="wait for itself"):
        gate.threads.refuse("stop()")
    gate.threads.refuse("stop()")
