"""The machine of a modification: every legal move, and no other."""

from __future__ import annotations

import itertools

import pytest

from midstream.checkpoint.records import Cut, Phase, Record
from midstream.modifications import phases as m
from midstream.modifications.phases import MOVES, IllegalMoveError, advance, recovered

EVENTS: tuple[m.Event, ...] = (
    m.Fits(1, 2), m.Tried(), m.Kept(), m.Begun(), m.Committed(Cut(5, {})), m.Moves(), m.Done(), m.Refused("no"),
    m.Cancelled(), m.Broken("no"), m.Abandoned("no"),
)  # fmt: skip
GOOD = (m.Fits(1, 2), m.Tried(), m.Kept(), m.Begun(), m.Committed(Cut(5, {"bids": "9"})), m.Done())


@pytest.mark.parametrize(("phase", "event"), list(itertools.product(Phase, EVENTS)))
def test_the_table_says_all(phase: Phase, event: m.Event) -> None:
    record = Record(number=1, what="replace 'big'", phase=phase)
    if (phase, type(event)) in MOVES:
        assert advance(record, event).phase is MOVES[phase, type(event)]
    else:
        with pytest.raises(IllegalMoveError, match=f"cannot happen to a modification that is {phase.value}.*'big'"):
            advance(record, event)


def test_the_good_way_leaves_version_cut_and_times() -> None:
    record = Record(number=1, what="")
    for event in GOOD:
        record = advance(record, event, 0.5)
    assert record.phase is Phase.COMPLETED
    assert (record.base, record.version, record.tries, record.cut) == (1, 2, 1, Cut(5, {"bids": "9"}))
    assert record.durations == dict.fromkeys(("Validated", "Prepared", "Armed", "Applied", "Completed"), 0.5)


def test_groups_that_move_come_between_the_cut_and_the_end() -> None:
    record = Record(number=1, what="")
    for event in (*GOOD[:-1], m.Moves()):
        record = advance(record, event)
    assert record.phase is Phase.MOVING
    assert recovered(record, {2: Cut(9, {})}) == m.Done(), "the executors have ended with their driver"


def test_nothing_follows_an_end() -> None:
    assert {phase for phase, _ in MOVES} == {phase for phase in Phase if not phase.is_final}


@pytest.mark.parametrize("ends", [0, 1, 2, 3, 4, 5, 6])
def test_from_every_phase_the_journal_leads_to_an_end_or_back_to_armed(ends: int) -> None:
    record = Record(number=1, what="")
    for event in GOOD[:ends]:
        record = advance(record, event)
    cuts = {2: Cut(5, {})} if ends >= 5 else {1: Cut(0, {})}
    while (happened := recovered(record, cuts)) is not None:
        record = advance(record, happened)
    assert record.phase is {0: Phase.FAILED, 1: Phase.FAILED, 2: Phase.FAILED, 3: Phase.ARMED, 4: Phase.ARMED}.get(
        ends, Phase.COMPLETED
    )


def test_what_was_committed_before_the_crash_is_applied() -> None:
    armed = Record(number=1, what="", phase=Phase.ARMED, version=2, tries=1)
    cut = Cut(7, {"bids": "5"})
    assert recovered(armed, {1: Cut(0, {}), 2: cut}) == m.Committed(cut)


def test_what_was_committed_is_applied_however_often_it_was_begun_and_whatever_came_after() -> None:
    armed = Record(number=1, what="", phase=Phase.ARMED, version=2, tries=2)
    assert recovered(armed, {2: Cut(7, {}), 3: Cut(9, {})}) == m.Committed(Cut(7, {}))


def test_code_that_kills_the_driver_twice_is_given_up() -> None:
    armed = Record(number=1, what="", phase=Phase.ARMED, version=2)
    once, twice = advance(armed, m.Begun()), advance(advance(armed, m.Begun()), m.Begun())
    assert recovered(once, {1: Cut(7, {})}) is None
    assert isinstance(recovered(twice, {1: Cut(7, {})}), m.Broken)
