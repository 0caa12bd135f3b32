"""Runs the driver of the chaos run, feeds it, kills it, starts it again, and asks it for what an act wants."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.storage import IDENTITY
from midstream.testing import Cluster
from tests.chaos.life import FINAL, FailureError, Life, Modification, files_of, first_file
from tests.chaos.model import ROWS, Change, Spec, rows
from tests.chaos.processes import DAEMON, DRIVER, EXECUTOR, FATAL, JVM, WORKER, DriverProcess, is_gone

PATIENCE = 240.0  # seconds for anything that must happen
AHEAD = 3  # files that wait to be read
STEPS = [f"{when} {step}" for when in ("before", "after") for step in ("journal", "run", "commit", "publish")]
PHASES = [
    f"{when} {phase}"
    for when in ("before", "after")
    for phase in ("Submitted", "Validated", "Prepared", "Armed", "Applied", "Completed")
]
EXCHANGE = ["after stopped", "after feeds", "after offsets", "after started"]
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])


@dataclasses.dataclass
class Tally:
    """What has happened, by kind."""

    kills: Counter[str] = dataclasses.field(default_factory=Counter)
    modifications: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)
    acts: Counter[str] = dataclasses.field(default_factory=Counter)
    counts: Counter[str] = dataclasses.field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Take another one in."""
        for field in dataclasses.fields(self):
            getattr(self, field.name).update(getattr(other, field.name))


