"""Work that nobody waits for: done in order, by one thread, in every process anew."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from midstream.state.background import in_background

SOURCE = str(Path(__file__).parents[3] / "src")


def test_it_is_done_in_order_by_one_thread_that_is_not_the_caller():
    seen: list[tuple[int, int]] = []
    started = threading.Event()
    in_background(started.wait)  # what comes meanwhile waits behind it
    for number in range(20):
        last = in_background(lambda number: seen.append((number, threading.get_ident())), number)
    assert seen == []
    started.set()
    last.result(timeout=30)
    assert [number for number, _ in seen] == list(range(20))
    (thread,) = {thread for _, thread in seen}
    assert thread != threading.get_ident()


def test_what_fails_says_so_to_who_asks_and_the_next_is_done():
    failed = in_background(int, "x")
    assert in_background(int, "7").result(timeout=30) == 7
    with pytest.raises(ValueError, match="invalid literal"):
        failed.result()


def test_a_process_that_was_forked_has_a_thread_of_its_own(tmp_path: Path):
    script = """
import os, sys
from midstream.state.background import in_background
assert in_background(os.getpid).result(timeout=30) == os.getpid()
child = os.fork()
if child == 0:
    done = in_background(os.getpid).result(timeout=30) == os.getpid()
    os._exit(0 if done else 1)
assert os.waitpid(child, 0)[1] == 0
in_background(open(sys.argv[1], "w").write, "done at the end")
"""
    command = [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "file")]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": SOURCE}, check=True, timeout=60)
    assert (tmp_path / "file").read_text() == "done at the end"
