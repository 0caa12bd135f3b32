"""A modification in the queue: what is written down comes before what is told, and nobody waits in vain."""

from __future__ import annotations

import threading

import pytest

from midstream.checkpoint.records import Phase, Record
from midstream.modifications import phases as m
from midstream.modifications.entry import Entry, ModificationError


def test_a_record_is_kept_before_anybody_hears_of_it():
    kept: list[Phase] = []
    entry = Entry(Record(number=1, what="change"), lambda record: kept.append(record.phase))
    heard: list[list[Phase]] = []
    waiting = threading.Thread(target=lambda: heard.append(list(kept) if entry.wait_for_end(60) else []))
    waiting.start()
    entry.move(m.Refused("no"))
    waiting.join(60)
    assert heard == [[Phase.REJECTED]]
    assert (entry.phase, entry.record.error) == (Phase.REJECTED, "no")


def test_a_record_that_cannot_be_kept_is_not_told():
    def full(record: Record) -> None:
        raise OSError("no space")

    entry = Entry(Record(number=1, what="change"), full)
    with pytest.raises(OSError, match="no space"):
        entry.move(m.Refused("no"))
    assert not entry.wait_for(lambda: False, 0)


def test_who_waits_is_told_that_nobody_works_on_it_any_more():
    entry = Entry(Record(number=1, what="change"), lambda record: None)
    assert not entry.wait_for_end(0)
    entry.release("the job has ended")
    assert entry.wait_for_end(0)
    assert (entry.phase, entry.let_go) == (Phase.SUBMITTED, "the job has ended")


def test_one_that_is_cancelled_goes_no_further():
    entry = Entry(Record(number=7, what="change"), lambda record: None)
    entry.refuse_cancelled()
    entry.is_cancelled = True
    with pytest.raises(ModificationError, match="modification 7 was cancelled"):
        entry.refuse_cancelled()