class Supervisor:
    """One job and its driver; a seed says what is done to it, as far as time does not."""

    def __init__(self, seed: int, root: Path, cluster: Cluster | None, tally: Tally) -> None:
        self.chance, self.root, self.tally = random.Random(seed), root, tally
        self._cluster = cluster
        self.life = Life(root, 0, Spec())
        self.fed: dict[int, int] = {0: 0}  # birth of the second source, 0 for the first -> files
        self.birth = 1
        self.feeding = True
        self.driver: DriverProcess | None = None
        self.savepoint: str | None = None  # to begin this life from
        self.pending: Modification | None = None
        self._is_up = False
        self._is_leaving = ""  # why the driver may end by itself
        self._shots: dict[int, str] = {}  # process -> kind, aimed at
        self._fired: dict[int, str] = {}
        self._answers: dict[int, dict[str, Any]] = {}
        self._asked = 0
        self.epoch = -1
        for name in ("input", "extra-1"):
            (root / name).mkdir(parents=True)

    # --- rows ---

    def feed(self) -> None:
        """Write files, as many as may wait."""
        if not self.feeding:
            return
        births = [0, self.life.spec.extra] if self.life.spec.extra and self._is_settled() else [0]
        have = sum(self.life.ids().values()) + len(self.life.begun)
        if sum(self.fed.values()) * ROWS - have < AHEAD * ROWS:
            for birth in births:
                self._write(birth)

    def _is_settled(self) -> bool:
        return self.pending is None and all(one.judged for one in self.life.modifications.values())

    def _write(self, birth: int) -> None:
        number = self.fed.get(birth, 0)
        directory = self.root / (f"extra-{birth}" if birth else "input")
        hidden = directory / f".{number:06}"
        columns = zip(*rows(first_file(birth) + number), strict=True)
        pq.write_table(pa.table([pa.array(c, pa.int64()) for c in columns], schema=SCHEMA), hidden)
        os.utime(hidden, (1_000_000 + number, 1_000_000 + number))  # Spark takes files in the order of their times
        hidden.rename(directory / f"{number:06}.parquet")
        self.fed[birth] = number + 1

    def is_drained(self) -> bool:
        """Whether all rows that were fed have come out."""
        return len(self.life.ids().keys() | self.life.begun) >= sum(self.fed.values()) * ROWS

    def drain(self) -> None:
        """Wait until all rows that were fed have come out."""
        self.feeding = False
        self.until(self.is_drained, "rows that were fed do not come out")
        self.feeding = True

    # --- the driver ---

    def start(self, *, once: bool = False, shot: bool = False) -> None:
        """Start the driver; wait until its job runs. Where it is killed on its way, start it again."""
        end = time.monotonic() + PATIENCE
        while not self._is_up:
            if self.driver is None:
                self._launch(once, self._aim_at_start() if shot else None)
                shot = False
            self._take(0.2)
            if time.monotonic() > end:
                raise FailureError("the job does not come up")
            if once and self.driver is None and not self._is_up:
                return  # it has ended already: killed, or at the end of its input

    def _launch(self, once: bool, shot: dict[str, Any] | None) -> None:
        life = self.life
        cluster = self._cluster
        self._is_leaving = "its input has ended" if once else ""
        self._shots, self._fired = {}, {}
        is_new = not (self.root / life.name / "checkpoint" / IDENTITY).exists()
        chosen = self.chance.choice([life.first, life.spec])  # the plan of the checkpoint is kept, whatever is given
        told = {
            "root": str(self.root), "life": life.name, "once": once, "interval": self.chance.choice([0, "100 ms"]),
            "spec": dataclasses.asdict(life.first if is_new else chosen),
            "savepoint": self.savepoint if is_new else None, "shot": shot,
            "cluster": None if cluster is None else {"directory": cluster.directory, "url": cluster.url},
        }  # fmt: skip
        self.driver = DriverProcess(told, self.root / "driver.log")
        if shot is not None:
            self._shots[self.driver.pid] = DRIVER
        self.tally.counts["starts"] += 1

    def _aim_at_start(self) -> dict[str, Any]:
        return {"point": self.chance.choice([*EXCHANGE[1:], *STEPS]), "process": 0, "delay": 0.0}

    def ask(self, what: str, **parameters: Any) -> dict[str, Any] | None:
        """Ask the driver; None if it is gone before it has answered."""
        self.start()
        self._asked += 1
        number, driver, end = self._asked, self.driver, time.monotonic() + PATIENCE
        assert driver is not None
        driver.tell({"id": number, "do": what, "with": parameters})
        while number not in self._answers:
            self._take(0.2)
            if self.driver is not driver:
                return None
            if time.monotonic() > end:
                raise FailureError(f"no answer to {what} {parameters}")
        return self._answers.pop(number)

    def until(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Wait for something; the driver is started again whenever it is gone."""
        end = time.monotonic() + PATIENCE
        while not condition():
            self.start()
            self._take(0.1)
            if time.monotonic() > end:
                raise FailureError(otherwise)

    def stop(self) -> None:
        """Let the job stop, and its process end."""
        while self.driver is not None:
            self._is_leaving = "it was stopped"
            self.ask("stop")
            self._await_exit()

    def _await_exit(self) -> None:
        end = time.monotonic() + PATIENCE
        while self.driver is not None:
            self._take(0.2)
            if time.monotonic() > end:
                raise FailureError("the driver does not end")

    def run_once(self, *, shot: bool) -> None:
        """Let the job take what is there and end by itself; it must leave nothing of that."""
        self.stop()
        wanted = {row[0] for file in files_of(self.fed) for row in rows(file)}
        done = False
        while not done:
            self.start(once=True, shot=shot)
            shot = False
            self._await_exit()
            done = not self._fired
        missing = wanted - self.life.ids().keys() - self.life.begun
        if missing:
            raise FailureError(f"available_now left {len(missing)} rows of {len(wanted)}: {sorted(missing)[:5]}")

    # --- kills ---

    def aim(self, points: list[str], kinds: list[str] | None = None) -> bool:
        """Have a process killed at a point, or a little after it; False if there is none of its kind."""
        self.start()
        assert self.driver is not None
        everywhere = [DRIVER, DRIVER, JVM, DAEMON, WORKER, *([EXECUTOR] if self._cluster else [])]
        kind = self.chance.choice(kinds or everywhere)
        found = self.driver.targets(kind, self._cluster.processes if self._cluster else [])
        if not found:
            return False
        process = self.chance.choice(found)
        delay = self.chance.choice([0.0, 0.0, self.chance.uniform(0, 0.4)])
        self._shots[process] = kind
        self.ask("aim", point=self.chance.choice(points), process=process, delay=delay)
        return True

    def kill_now(self) -> None:
        """Kill a process wherever it is."""
        self.start()
        assert self.driver is not None
        kind = self.chance.choice([DRIVER, JVM, DAEMON, WORKER, *([EXECUTOR] if self._cluster else [])])
        found = self.driver.targets(kind, self._cluster.processes if self._cluster else [])
        if found:
            process = self.chance.choice(found)
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
                self._shoot(process, kind)

    def _shoot(self, process: int, kind: str) -> None:
        self._fired[process] = kind
        end = time.monotonic() + 10
        while not is_gone(process):
            if time.monotonic() > end:
                raise FailureError(f"process {process} ({kind}) was killed, and lives")
            time.sleep(0.01)
        self.tally.kills[kind] += 1

    # --- what the driver says ---

    def _take(self, seconds: float) -> None:
        """Take in what the driver says."""
        self.feed()
        if self.driver is None:
            return
        try:
            told = self.driver.said.get(timeout=seconds)
        except queue.Empty:
            return
        with (self.root / "said.jsonl").open("a") as file:
            file.write(json.dumps({"at": time.time(), **told}) + "\n")
        if "java" in told:
            self.driver.java = told["java"]
        if "answer" in told:
            self._answers[told["answer"]] = told
        if "epoch" in told:
            self.epoch = told["epoch"]
            self.tally.counts["epochs"] += 1
        self.tally.counts["shots missed"] += "missed" in told
        if "shot" in told:
            self._shoot(told["shot"], self._shots[told["shot"]])
        for one in told.get("modifications", []):
            self.life.hear(one, self.pending)
        if told.get("started"):
            self._is_up = True
            if self.pending not in self.life.modifications.values():
                self.pending = None  # it never came to the journal
        if told.get("ended"):
            self._ended(told["error"])
        if "gone" in told:
            self._gone(told["gone"])

    def _ended(self, error: str) -> None:
        if error and not any(kind in FATAL for kind in self._fired.values()):
            raise FailureError(f"the job has ended by itself, after kills of {self._fired}: {error}")

    def _gone(self, code: int) -> None:
        assert self.driver is not None
        self.driver.end()
        if not any(kind in FATAL for kind in self._fired.values()) and (code or not self._is_leaving):
            raise FailureError(f"the driver has ended by itself with {code}, after kills of {self._fired}")
        self.driver, self._is_up = None, False
        if self.pending is not None and self.pending not in self.life.modifications.values():
            self.pending.deaths += 1  # it may be in the journal, and nobody has told its number
        self.life.died()
        self.tally.counts["deaths"] += any(kind in FATAL for kind in self._fired.values())

    # --- modifications ---

    def submit(self, change: Change, *, cancel: bool = False) -> None:
        """Send a modification; `settle` waits for its end."""
        self.start()
        self.pending = Modification(change, cancel)
        answer = self.ask("modify", change=change, cancel=cancel)
        self.sent(answer, None if answer is None else answer.get("gives"))

    def sent(self, answer: dict[str, Any] | None, number: int | None) -> None:
        """Take up the answer to a modification: its number, or nothing, if the driver is gone."""
        if answer is not None and number is None:
            raise FailureError(f"{self.pending} was not taken: {answer}")
        if number is not None and self.pending is not None:
            self.life.modifications.setdefault(number, self.pending)
            self.pending = None
        if answer is None:
            self.start()  # which says whether it came to the journal
            if self.pending is not None and self.pending in self.life.modifications.values():
                self.pending = None

    def settle(self) -> list[Modification]:
        """Wait until all modifications have come to an end, and judge them."""
        self.until(lambda: all(map(_is_over, self.life.modifications.values())), "a modification comes to no end")
        judged = self.life.judge()
        for one in judged:
            self.tally.modifications[(one.change[0], one.phase)] += 1
        return judged

    def close(self) -> None:
        """End all processes of the run."""
        if self.driver is not None:
            self.driver.end()
            self.driver = None


def _is_over(one: Modification) -> bool:
    """Whether a modification has come to its end; of one that ended with its job, the driver must be gone too."""
    return one.phase in FINAL and (one.phase != "Failed" or one.deaths > 0)
