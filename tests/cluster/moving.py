"""Jobs on a real cluster, a program: a process has one session of Spark.

Each line of `SCENARIOS` is a run of the job of the fault tests, its groups moved while it runs: what it is told to do,
one modification after the other, and which fault strikes. `KILLED` are runs of another job, with or without standbys,
`JOINED` is one to which a third executor comes, and `OUTSIDE` one with a store and a strategy of another package.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

import midstream as ms
from midstream.checkpoint.layout import commit_file, home_of, log_directory
from midstream.events import Before, Event, Progress, Step
from midstream.modifications.changes import Change
from midstream.placement.anchor import anchored, executors, keep_executors
from midstream.testing import Cluster, cluster
from midstream.testing.spark_cluster import QUICK
from tests.cluster import joining, losing, outside
from tests.faults import workload
from tests.support.modifying import files_read

FILES = [workload.rows(number, 150, 101) for number in range(32)]  # of the input, one an epoch


class Scenario(NamedTuple):
    """What happens in a run."""

    steps: tuple[str, ...]  # modifications, by name
    fault: str = ""  # executor | driver
    when: str = ""  # before | during | after the last move

    @property
    def files(self) -> int:
        """How many files of the input there are."""
        return 8 * len(self.steps) if self.fault else 4 + 4 * len(self.steps)

    @property
    def moving(self) -> tuple[ms.Phase, ...]:
        """The phases in which state is on its way: of some strategies that is the epoch of the cut and no other."""
        at_once = self.steps[-1].split()[1] in AT_ONCE
        return (ms.Phase.ARMED,) if at_once else (ms.Phase.APPLIED, ms.Phase.MOVING)


STRATEGIES = ("all_at_once", "batched", "live", "on_demand", "parallel", "replicated", "restart")
AT_ONCE = ("all_at_once", "on_demand", "restart")
PRELUDE = {"in": (), "out": ("in all_at_once",), "drain": ()}  # a job begins with a slot on each of three executors
SCENARIOS = {
    "some strategies": Scenario(("in all_at_once", "out live", "drain on_demand")),
    "all strategies": Scenario(
        ("in all_at_once", "out live", "in on_demand", "out batched", "in replicated", "out parallel", "drain restart")
    ),
    **{f"executor killed {when}, {way}, {strategy}": Scenario((*PRELUDE[way], f"{way} {strategy}"), "executor", when)
       for strategy in STRATEGIES for when in ("before", "during", "after") for way in PRELUDE},
    **{f"driver killed, {way}, {strategy}": Scenario((*PRELUDE[way], f"{way} {strategy}"), "driver", "during")
       for strategy in STRATEGIES for way in PRELUDE},
}  # fmt: skip


JOINED = "an executor joins"  # two others
OUTSIDE = "store and strategy of another package"
KILLED = {"worker killed": 0, "worker killed, standbys": 1}  # -> how many second copies


def change(name: str, job: ms.Job) -> Change:
    """The modification of a name."""
    what, strategy = name.split()
    if what == "drain":
        return ms.drain(job.slots[0].executor, strategy=strategy)
    return ms.rescale(slots=3 if what == "out" else 2, strategy=strategy)


def run(spark: SparkSession, workers: Cluster, root: str, scenario: Scenario) -> dict[str, Any]:
    """Run to the end of the input; say what became of the modifications, and whether the fault has struck."""
    told: dict[str, Any] = {"fault": "", "accessed": 0, "restored": 0, "moved": [], "drained": []}
    begin, known, strike, quiet = threading.Event(), threading.Event(), threading.Event(), 0
    files = FILES[: scenario.files]
    if os.path.exists(f"{root}/fired.json"):  # it is the run after that
        scenario = scenario._replace(fault="")

    def listen(event: Event) -> None:
        if isinstance(event, Progress):
            known.wait()
            if event.epoch >= 2 or job.modifications:
                begin.set()
        if scenario.fault and not told["fault"] and (reason := strikes(event)):
            told["fault"], told["epoch"] = f"{scenario.fault} {reason}", event.epoch  # type: ignore[union-attr]
            strike.set()
        if isinstance(event, Progress):
            if job.modifications:  # its dry run takes longer than an epoch: wait, so that fewer epochs do
                job.modifications[-1].reached(ms.Phase.ARMED, 60)
            nonlocal quiet
            quiet = quiet + 1 if all(each.phase.is_final for each in job.modifications) else 0
            if quiet > 1 and event.epoch > 1 and not told["fault"]:
                told["accessed"] += sum(event.accessed.values())
                told["restored"] += sum(event.restored.values())

    def strikes(event: Event) -> str:
        """Say why the fault strikes now, if it does."""
        if not begin.is_set() or len(job.modifications) < len(scenario.steps):
            return ""
        phase = job.modifications[-1].phase
        if scenario.when == "during":
            here = isinstance(event, Before) and event.step is Step.RUN and phase in scenario.moving
        else:
            here = isinstance(event, Progress) and (phase is ms.Phase.COMPLETED) == (scenario.when == "after")
        return f"while the move is {phase.value}" if here else ""

    job = workload.start(spark, root, files=files, on_drift="keep", listener=listen)
    known.set()

    def kill() -> None:
        strike.wait()
        if scenario.when == "during":  # in mid-epoch, once a task has written its log
            while not is_written(told["epoch"]):
                time.sleep(0.001)
        if scenario.fault == "driver":
            told["processes"] = workers.processes  # they outlive it
            with open(f"{root}/fired.json", "w") as file:
                json.dump(told, file)
                file.flush()
                os.fsync(file.fileno())
            os.kill(os.getpid(), signal.SIGKILL)
        told["executors"] = sorted(executors(spark))
        workers.kill_worker(workers.workers[-1])
        told["in mid-epoch"] = not os.path.exists(f"{root}/checkpoint/{commit_file(told['epoch'])}")
        workers.add_worker()

    def is_written(epoch: int) -> bool:
        logs = (
            f"{root}/checkpoint/{log_directory(home_of(operator, 0), epoch)}" for operator in ("everything", "sums")
        )
        return any(files for log in logs for _, _, files in os.walk(log))

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    begin.wait(120)
    for name in scenario.steps if not job.modifications else ():
        if name.startswith("drain"):
            told["drained"].append(job.slots[0].executor)
        modification = job.modify(change(name, job))
        modification.reached(ms.Phase.COMPLETED, 300)
        told["moved"].append([name, modification.phase.value, modification.note, modification.error])
    job.await_termination()
    if strike.is_set():
        killer.join()
    told["owners"] = [[slot.operator, slot.slot, slot.executor, slot.groups] for slot in job.slots]
    saved = workload.outcome(job, root)
    told["outcome"] = {name: dict(found) for name, found in saved.items()}
    told["files"] = [list(files) for files, _ in files_read(root)]
    return told


def directory_of(name: str) -> str:
    """The directory of a scenario."""
    return name.replace(" ", "-").replace(",", "")


def recover(spark: SparkSession, workers: Cluster, told: dict[str, Any]) -> None:
    """See that the executor that was lost is replaced, though another one was drained; then ask for that one too."""
    if "executors" in told:
        until(lambda: not executors(spark).issuperset(told["executors"]), "Spark notices that one is lost")
    if told["moved"] and told["moved"][-1][1] == "Completed":
        until(lambda: executors(spark).isdisjoint(told["drained"]), "who is drained goes")
    wanted = len(workers.workers) - len(told["drained"])
    until(lambda: len(executors(spark)) >= wanted, "who is lost is replaced")
    if told["drained"]:
        keep_executors(spark, len(workers.workers))


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def main(root: str, names: Sequence[str]) -> None:
    """Run scenarios, one after the other, on one cluster; one of `KILLED`, or `JOINED`, has two workers at first."""
    with cluster(workers=2 if names[0] in (*KILLED, JOINED) else 3) as workers:
        executors_java = f"{QUICK} {os.environ.get('SPARK_SUBMIT_OPTS', '')}"  # as Spark starts the driver's
        spark = workers.session(spark__executor__extraJavaOptions=executors_java, spark__driver__extraJavaOptions=QUICK)
        spark.sparkContext.setLogLevel("ERROR")
        for name in names:
            directory = os.path.join(root, directory_of(name))
            os.makedirs(directory, exist_ok=True)
            if name in KILLED:
                told = losing.run(spark, workers, directory, KILLED[name])
            elif name == JOINED:
                told = joining.run(spark, workers, until)
            elif name == OUTSIDE:
                told = outside.run(spark, until)
            else:
                until(lambda: len(executors(spark)) == len(workers.workers), "every worker has an executor")
                told = run(spark, workers, directory, SCENARIOS[name])
                one, other = (anchored(spark, 3, executors(spark)) for _ in range(2))
                one.drop()
                told["apart"] = other.frame.storageLevel.useMemory  # it has not gone with the first
                other.drop()
                recover(spark, workers, told)
            with open(os.path.join(directory, "told.json"), "w") as file:
                json.dump(told, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
