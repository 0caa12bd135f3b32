"""Compare the speed of two checkouts of Midstream on one machine, however noisy: their epochs take turns.

    python tools/compare.py ../before . --operator aggregate --rows 200000 --pairs 100

Each checkout has a driver of its own with the same count and sum per key; one waits while the other runs an epoch. The
figure is the median of the ratios of the pairs, with an interval by the bootstrap, and CPU time per epoch. Run it with
a Python that has what Midstream needs (`make test` makes one in .venv). It looks into /proc, so it needs Linux.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

OPERATORS = {"aggregate": "declared", "function": "per_key"}  # -> what builds it, in midstream.bench.contestants
FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
NAMES = ("before", "after")
Took = dict[str, list[float]]  # who -> seconds of each epoch


def drive(directory: str, operator: str, rows: int) -> None:
    """Be a driver: an epoch for each line of the input, answered by how long it took."""
    import time

    import midstream as ms
    from midstream.bench import contestants
    from midstream.bench.rows import Rows
    from midstream.bench.workbench import workbench
    from midstream.events import After, Event, Step

    begun = time.perf_counter()

    def listen(event: Event) -> None:
        nonlocal begun
        if isinstance(event, After) and event.step is Step.PUBLISH:
            print("took", time.perf_counter() - begun, flush=True)
            if not sys.stdin.readline():
                os._exit(0)
            begun = time.perf_counter()

    with workbench() as bench:
        bench.spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", FILES)  # alike for both
        flow = ms.Flow("compare")
        stream = flow.source("rows", Rows(1_000_000).stream(bench.spark, rows))
        getattr(contestants, OPERATORS[operator])(stream).sink("out", ms.sinks.noop())
        options = {"trigger": ms.every(0), "cache": f"{directory}/cache", "listener": listen}
        flow.start(f"{directory}/checkpoint", **options).await_termination()


class Driver:
    """A driver of one checkout."""

    def __init__(self, checkout: Path, directory: str, operator: str, rows: int) -> None:
        os.makedirs(directory)
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "PYSPARK_PYTHON": sys.executable}
        command = [sys.executable, __file__, "--drive", directory, "--operator", operator, "--rows", str(rows)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, env=environment, text=True, **pipes)

    def epoch(self, first: bool = False) -> float:
        """Run one epoch; give its seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if not first:
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("took "):
                return float(line.split()[1])
        raise SystemExit("a driver has ended by itself")

    def cpu_seconds(self) -> float:
        """CPU time of the driver, its JVM and its Python workers."""
        parents, seconds = dict[int, int](), dict[int, float]()
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            number = int(path.parent.name)
            parents[number] = int(fields[1])
            seconds[number] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        mine, grew = {self._process.pid}, True
        while grew:
            more = {number for number, parent in parents.items() if parent in mine} - mine
            mine, grew = mine | more, bool(more)
        return sum(seconds.get(number, 0.0) for number in mine)

    def end(self) -> None:
        """Let it go."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def turns(before: Path, after: Path, operator: str, rows: int, pairs: int) -> tuple[Took, dict[str, float]]:
    """Let epochs of both take turns, a third of them as warm-up; gives the seconds of each, and CPU per epoch."""
    with tempfile.TemporaryDirectory(prefix="midstream-compare-") as directory:
        drivers = {
            name: Driver(checkout.resolve(), f"{directory}/{name}", operator, rows)
            for name, checkout in zip(NAMES, (before, after), strict=True)
        }
        try:
            for driver in drivers.values():
                driver.epoch(first=True)
            for _ in range(pairs // 2):
                for driver in drivers.values():
                    driver.epoch()
            cpu = {name: driver.cpu_seconds() for name, driver in drivers.items()}
            took: Took = {name: [] for name in NAMES}
            for number in range(pairs):
                for name in NAMES if number % 2 else NAMES[::-1]:
                    took[name].append(drivers[name].epoch())
            cpu = {name: (driver.cpu_seconds() - cpu[name]) / pairs for name, driver in drivers.items()}
        finally:
            for driver in drivers.values():
                driver.end()
    return took, cpu


def compare(before: Path, after: Path, operator: str, rows: int, pairs: int, rounds: int) -> str:
    """Put the pairs of all rounds together: each has drivers of its own, since two JVMs are never quite alike."""
    took: Took = {name: [] for name in NAMES}
    cpu = dict.fromkeys(NAMES, 0.0)
    for number in range(rounds):
        order = (before, after) if number % 2 == 0 else (after, before)
        names = NAMES if number % 2 == 0 else NAMES[::-1]
        seconds, used = turns(*order, operator, rows, pairs)
        for name, given in zip(names, NAMES, strict=True):
            took[name] += seconds[given]
            cpu[name] += used[given] / rounds
        found = [b / a for a, b in zip(took["before"][-pairs:], took["after"][-pairs:], strict=True)]
        print(f"round {number + 1} of {rounds}: {median(found):.3f}", flush=True)
    ratios = [b / a for a, b in zip(took["before"], took["after"], strict=True)]
    drawn = sorted(median(random.choices(ratios, k=len(ratios))) for _ in range(2_000))
    return (
        f"{operator}, {rows:,} rows an epoch, {len(ratios)} pairs: {1e3 * median(took['before']):,.0f} ms before, "
        f"{1e3 * median(took['after']):,.0f} ms after; ratio {median(ratios):.3f}, 95 % of {drawn[50]:.3f} to "
        f"{drawn[1949]:.3f}; CPU {1e3 * cpu['before']:,.0f} and {1e3 * cpu['after']:,.0f} ms an epoch"
    )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, metavar="CHECKOUT", help="the one before, the one after")
    parser.add_argument("--operator", choices=OPERATORS, default="aggregate")
    parser.add_argument("--rows", type=int, default=200_000, help="rows per epoch")
    parser.add_argument("--pairs", type=int, default=100, help="epochs of each that count, in a round")
    parser.add_argument("--rounds", type=int, default=1, help="how often both are started anew")
    parser.add_argument("--drive", metavar="DIRECTORY", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        drive(given.drive, given.operator, given.rows)
    elif len(given.checkouts) != 2:
        parser.error("name two checkouts: the one before and the one after")
    else:
        before, after = given.checkouts
        print(compare(before, after, given.operator, given.rows, given.pairs, given.rounds))


if __name__ == "__main__":
    main()
