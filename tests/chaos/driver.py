"""The driver of the chaos run, in a process of its own: told what to do, it says what happens.

It is asked to kill a process at a point of the protocol, itself or another, and does so in the listener: `Shot`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

import midstream as ms
from midstream.checkpoint.storage import Storage
from midstream.errors import MidstreamError
from midstream.events import After, Before, Event, Exchanging, Modifying, Progress
from midstream.job.savepoint.manifest import read_manifest
from tests.chaos.flows import Flows
from tests.chaos.model import spec_of

GROUPS = 8
_SAYING = threading.Lock()


def say(**told: Any) -> None:
    """Tell the supervisor."""
    with _SAYING:
        print(json.dumps(told), flush=True)


@dataclass
class Shot:
    """Kills a process when the job comes to a point."""

    point: str
    process: int
    delay: float  # seconds after it; 0: right there, nothing happens between

    def fire(self) -> None:
        """Kill."""
        if self.delay:
            threading.Timer(self.delay, self._kill).start()
        else:
            self._kill()

    def _kill(self) -> None:
        if self.process == os.getpid():
            say(shot=self.process, point=self.point)  # nobody can say so afterwards
        try:
            os.kill(self.process, signal.SIGKILL)
        except ProcessLookupError:
            say(missed=self.process, point=self.point)  # it had ended by itself: that is no kill
        else:
            say(shot=self.process, point=self.point)


def name_of(event: Event) -> str:
    """Name a point, as a shot is aimed at it."""
    if isinstance(event, Modifying):
        return f"{'after' if event.written else 'before'} {event.phase}"
    if isinstance(event, Exchanging):
        return f"after {event.step}"
    if isinstance(event, (Before, After)):
        return f"{type(event).__name__.lower()} {event.step.value}"
    return ""


class Driver:
    """Runs a job and does what it is told."""

    def __init__(self, spark: Any, told: dict[str, Any]) -> None:
        self._flows = Flows(told["root"], told["life"])
        self._shot: Shot | None = Shot(**told["shot"]) if told["shot"] else None
        if self._shot is not None and not self._shot.process:
            self._shot.process = os.getpid()
        self._job: ms.Job | None = None
        self._shadow: ms.Shadow | None = None
        place = f"{told['root']}/{told['life']}"
        trigger = ms.available_now() if told["once"] else ms.every(told["interval"])
        job = self._flows.flow(spec_of(told["spec"])).start(
            f"{place}/checkpoint",
            trigger=trigger,
            on_drift="keep",
            savepoint=told["savepoint"],
            groups=GROUPS,
            cache=None if told["cluster"] else f"{place}/cache",
            cut_deadline="5 minutes",
            listener=self._listen,
        )
        self._job = job
        say(started=True, modifications=[self._told(one) for one in job.modifications])
        threading.Thread(target=self._watch, args=[job], daemon=True).start()

    def _watch(self, job: ms.Job) -> None:
        error = ""
        try:
            job.await_termination()
        except BaseException as failure:  # whatever it is, the supervisor judges it
            error = f"{type(failure).__name__}: {failure}"
        say(ended=True, error=error, modifications=[self._told(one) for one in job.modifications])
        os._exit(0 if not error else 3)

    def _told(self, one: ms.Modification) -> dict[str, Any]:
        cut = one.cut.epoch if one.cut is not None else None
        return {"number": one.number, "phase": one.phase.value, "cut": cut, "error": one.error}

    def _listen(self, event: Event) -> None:
        if isinstance(event, Modifying) and event.written and self._job is not None:
            known = [one for one in self._job.modifications if one.number == event.number]
            say(modifications=[self._told(one) for one in known])
        if isinstance(event, Progress):
            say(epoch=event.epoch)
        shot = self._shot
        if shot is not None and shot.point == name_of(event):
            self._shot = None
            shot.fire()

    def obey(self, told: dict[str, Any]) -> None:
        """Do what the supervisor says, and answer."""
        try:
            say(answer=told["id"], gives=getattr(self, f"do_{told['do']}")(**told["with"]))
        except MidstreamError as error:
            say(answer=told["id"], error=f"{type(error).__name__}: {error}")

    @property
    def job(self) -> ms.Job:
        """The job."""
        assert self._job is not None
        return self._job

    def do_modify(self, change: list[Any], cancel: bool) -> int:
        """Modify the job; the answer is the number."""
        if change[0] == "undo":
            one = next(one for one in self.job.modifications if one.number == change[1]).undo()
        else:
            one = self.job.modify(*self._flows.steps(tuple(change)))
        if cancel:
            with contextlib.suppress(ms.PlanError):  # it was applied already
                one.cancel()
        return one.number

    def do_shadow(self, change: list[Any]) -> None:
        """Run a changed plan beside the job."""
        self._shadow = self.job.shadow(*self._flows.steps(tuple(change)))

    def do_end_shadow(self, promote: bool) -> dict[str, Any]:
        """End the shadow."""
        assert self._shadow is not None
        shadow, number = self._shadow, 0
        if promote:
            number = shadow.promote().number
        else:
            shadow.discard()
        return {"epochs": shadow.epochs, "error": shadow.error, "number": number}

    def do_forget(self, operator: str) -> None:
        """Forget what a removed operator, or source, has left."""
        self.job.forget(operator)

    def do_savepoint(self, path: str) -> int:
        """Write a savepoint; the answer is its epoch."""
        return read_manifest(Storage.at(self.job.savepoint(path))).epoch

    def do_aim(self, point: str, process: int, delay: float) -> None:
        """Kill a process at the next point of this name."""
        self._shot = Shot(point, process or os.getpid(), delay)

    def do_stop(self) -> None:
        """Stop the job; the process ends with it."""
        self.job.stop()


def session(told: dict[str, Any]) -> Any:
    """The session: local, whose tasks may fail three times, or on the cluster that the supervisor runs."""
    if told["cluster"]:
        from midstream.testing import Cluster

        with open(os.path.join(told["cluster"]["directory"], "cluster.properties")) as file:
            secret = dict(line.split() for line in file.read().splitlines())["spark.authenticate.secret"]
        running = Cluster(told["cluster"]["directory"], 1, "1g", url=told["cluster"]["url"], _secret=secret)
        return running.session()
    from pyspark.sql import SparkSession

    from midstream.spark.session import QUICK_LOGS

    builder = SparkSession.builder.master("local[2,4]").config(map=QUICK_LOGS).config("spark.ui.enabled", "false")
    for name in ("driver.host", "driver.bindAddress"):
        builder = builder.config(f"spark.{name}", "127.0.0.1")
    return builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()


def main() -> None:
    """Start, then obey until the input ends or the process does."""
    told = json.loads(sys.stdin.readline())
    began = time.monotonic()
    spark = session(told)
    spark.sparkContext.setLogLevel("ERROR")
    say(java=spark.sparkContext._gateway.proc.pid, seconds=time.monotonic() - began)
    driver = Driver(spark, told)
    for line in sys.stdin:
        driver.obey(json.loads(line))


if __name__ == "__main__":
    main()
