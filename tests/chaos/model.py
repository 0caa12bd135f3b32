"""What the job of the chaos run is, and what it must leave: plain Python that shares no code with the library.

A `Spec` says what the flow is at a moment. A change is a tuple of words and numbers, so that it can be sent and written
down; `after` says what a flow becomes by it. `Oracle` walks over the epochs, with the rows that each had.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

ROWS = 24  # of a file
KEYS = 7
EXTRA = 10**9  # the ids of the second source begin here

Change = tuple[Any, ...]
Row = tuple[Any, ...]
Input = tuple[int, int, int]  # id, key, value


def rows(file: int) -> list[Input]:
    """Make the rows of a file; those of the second source have numbers from `EXTRA // 100` on."""
    return [(file * 100 + i, (i * 5 + file) % KEYS, (file * 13 + i * 7) % 1000) for i in range(ROWS)]


@dataclass(frozen=True)
class Spec:
    """What the flow is: source, tag, the chain, totals; besides them what is there or not."""

    tag: int = 0  # which code the stateless operator has; its rows say so
    code: int = 0  # which code the stateful one has; its rows say so
    chain: tuple[tuple[str, int], ...] = ()  # ("plus", n) and ("seen", 0), in their order
    copy: bool = False
    branch: bool = False
    extra: int = 0  # which birth of the second source is read, 0 for none
    slots: int = 2
    batch: int = 0  # rows of an Arrow batch, once it is tuned

    @property
    def ids(self) -> set[str]:
        """The operators besides that keep state, and the second source."""
        found = {name for name, _ in self.chain if name == "seen"}
        return found | ({"few"} if self.branch else set()) | ({"extra"} if self.extra else set())

    def first(self) -> str:
        """What reads the tagged rows on their way to the totals."""
        return self.chain[0][0] if self.chain else "totals"


def after(spec: Spec, change: Change) -> Spec | None:
    """What a flow becomes by a change; None: it does not fit, so it must be rejected."""
    kind, *told = change
    if kind == "several":
        for each in told:
            made = after(spec, tuple(each))
            if made is None:
                return None
            spec = made
        return spec
    if kind in ("whole flow", "undo"):  # both name the flow that comes out
        *_, wanted = told
        return spec_of(wanted)
    names = [name for name, _ in spec.chain]
    if kind in ("insert stateless", "insert stateful"):
        name, number, place = ("plus", told[0], told[1]) if kind == "insert stateless" else ("seen", 0, told[0])
        if name in names or (place != "totals" and place != spec.first()):
            return None
        at = 0 if place != "totals" else len(names)
        return replace(spec, chain=(*spec.chain[:at], (name, number), *spec.chain[at:]))
    if kind in ("remove stateless", "remove stateful"):
        name = "plus" if kind == "remove stateless" else "seen"
        return replace(spec, chain=tuple(c for c in spec.chain if c[0] != name)) if name in names else None
    now, then = {
        "replace stateless": ("tag", spec.tag), "replace stateful": ("code", spec.code),
        "rescale": ("slots", spec.slots), "tune": ("batch", spec.batch),
        "add sink": ("copy", spec.copy), "remove sink": ("copy", not spec.copy),
        "add branch": ("branch", spec.branch), "remove branch": ("branch", not spec.branch),
        "add source": ("extra", bool(spec.extra)), "remove source": ("extra", not spec.extra),
    }[kind]  # fmt: skip
    if now in ("copy", "branch", "extra"):
        if then:
            return None
        return replace(spec, **{now: told[0] if kind == "add source" else kind.startswith("add")})
    return replace(spec, **{now: told[0]})


def spec_of(given: Any) -> Spec:
    """Make a spec of what was sent as JSON."""
    return Spec(**{**given, "chain": tuple(tuple(each) for each in given["chain"])})


@dataclass
class State:
    """What the operators keep: key -> number."""

    totals: Counter[int] = field(default_factory=Counter)
    n: Counter[int] = field(default_factory=Counter)
    seen: Counter[int] = field(default_factory=Counter)
    few: Counter[int] = field(default_factory=Counter)

    def copied(self) -> State:
        """A copy."""
        return State(*(Counter(each) for each in (self.totals, self.n, self.seen, self.few)))


@dataclass(frozen=True)
class Cut:
    """From this epoch on the flow is this one; before it the state of these operators was forgotten."""

    epoch: int
    spec: Spec
    forgotten: frozenset[str] = frozenset()


class Oracle:
    """Computes the rows of every sink, epoch by epoch."""

    def __init__(self, state: State, cuts: list[Cut]) -> None:
        self._state, self._cuts = state.copied(), list(cuts)
        self._spec = Spec()

    def reach(self, epoch: int) -> Spec:
        """Apply the cuts up to an epoch."""
        while self._cuts and self._cuts[0].epoch <= epoch:
            cut = self._cuts.pop(0)
            for id in cut.forgotten & {"seen", "few"}:
                getattr(self._state, id).clear()
            self._spec = cut.spec
        return self._spec

    @property
    def state(self) -> State:
        """What the operators keep now."""
        return self._state.copied()

    def epoch(self, epoch: int, given: list[Input]) -> dict[str, Counter[Row]]:
        """What every sink has of an epoch."""
        spec, state = self.reach(epoch), self._state
        stream: list[Row] = [(id, k, v, f"t{spec.tag}") for id, k, v in sorted(given)]
        found: dict[str, Counter[Row]] = {sink: Counter() for sink in ("raw", "out", "copy", "few")}
        found["raw"].update(stream)
        if spec.copy:
            found["copy"].update(stream)
        if spec.branch:
            for id, k, v, tag in stream:
                state.few[k] += 2 * v
                found["few"][(id, k, state.few[k], tag)] += 1
        for name, number in spec.chain:
            if name == "plus":
                stream = [(id, k, v + number, tag) for id, k, v, tag in stream]
            else:
                counted = []
                for id, k, v, tag in stream:
                    state.seen[k] += 1
                    counted.append((id, k, v, f"{tag}s{state.seen[k]}"))
                stream = counted
        for id, k, v, tag in stream:
            state.totals[k] += v
            state.n[k] += 1
            found["out"][(id, k, state.totals[k], tag, state.n[k], spec.code)] += 1
        return found
