"""What is done to the job, at random: each act leaves it running, and its modifications judged."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tests.chaos.life import FailureError, Life, Modification, files_of
from tests.chaos.model import Change, Spec, after
from tests.chaos.supervisor import EXCHANGE, PHASES, STEPS, Supervisor

SOURCES = ("add source", "remove source")


class Acts:
    """All that can be done to the job of a supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._s, self._chance, self._number, self._saved = supervisor, supervisor.chance, 0, 0

    def run(self, count: int) -> None:
        """Do this many acts, then compare everything."""
        acts: dict[Callable[[], None], int] = {
            self.modify: 10, self.queue: 2, self.cancel: 2, self.undo: 2, self.shadow: 2, self.forget: 3, self.kill: 2,
            self.restart: 1, self.available_now: 2, self.check: 1, self.savepoint: 1,
        }  # fmt: skip
        for _ in range(count):
            (act,) = self._chance.choices(list(acts), list(acts.values()))
            self._s.tally.acts[act.__name__] += 1
            act()
        self._s.tally.acts["check"] += 1
        self.check()

    # --- changes ---

    def _new(self) -> int:
        self._number += 1
        return self._number

    def change(self, spec: Spec, kinds: list[str] | None = None) -> Change:
        """Choose a change that fits a flow."""
        possible: list[Change] = [
            ("replace stateless", self._new()),
            ("replace stateful", self._new()),
            ("insert stateless", self._new(), self._chance.choice(["totals", spec.first()])),
            ("insert stateful", self._chance.choice(["totals", spec.first()])),
            ("rescale", self._chance.choice([n for n in (1, 2, 3, 5) if n != spec.slots])),
            ("tune", self._chance.choice([n for n in (3, 10, 1000) if n != spec.batch])),
            ("remove stateless",), ("remove stateful",), ("add sink",), ("remove sink",), ("add branch",),
            ("remove branch",), ("add source", self._s.birth), ("remove source",), ("several",), ("whole flow",),
        ]  # fmt: skip
        fitting = [one for one in possible if one[0] in ("several", "whole flow") or after(spec, one) is not None]
        chosen = self._chance.choice([one for one in fitting if kinds is None or one[0] in kinds])
        if chosen[0] == "several":
            return self._several(spec)
        if chosen[0] == "whole flow":
            return self._whole(spec)
        return chosen

    def _several(self, spec: Spec) -> Change:
        steps: list[Change] = []
        for _ in range(self._chance.choice([2, 3])):
            step = self.change(spec, [k for k in ALONE if k not in [s[0] for s in steps]])
            made = after(spec, step)
            assert made is not None
            if not any(_undoes(step, other) for other in steps):
                steps.append(step)
                spec = made
        return ("several", *steps)

    def _whole(self, spec: Spec) -> Change:
        wanted = spec
        for _ in range(3):
            made = after(wanted, self.change(wanted, [k for k in ALONE if k != "rescale"]))
            wanted = made or wanted
        wanted = dataclasses.replace(wanted, code=self._new())
        return ("whole flow", dataclasses.asdict(wanted))

    def _may_aim(self, change: Change, chance: float = 0.6) -> None:
        if self._chance.random() < chance:
            points = [STEPS, PHASES, PHASES, *([EXCHANGE] * 2 if change[0] in SOURCES else [])]
            self._s.aim(self._chance.choice(points))

    # --- acts ---

    def modify(self) -> None:
        """Change the job, and wait for the end of that; kills come in between."""
        self._modify(self.change(self._s.life.spec))

    def _modify(self, change: Change) -> list[Modification]:
        self._leave_source(change)
        self._may_aim(change)
        self._s.submit(change)
        judged = self._s.settle()
        self._s.feeding = True
        return judged

    def _leave_source(self, change: Change) -> None:
        """Where the second source goes, let all its rows come out before, and feed it no more."""
        made = after(self._s.life.spec, change)
        if self._s.life.spec.extra and made is not None and not made.extra:
            self._s.drain()
            self._s.feeding = False

    def queue(self) -> None:
        """Change the job twice or three times without waiting."""
        spec = self._s.life.spec
        self._may_aim(("queue",))
        for _ in range(self._chance.choice([2, 3])):
            change = self.change(spec, ALONE)
            spec = after(spec, change) or spec
            self._s.submit(change)
        self._s.settle()

    def cancel(self) -> None:
        """Change the job and take it back at once; either is right."""
        self._may_aim(("cancel",), 0.3)
        self._s.submit(self.change(self._s.life.spec, ALONE), cancel=True)
        self._s.settle()

    def undo(self) -> None:
        """Take the last modification back."""
        life = self._s.life
        if life.effective and "extra" not in life.forgotten:
            number, before = life.effective[-1]
            self._modify(("undo", number, dataclasses.asdict(before)))

    def shadow(self) -> None:
        """Let a changed plan run beside the job, then take it or leave it."""
        s, change = self._s, self.change(self._s.life.spec, [k for k in ALONE if k != "tune"])
        if s.ask("shadow", change=change) is None:
            return
        driver, until = s.driver, s.epoch + self._chance.choice([1, 2, 3])
        s.until(lambda: s.driver is not driver or s.epoch >= until, "no epoch is done")
        self._may_aim(change, 0.3)
        promote = self._chance.random() < 0.5
        if s.driver is not driver:
            return
        if promote:
            s.start()
            s.pending = Modification(change)
        answer = s.ask("end_shadow", promote=promote)
        if answer is not None and answer["gives"]["error"]:
            raise FailureError(f"the shadow of {change} has ended by itself: {answer['gives']['error']}")
        if promote:
            s.sent(answer, None if answer is None else answer["gives"]["number"])
            s.settle()
        s.tally.counts["shadows promoted" if promote else "shadows discarded"] += answer is not None

    def forget(self) -> None:
        """Remove an operator with state, or a source; forget it; bring it back under its id."""
        s = self._s
        if not s.life.removed:
            spec = s.life.spec
            removals = [c for c in (("remove stateful",), ("remove branch",), ("remove source",)) if after(spec, c)]
            self._modify(self._chance.choice(removals) if removals else self.change(spec, BACK))
        if not s.life.removed:
            return
        id = self._chance.choice(sorted(s.life.removed))
        self._may_aim(("forget",), 0.5)
        died = False
        while (answer := s.ask("forget", operator=id)) is None:
            died = True
        if "error" in answer and not (died and "to forget" in answer["error"]):
            raise FailureError(f"{id!r} cannot be forgotten: {answer}")
        s.life.removed.discard(id)
        s.life.forgotten.add(id)
        s.tally.counts[f"forgotten: {id}"] += 1
        if id == "extra":
            s.birth += 1
            (s.root / f"extra-{s.birth}").mkdir()
        back = {"seen": "insert stateful", "few": "add branch", "extra": "add source"}[id]
        if self._chance.random() < 0.7:
            self._modify(self.change(s.life.spec, [back]))

    def kill(self) -> None:
        """Kill something while nothing is changed."""
        s = self._s
        if self._chance.random() < 0.5:
            s.aim(STEPS)
        else:
            s.kill_now()
        until = s.epoch + 2
        s.until(lambda: s.epoch >= until, "no epoch is done after a kill")

    def restart(self) -> None:
        """Stop the job and start it again, killing it on its way perhaps."""
        self._s.stop()
        self._s.start(shot=self._chance.random() < 0.5)

    def available_now(self) -> None:
        """Stop the job, let it take what is there, and go on."""
        self._s.run_once(shot=self._chance.random() < 0.4)
        self._s.settle()

    def check(self) -> None:
        """Let all rows come out, and compare rows and state with the oracle."""
        s = self._s
        s.drain()
        s.feeding = False
        path, epoch = self._save()
        s.stop()
        s.life.check(files_of(s.fed), epoch, s.root / path)
        s.tally.counts["checks"] += 1
        s.feeding = True

    def savepoint(self) -> None:
        """Go on from a savepoint, in a new life; the old job may have gone on meanwhile."""
        s = self._s
        path, epoch = self._save()
        if self._chance.random() < 0.5:
            self.check()
        else:
            s.stop()
        old = s.life
        files = files_of(s.fed)
        begun = old.begun | frozenset(old.ids(up_to=epoch))
        s.tally.counts["rows"] += sum(old.ids().values())
        s.life = Life(s.root, old.number + 1, old.spec, old.state_at(files, epoch), begun)
        s.savepoint, s.epoch = str(s.root / path), -1
        s.tally.counts["lives from savepoints"] += 1
        s.start(shot=self._chance.random() < 0.3)

    def _save(self) -> tuple[str, int]:
        while True:
            self._s.until(lambda: self._s.epoch >= 0, "no epoch is done")
            self._saved += 1
            path = f"savepoint-{self._saved}"
            answer = self._s.ask("savepoint", path=str(self._s.root / path))
            if answer is not None:
                if "error" in answer:
                    raise FailureError(f"no savepoint: {answer}")
                return path, answer["gives"]


ALONE = [
    "replace stateless", "replace stateful", "insert stateless", "insert stateful", "remove stateless",
    "remove stateful", "rescale", "tune", "add sink", "remove sink", "add branch", "remove branch",
]  # fmt: skip
BACK = ["insert stateful", "add branch"]


def _undoes(step: Change, other: Change) -> bool:
    """Whether two steps of one modification would make nothing of it."""
    return str(step[0]).split(" ", 1)[-1] == str(other[0]).split(" ", 1)[-1]
