"""`midstream nexmark` as a process: a directory of events is there whole or not at all, and others are left alone."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.ingesting import environment


def start(*options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "midstream.cli", "nexmark", *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    )


def nexmark(*options: str) -> tuple[int, str, str]:
    """Run a command to its end: exit code, output, errors."""
    process = start(*options)
    out, errors = process.communicate(timeout=120)
    return process.returncode, out, errors


def generate(*options: str) -> tuple[int, str, str]:
    """Run `generate` to its end."""
    return nexmark("generate", *options)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a directory that the command has made, in one that was not there."""
    out = tmp_path_factory.mktemp("nexmark") / "new" / "events"
    code, said, errors = generate("--events", "5000", "--seed", "7", "--out-of-order", "20", "--out", str(out))
    assert code == 0, errors
    assert said.startswith(f"5000 events in {out}: 100 in person/, 300 in auction/, 4600 in bid/; ")
    return out


def test_all_events_are_there_and_nothing_else(made: Path) -> None:
    counts = {name: pq.read_table(made / name).num_rows for name in ("person", "auction", "bid")}
    assert counts == {"person": 100, "auction": 300, "bid": 4600}
    assert [entry.name for entry in made.parent.iterdir()] == ["events"]
    assert json.loads((made / "_nexmark.json").read_text()) == {
        "events": 5000, "seed": 7, "out_of_order": 20, "events_per_second": 1_000, "start": 1_767_225_600_000_000
    }  # fmt: skip


def test_ctrl_c_leaves_what_was_there(made: Path) -> None:
    before = sorted(made.rglob("*.parquet"))
    process = start("generate", "--events", "500000000", "--out", str(made))
    deadline = time.monotonic() + 120
    while not list(made.parent.glob(".events.*.partial/person/_temporary")):
        assert time.monotonic() < deadline, process.communicate()
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert [entry.name for entry in made.parent.iterdir()] == ["events"]
    assert sorted(made.rglob("*.parquet")) == before


@pytest.mark.slow
def test_an_earlier_result_is_replaced(made: Path) -> None:
    code, _, errors = generate("--events", "50", "--out", str(made))
    assert code == 0, errors
    assert pq.read_table(made / "bid").num_rows == 46
    assert json.loads((made / "_nexmark.json").read_text())["seed"] == 0
    assert [entry.name for entry in made.parent.iterdir()] == ["events"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--out", "."), "holds letter, which this command did not make"),
        (("--out", "../added"), "holds notes, which this command did not make"),
        (("--out", "letter"), "is a file; name a directory"),
        (("--out", "new", "--out-of-order", "953"), "must not be a multiple of 953"),
        (("--out", "new", "--seed", str(1 << 63)), "must be in [0, 2^63)"),
        (("--out", "new", "--events", "0"), "--events"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_made_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], complaint: str
) -> None:
    here, added = tmp_path / "here", tmp_path / "added"  # the second is one of ours, with something more
    for directory, names in ((here, ("letter",)), (added, ("_nexmark.json", "person", "notes"))):
        directory.mkdir()
        for name in names:
            (directory / name).touch()
    monkeypatch.chdir(here)
    code, _, errors = generate(*options)
    assert code != 0
    assert complaint in errors
    assert "Traceback" not in errors
    assert sorted(entry.name for entry in tmp_path.glob("*/*")) == ["_nexmark.json", "letter", "notes", "person"]


@pytest.mark.slow
def test_ctrl_c_stops_a_run_that_goes_on_with_the_same_command(tmp_path: Path) -> None:
    events = (
        "--events",
        "4000",
        "--rows-per-epoch",
        "100",
        "--events-per-second",
        "100",
        "--out",
        str(tmp_path / "out"),
    )
    run = ("run", "q5", *events, "--checkpoint", str(tmp_path / "job"))
    check = ("check", "q5", *events)
    process = start(*run)
    assert process.stderr is not None
    said = list(iter(process.stderr.readline, "epoch 0 of 40\n"))
    assert process.poll() is None, said
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert re.search(r"stopped after epoch \d+ of 40; run the same command again to continue", errors), errors
    assert "Traceback" not in errors
    code, said, errors = nexmark(*check)
    assert (code, "are missing" in said, "Traceback" in errors) == (1, True, False), said + errors
    code, _, errors = nexmark(*run)
    assert code == 0, errors
    code, said, _ = nexmark(*check)
    assert code == 0, said


def test_a_file_of_changes_that_is_not_there_is_refused() -> None:
    code, _, errors = nexmark("run", "q0", "--out", "o", "--checkpoint", "c", "--modify", "missing.py")
    assert (code, "'missing.py' does not exist" in errors, "Traceback" in errors) == (2, True, False), errors
