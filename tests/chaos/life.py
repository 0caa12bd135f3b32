"""What is known of one life of the job: from its start, fresh or from a savepoint, until the next life."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.chaos.model import EXTRA, Change, Cut, Input, Oracle, Row, Spec, State, after, rows

FINAL = ("Completed", "Rejected", "Cancelled", "RolledBack", "Failed")
ARMED = ("Armed", "Applied", "Moving", "Completed")
COLUMNS = {
    "raw": ("id", "k", "v", "tag"), "copy": ("id", "k", "v", "tag"), "few": ("id", "k", "v", "tag"),
    "out": ("id", "k", "total", "tag", "n", "code"),
}  # fmt: skip


class FailureError(Exception):
    """A promise that was broken."""


@dataclass
class Modification:
    """What the supervisor knows of a modification."""

    change: Change
    cancel: bool = False
    phase: str = "Submitted"
    cut: int | None = None
    error: str = ""
    was_armed: bool = False
    deaths: int = 0  # of the driver, since it was submitted
    deaths_armed: int = 0
    judged: bool = False


@dataclass
class Life:
    """One job: its modifications, its flow now, its files."""

    root: Path
    number: int
    first: Spec
    state: State = field(default_factory=State)
    begun: frozenset[int] = frozenset()  # ids of rows that an earlier life has had
    modifications: dict[int, Modification] = field(default_factory=dict)
    cuts: list[Cut] = field(default_factory=list)
    effective: list[tuple[int, Spec]] = field(default_factory=list)  # number, the flow before it
    forgotten: set[str] = field(default_factory=set)  # since the last modification
    removed: set[str] = field(default_factory=set)  # operators and sources that were removed and not forgotten
    _read: dict[str, dict[int, list[Row]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cuts = [Cut(-1, self.first)]

    @property
    def name(self) -> str:
        """Its directory's name."""
        return f"life-{self.number}"

    @property
    def spec(self) -> Spec:
        """What the flow is now."""
        return self.cuts[-1].spec

    # --- modifications ---

    def hear(self, told: dict[str, Any], pending: Modification | None) -> None:
        """Take in where a modification stands; `pending` is the one that was sent and not answered yet."""
        number, phase = told["number"], told["phase"]
        if number not in self.modifications:
            if pending is None:
                raise FailureError(f"modification {number} is none of ours: {told}")
            self.modifications[number] = pending
        one = self.modifications[number]
        if one.phase in FINAL and (one.phase, one.cut) != (phase, told["cut"]):
            raise FailureError(f"modification {number} {one.change} was {one.phase} at {one.cut}, and is now {told}")
        if one.was_armed and phase not in (*ARMED, "RolledBack", "Cancelled"):
            raise FailureError(f"modification {number} {one.change} was armed, and is lost: {told}")
        one.phase, one.cut, one.error = phase, told["cut"], told["error"]
        one.was_armed |= phase in ARMED

    def died(self) -> None:
        """The driver is gone."""
        for one in self.modifications.values():
            one.deaths += not one.judged
            one.deaths_armed += one.phase == "Armed"

    def judge(self) -> list[Modification]:
        """Take up all that have come to an end, in their order; raise where one is not what it must be."""
        found = []
        for number, one in sorted(self.modifications.items()):
            if one.phase not in FINAL:
                break
            if not one.judged:
                self._judge(number, one)
                one.judged = True
                found.append(one)
        return found

    def _judge(self, number: int, one: Modification) -> None:
        made, told = after(self.spec, one.change), f"modification {number} {one.change}"
        if one.phase == "Completed":
            if made is None:
                raise FailureError(f"{told} was applied, and does not fit {self.spec}")
            if one.cut is None or one.cut <= self.cuts[-1].epoch:
                raise FailureError(f"{told} has the cut {one.cut}, after {self.cuts[-1].epoch}")
            self.removed |= self.spec.ids
            self.removed -= made.ids
            self.effective.append((number, self.spec))
            self.cuts.append(Cut(one.cut, made, frozenset(self.forgotten)))
            self.forgotten.clear()
            return
        allowed = {
            "Rejected": made is None,
            "Cancelled": one.cancel,
            "Failed": one.deaths > 0 and not one.was_armed,
            "RolledBack": one.deaths_armed > 1 and one.error.startswith("the driver ended"),
        }[one.phase]
        if not allowed:
            raise FailureError(f"{told} of {self.spec} is {one.phase}: {one.error}")

    # --- rows ---

    def read(self, sink: str) -> dict[int, list[Row]]:
        """What a sink has: epoch -> rows. An epoch that was read is not read again."""
        known = self._read.setdefault(sink, {})
        for directory in (self.root / self.name / sink).glob("epoch=*"):
            epoch = int(directory.name.split("=")[1])
            if epoch not in known:
                known[epoch] = list(_lines(directory, COLUMNS[sink]))
        return known

    def ids(self, up_to: float = float("inf")) -> Counter[int]:
        """The rows of all epochs up to one, as they came in."""
        return Counter(row[0] for epoch, found in self.read("raw").items() if epoch <= up_to for row in found)

    def check(self, files: list[int], epoch: int, savepoint: Path) -> None:
        """Compare all sinks with the oracle, and the state with that of a savepoint of an epoch.

        Args:
            files: that must have been read, wholly and once.
            epoch: of the savepoint; None where there is none.
            savepoint: its directory.
        """
        self._read.clear()
        ids = self.ids()
        wanted = {row[0] for file in files for row in rows(file)} - self.begun
        repeated = [id for id, count in ids.items() if count > 1]
        lost, unknown = sorted(wanted - ids.keys()), sorted(ids.keys() - wanted)
        if repeated or lost or unknown:
            raise FailureError(f"rows: lost {_some(lost)}, repeated {_some(repeated)}, not fed {_some(unknown)}")
        oracle = Oracle(self.state, self.cuts)
        given = {row[0]: row for file in files for row in rows(file)}
        state: State | None = None
        everything = {sink: self.read(sink) for sink in COLUMNS}
        for each in sorted({*everything["raw"], *everything["out"], *everything["copy"], *everything["few"], epoch}):
            self._check_epoch(each, oracle, given, everything)
            state = oracle.state if each <= epoch else state
        oracle.reach(2**62)
        assert state is not None
        self._check_state(state, savepoint)

    def _check_epoch(
        self, epoch: int, oracle: Oracle, given: dict[int, Input], found: dict[str, dict[int, list[Row]]]
    ) -> None:
        expected = oracle.epoch(epoch, [given[row[0]] for row in found["raw"].get(epoch, [])])
        for sink, wanted in expected.items():
            have = Counter(found[sink].get(epoch, []))
            if have != wanted:
                more, less = have - wanted, wanted - have
                raise FailureError(
                    f"epoch {epoch} of sink {sink} under {oracle.reach(epoch)}: "
                    f"{less.total()} rows lost: {_some(sorted(less))}, {more.total()} too many: {_some(sorted(more))}"
                )

    def state_at(self, files: list[int], epoch: int) -> State:
        """What the operators keep after an epoch, by the oracle."""
        oracle, given = Oracle(self.state, self.cuts), {row[0]: row for file in files for row in rows(file)}
        for each, found in sorted(self.read("raw").items()):
            if each <= epoch:
                oracle.epoch(each, [given[row[0]] for row in found])
        spec, state = oracle.reach(epoch), oracle.state
        for id in {"seen", "few"} - spec.ids:
            getattr(state, id).clear()  # a savepoint has the state of the plan only
        return state

    def _check_state(self, state: State, savepoint: Path) -> None:
        wanted: dict[str, dict[int, tuple[int, ...]]] = {
            "totals": {k: (state.totals[k], state.n[k]) for k in state.n},
            **{id: {k: (n,) for k, n in getattr(state, id).items()} for id in self.spec.ids & {"seen", "few"}},
        }
        columns = {"totals": ("total", "n"), "seen": ("seen",), "few": ("few",)}
        for id, expected in wanted.items():
            found = pq.read_table(savepoint / "state" / id / "record").to_pylist()
            have = Counter((row["k"], *(row[column] for column in columns[id])) for row in found)
            if have != Counter((k, *values) for k, values in expected.items()):
                raise FailureError(f"the state of {id!r} is {sorted(have.elements())} and should be {expected}")


def files_of(fed: dict[int, int]) -> list[int]:
    """The numbers of all files: of the first source (birth 0), and of each birth of the second."""
    return [first_file(birth) + i for birth, count in fed.items() for i in range(count)]


def first_file(birth: int) -> int:
    """The number of the first file of a source."""
    return (EXTRA // 100 + birth * 100_000) if birth else 0


def _lines(directory: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    for file in sorted(directory.glob("*.json")):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            yield tuple(row[column] for column in columns)


def _some(found: list[Any]) -> str:
    return f"{len(found)} {found[:5]}"
