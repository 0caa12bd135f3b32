"""What a keyed function declares, and what it may know and do while a key is at hand."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

import midstream as ms
from midstream.errors import StateError
from midstream.operators.functions.declare import Context, state_fields
from midstream.plan.plan import StateField
from midstream.state.timers import Timer

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


class Base(ms.KeyedFunction):
    """Declares a value."""

    total = ms.value("double", default=0.0)


class Mine(Base):
    """Adds every other kind of state."""

    recent = ms.list("long", ttl="1 minute")
    seen = ms.map("string", "long", ttl=timedelta(seconds=2))
    rate = ms.value("long", default=1, scope="broadcast")
    noted = ms.list("long", scope="group")


class Narrower(Mine):
    """Declares one of them otherwise."""

    total = ms.value("long")


FIELDS = (
    StateField(name="total", kind="value", type="double", default=0.0),
    StateField(name="recent", kind="list", type="long", ttl=60_000_000),
    StateField(name="seen", kind="map", type="long", key_type="string", ttl=2_000_000),
    StateField(name="rate", kind="value", type="long", default=1, scope="broadcast"),
    StateField(name="noted", kind="list", type="long", scope="group"),
)


def test_state_is_listed_as_plain_data_base_classes_first_in_the_order_of_declaration():
    assert state_fields(Base()) == FIELDS[:1]
    assert state_fields(Mine()) == FIELDS
    assert state_fields(Narrower()) == (StateField(name="total", kind="value", type="long"), *FIELDS[1:])
    assert state_fields(ms.KeyedFunction()) == ()


def test_a_class_knows_its_declarations_by_name():
    assert Mine.total.name == "total"
    assert (Mine.seen.key_type, Mine.seen.type) == ("string", "long")


@pytest.mark.parametrize("default", [[], {}, set()])
def test_a_default_that_could_change_is_refused(default: Any):
    with pytest.raises(StateError, match="the default of a value state must be immutable; use list or map state"):
        ms.value("array<long>", default=default)


@pytest.mark.parametrize(
    ("declare", "complaint"),
    [
        (lambda: ms.value("long", scope="world"), "the scope of state is 'key', 'group' or 'broadcast', not 'world'"),
        (lambda: ms.list("long", ttl="1 s", scope="group"), "state with scope='group' has no ttl"),
        (lambda: ms.map("long", "long", ttl="1 s", scope="broadcast"), "state with scope='broadcast' has no ttl"),
    ],
)
def test_a_scope_that_cannot_be_is_refused(declare: Any, complaint: str):
    with pytest.raises(StateError, match=complaint):
        declare()


@pytest.mark.parametrize("name", ["total", "recent", "seen"])
def test_state_of_a_key_is_not_there_outside_of_a_call(name: str):
    complaint = rf"Mine.{name} was read outside process\(\) or on_timer\(\)"
    with pytest.raises(StateError, match=complaint):
        getattr(Mine(), name)
    with pytest.raises(StateError, match=complaint):
        setattr(Mine(), name, None)


@pytest.mark.parametrize("name", ["rate", "noted"])
def test_state_of_a_group_is_not_there_outside_of_a_call(name: str):
    complaint = rf"Mine.{name} was read outside process\(\), on_timer\(\) and on_broadcast\(\)"
    with pytest.raises(StateError, match=complaint):
        getattr(Mine(), name)
    with pytest.raises(StateError, match=complaint):
        setattr(Mine(), name, None)


def test_what_a_function_does_not_say_is_refused_and_timers_may_be_ignored():
    context = Context(0, NOON, None, "", Timers())
    with pytest.raises(NotImplementedError, match=r"Base has no process\(key, rows, ctx\) method"):
        Base().process("a", [], context)
    with pytest.raises(NotImplementedError, match=r"Base has no on_broadcast\(rows, ctx\) method"):
        Base().on_broadcast([], context)
    assert Base().on_timer("a", Timer("event_time", NOON), context) is None


class Timers:
    """Keeps the timers of a key in a set."""

    def __init__(self) -> None:
        self.kept = set[Timer]()

    def set(self, timer: Timer) -> None:
        self.kept.add(timer)

    def clear(self, timer: Timer) -> None:
        self.kept.discard(timer)


def test_timers_of_both_kinds_are_set_once_and_cleared_apart():
    timers = Timers()
    context = Context(0, NOON, None, "", timers)
    for _ in range(2):
        context.set_event_timer(NOON)
        context.set_processing_timer(NOON)
    assert timers.kept == {Timer("event_time", NOON), Timer("processing_time", NOON)}
    context.clear_event_timer(NOON)
    assert timers.kept == {Timer("processing_time", NOON)}
    context.clear_processing_timer(NOON)
    context.clear_processing_timer(NOON)
    assert timers.kept == set()


def test_an_event_time_is_that_of_its_column():
    row = ("a", NOON, 7)
    timed = Context(0, NOON, None, "", Timers(), time_at=1)
    assert (timed.has_event_time, timed.event_time(row), timed.event_time(("a", None, 7))) == (True, NOON, None)
    without = Context(0, NOON, None, "", Timers())
    assert (without.has_event_time, without.event_time(row)) == (False, None)


def numbers(seed: str, *keys: Any) -> list[float]:
    context = Context(3, NOON, NOON, seed, Timers())
    found = []
    for key in keys:
        context.key = key
        found.append(context.random.random())
    return found


def test_random_numbers_are_a_function_of_seed_and_key():
    assert numbers("7/sums", "a", "a", "b") == numbers("7/sums", "a", "a", "b")
    first, second, other = numbers("7/sums", "a", "a", "b")
    generator = random.Random("7/sums/'a'")
    assert [first, second] == [generator.random(), generator.random()], "it goes on while the key is at hand"
    assert other == numbers("7/sums", "b")[0], "whatever other keys have drawn"
    assert numbers("8/sums", "a")[0] != first
    assert numbers("7/sums", "1")[0] != numbers("7/sums", 1)[0]
