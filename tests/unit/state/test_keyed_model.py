"""The state of keys against plain Python: random reads, writes, timers and expiry, epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from midstream.state.expiry import expire
from midstream.state.stores.memory import MemoryStore
from midstream.state.timers import Timer
from midstream.state.values import moment_of
from tests.support.edits import Edits
from tests.support.group_states import TTL, VERSION, at_clock

Stored = list[tuple[Any, int]]  # values with the moment when they expire
FOREVER = 1 << 60
keys = st.sampled_from([b"a", b"ab", b"\xff"])
numbers = st.integers(-3, 3)
names = st.sampled_from(["x", "y", ""])


class Model:
    """The state of one key as plain Python objects."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[Any, int]] = {}
        self.lists: dict[str, Stored] = {"items": [], "recent": []}
        self.maps: dict[str, dict[Any, tuple[Any, int]]] = {"seen": {}, "hot": {}}
        self.timers: set[tuple[str, int]] = set()

    def expiries(self) -> list[tuple[str, int]]:
        found = [(name, expiry) for name, (_, expiry) in self.values.items()]
        found += [(name, expiry) for name, items in self.lists.items() for _, expiry in items]
        found += [(name, expiry) for name, items in self.maps.items() for _, expiry in items.values()]
        return [(name, expiry) for name, expiry in found if TTL[name]]


class KeyedState(RuleBasedStateMachine):
    """Several epochs over several keys, with everything a function may do to its state."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 10_000
        self.store = MemoryStore()
        self.models = {key: Model() for key in (b"a", b"ab", b"\xff")}
        self.state = at_clock(self.now, self.store)
        self.key = b"a"
        self.state.bind(self.key)

    @property
    def model(self) -> Model:
        return self.models[self.key]

    def until(self, name: str) -> int:
        return self.now + TTL[name] if TTL[name] else FOREVER

    def alive(self, expiry: int) -> bool:
        return expiry > self.now

    @rule(key=keys)
    def go_to_a_key(self, key: bytes) -> None:
        self.state.release()
        self.key = key
        self.state.bind(key)

    @rule(name=st.sampled_from(["plain", "brief"]), value=numbers | st.none())
    def write_a_value(self, name: str, value: int | None) -> None:
        written = str(value) if name == "brief" and value is not None else value
        self.state.write(name, written)
        self.model.values.pop(name, None)
        if written is not None:
            self.model.values[name] = (written, self.until(name))

    @rule(name=st.sampled_from(["items", "recent"]), values=st.lists(numbers, max_size=3), action=st.integers(0, 3))
    def change_a_list(self, name: str, values: list[int], action: int) -> None:
        view, model = self.state.read(name), self.model.lists[name]
        added = [(value, self.until(name)) for value in values]
        if action == 0:
            view.clear()
            model.clear()
        elif action == 1:
            self.state.write(name, values)
            model[:] = added
        elif action == 2:
            view.extend(values)
            model += added
        else:
            for value in values:
                view.append(value)
            model += added

    @rule(name=st.sampled_from(["seen", "hot"]), key=names, value=numbers, action=st.integers(0, 4))
    def change_a_map(self, name: str, key: Any, value: Any, action: int) -> None:
        view, model = self.state.read(name), self.model.maps[name]
        if name == "hot":
            key, value = value, key
        if action == 0:
            view.clear()
            model.clear()
        elif action == 1:
            self.state.write(name, {key: value})
            model.clear()
            model[key] = (value, self.until(name))
        elif action == 2:
            there = key in model and self.alive(model[key][1])
            assert view.pop(key, "nothing") == (model[key][0] if there else "nothing")
            if there:
                del model[key]
        else:
            view[key] = value
            model[key] = (value, self.until(name))

    @rule(kind=st.sampled_from(["event_time", "processing_time"]), after=st.integers(0, 50), clear=st.booleans())
    def change_a_timer(self, kind: str, after: int, clear: bool) -> None:
        timer = Timer(kind, moment_of(self.now + after))
        change: Callable[[Timer], None] = self.state.clear if clear else self.state.set
        change(timer)
        (self.model.timers.discard if clear else self.model.timers.add)((kind, self.now + after))

    @rule(watermark=st.none() | st.integers(-60, 20))
    def fire_timers(self, watermark: int | None) -> None:
        self.state.release()
        limit = {"processing_time": self.now, "event_time": None if watermark is None else self.now + watermark}
        expected = []
        for key, model in self.models.items():
            for kind, at in list(model.timers):
                bound = limit[kind]
                if bound is not None and at <= bound:
                    expected.append((at, kind, key))  # the names of the kinds sort as the kinds do
                    model.timers.remove((kind, at))
        due = self.state.take_due(limit["event_time"])
        assert due == [(key, Timer(kind, moment_of(at))) for at, kind, key in sorted(expected)]
        self.state.bind(self.key)

    @rule(passed=st.integers(0, 60), looked=st.booleans(), prefetched=st.sets(keys))
    def end_the_epoch(self, passed: int, looked: bool, prefetched: set[bytes]) -> None:
        self.state.release()
        self.store.apply([Edits(self.state.changes)], VERSION)
        self.now += passed
        self.state = at_clock(self.now, self.store)
        self.state.prefetch(sorted(prefetched))
        if looked:
            expire(self.state)
        self.state.bind(self.key)

    @invariant()
    def the_key_at_hand_reads_as_plain_python(self) -> None:
        for name, default in (("plain", 7), ("brief", None)):
            value, expiry = self.model.values.get(name, (None, 0))
            assert self.state.read(name) == (value if self.alive(expiry) else default)
        for name, items in self.model.lists.items():
            assert list(self.state.read(name)) == [value for value, expiry in items if self.alive(expiry)]
            assert len(self.state.read(name)) == sum(self.alive(expiry) for _, expiry in items)
        for name, pairs in self.model.maps.items():
            expected = {key: value for key, (value, expiry) in pairs.items() if self.alive(expiry)}
            assert dict(self.state.read(name)) == expected
            assert len(self.state.read(name)) == len(expected)

    @invariant()
    def the_next_deadlines_are_known(self) -> None:
        timers = {timer for model in self.models.values() for timer in model.timers}
        event, clock = self.state.next_deadlines()
        assert event == min((at for kind, at in timers if kind == "event_time"), default=None)
        processing = [at for kind, at in timers if kind == "processing_time"]
        expiries = [pair for model in self.models.values() for pair in model.expiries()]
        living = [expiry + TTL[name] // 8 for name, expiry in expiries if self.alive(expiry)]
        if processing or living:
            assert clock is not None
            assert clock <= min(processing + living)


TestKeyedState = KeyedState.TestCase
TestKeyedState.settings = settings(max_examples=60, stateful_step_count=40)
