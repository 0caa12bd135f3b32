"""`make chaos`: jobs under random kills and modifications, one seed after the other, until the time is over.

    python -m tests.chaos --minutes 10            # seeds of its own, which are printed
    python -m tests.chaos --seed 7 --acts 20      # one again
    python -m tests.chaos --minutes 60 --cluster  # on a standalone cluster of three workers

A seed repeats what is done and where kills are aimed at; when exactly they hit is up to the machine. It ends with 1,
and keeps the directory of every seed that broke a promise.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from midstream.testing import Cluster, cluster
from tests.chaos.acts import Acts
from tests.chaos.life import FailureError
from tests.chaos.supervisor import Supervisor, Tally


def run(seed: int, acts: int, place: Cluster | None, tally: Tally) -> str:
    """Run one seed; gives why it failed, empty if it did not."""
    root = Path(tempfile.mkdtemp(prefix=f"midstream-chaos-{seed}-"))
    supervisor = Supervisor(seed, root, place, tally)
    why = ""
    try:
        Acts(supervisor).run(acts)
    except FailureError as error:
        why = str(error)
    except Exception:  # of this program: as bad, since it hides what it was to find
        why = traceback.format_exc()
    finally:
        supervisor.close()
        tally.counts["rows"] += sum(supervisor.life.ids().values())
        tally.counts["files"] += sum(supervisor.fed.values())
    if why:
        (root / "failure.txt").write_text(f"seed {seed}\n{why}\n")
        return f"{why}\n  kept in {root}"
    shutil.rmtree(root, ignore_errors=True)
    return ""


def main() -> int:
    """Run seeds; print each, and what has happened in all."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--minutes", type=float, default=0, help="begin seeds for this long; 0: one seed")
    parser.add_argument("--seed", type=int, default=None, help="the first seed")
    parser.add_argument("--acts", type=int, default=20, help="of each seed")
    parser.add_argument("--cluster", action="store_true", help="a standalone cluster of 3 workers, not local[2,4]")
    told = parser.parse_args()
    began, seed = time.monotonic(), told.seed if told.seed is not None else time.time_ns() // 10**9 % 10**6
    tally, failures = Tally(), {}
    while True:
        before = time.monotonic()
        with contextlib.ExitStack() as stack:
            place = stack.enter_context(cluster(workers=3)) if told.cluster else None
            why = run(seed, told.acts, place, tally)
        print(f"seed {seed}: {'FAILED: ' + why if why else 'clean'} ({time.monotonic() - before:.0f} s)", flush=True)
        if why:
            failures[seed] = why
        seed += 1
        if time.monotonic() - began >= told.minutes * 60:
            break
    print_tally(tally, time.monotonic() - began)
    print(f"{len(failures)} seeds failed: {', '.join(map(str, failures)) or 'none'}")
    return 1 if failures else 0


def print_tally(tally: Tally, seconds: float) -> None:
    """Print what has happened, by kind."""
    print(f"{seconds / 60:.1f} minutes; " + ", ".join(f"{n} {name}" for name, n in sorted(tally.counts.items())))
    print("kills: " + ", ".join(f"{n} {kind}" for kind, n in sorted(tally.kills.items())))
    print("acts: " + ", ".join(f"{n} {name}" for name, n in sorted(tally.acts.items())))
    for (kind, phase), n in sorted(tally.modifications.items()):
        print(f"  {kind:20} {phase:12} {n}")


if __name__ == "__main__":
    sys.exit(main())
