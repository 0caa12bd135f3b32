"""The command: what it says of itself, what it refuses, how it ends. What its commands do is tested in tests/cli."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import midstream
from midstream import cli
from midstream.checkpoint.journal import Journal
from midstream.checkpoint.storage import Storage

SOURCE = str(Path(__file__).parents[2] / "src")
COMMANDS = {
    "demo", "sinks", "ingest", "nexmark generate", "nexmark run", "nexmark check", "nexmark bench", "bench throughput",
    "bench epoch", "bench modify", "bench endurance", "bench rescale", "bench windows", "bench idle", "bench ingest",
    "bench siege",
}  # fmt: skip


def commands(group: Any = None, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every command by its full name."""
    group = group or typer.main.get_command(cli.app)
    for part, command in group.commands.items():
        full = f"{name} {part}".strip()
        if hasattr(command, "commands"):
            yield from commands(command, full)
        else:
            yield full, command


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Give a function that runs the command, and gives its exit code and what it wrote."""

    def run(*arguments: str) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["midstream", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


def test_these_commands_are_there_and_every_option_says_what_it_is_for():
    found = dict(commands())
    assert found.keys() == COMMANDS
    assert not [name for name, command in found.items() if not command.help]
    assert not [(name, each.name) for name, command in found.items() for each in command.params if not each.help]


def test_it_says_its_version(run: Any):
    assert run("--version") == (0, f"midstream {midstream.__version__}\n", "")


def test_without_a_command_it_shows_those_that_there_are(run: Any):
    code, said, wrong = run()
    assert code == 2
    assert all(name.split()[0] in said + wrong for name in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["dance"], "dance"),
        (["demo", "--epochs", "0"], "--epochs"),
        (["demo", "--epochs", "many"], "--epochs"),
        (["ingest"], "--to"),
        (["ingest", "--to", "spool", "--max-bytes", "1"], "65536"),
        (["sinks"], "checkpoint"),
        (["nexmark", "run", "q1", "--out", "o", "--checkpoint", "c", "--modify", "no/such"], "no/such"),
        (["bench", "windows", "--overlaps", "1,many"], "write numbers, separated by commas, such as 1,100"),
    ],
)
def test_what_it_does_not_understand_is_refused_with_what_is_wrong(run: Any, arguments: list[str], complaint: str):
    code, _, wrong = run(*arguments)
    assert code == 2
    said = wrong.partition("Error")[2]  # above it stands how the command is used, with all its options
    assert complaint in " ".join(said.replace("│", " ").split()).lower()


def test_an_error_of_ours_is_a_message_and_not_a_traceback(run: Any, tmp_path: Path):
    code, said, wrong = run("sinks", str(tmp_path))
    assert (code, said, wrong) == (1, "", f"error: {tmp_path} is not a checkpoint of Midstream\n")
    Journal(Storage(str(tmp_path))).create("job", 4, "mdb")
    assert run("sinks", str(tmp_path))[::2] == (
        1,
        f"error: {tmp_path} has no committed epoch yet: nothing was published\n",
    )
    code, said, wrong = run("ingest", "--to", str(tmp_path / "spool"), "--listen", "everywhere")
    assert (code, said) == (1, "")
    assert wrong == "midstream: cannot listen on 'everywhere': write HOST:PORT, such as 127.0.0.1:7000\n"


def test_whoever_interrupts_it_sees_no_traceback(run: Any, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("midstream.job.sink_report.report", interrupted)
    code, said, wrong = run("sinks", "anywhere")
    assert code == 130
    assert "Traceback" not in said + wrong


def test_it_is_there_before_spark_and_arrow_are():
    script = "import json, sys, midstream.cli; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | {"PYTHONPATH": SOURCE}, capture_output=True, check=True
    )
    assert {"midstream", "typer"} <= {*json.loads(done.stdout)}
    assert not {"pyspark", "pyarrow", "numpy", "pandas"} & {*json.loads(done.stdout)}
