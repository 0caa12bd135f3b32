"""A driver of a job of `workload` in a process of its own, which waits before it commits an epoch until it is told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from midstream.events import Before, Event, Step
from tests.faults import workload
from tests.support.session import local


class Rival:
    """The other driver, seen from here."""

    def __init__(self, process: subprocess.Popen[str], said: Path) -> None:
        self._process, self._said = process, said

    def waits(self) -> None:
        """Wait until it is about to commit."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "waits\n", self._said.read_text()

    def goes_on(self) -> str:
        """Let it commit and go on to its end; give the error that it ends with, if any."""
        told, _ = self._process.communicate("go on\n", timeout=300)
        assert told.startswith("ended"), self._said.read_text()
        return told.removeprefix("ended").strip()


@contextmanager
def running(root: str, epoch: int) -> Iterator[Rival]:
    """Run the other driver."""
    command = [sys.executable, "-m", "tests.s3.rival", root, str(epoch)]
    said, pipe = Path(root, "said"), subprocess.PIPE
    with said.open("w") as errors:
        process = subprocess.Popen(
            command, cwd=Path(__file__).parents[2], stdin=pipe, stdout=pipe, stderr=errors, text=True
        )
    try:
        yield Rival(process, said)
    finally:
        process.kill()
        process.communicate()


def main(root: str, epoch: str) -> None:
    """Run the job."""

    def listen(event: Event) -> None:
        if isinstance(event, Before) and event.step is Step.COMMIT and event.epoch == int(epoch):
            print("waits", flush=True)
            sys.stdin.readline()

    try:
        workload.start(local(), root, listener=listen).await_termination()
        print("ended", flush=True)
    except Exception as error:
        print("ended", type(error).__name__, error, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
