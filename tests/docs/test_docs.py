"""What the documentation shows is true: programs run, links lead somewhere, names and files exist."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream import api
from midstream.sinks.console import Console
from midstream.sinks.contract import Sink
from midstream.sinks.delta import Delta
from midstream.sinks.files import Files
from midstream.sinks.foreach_batch import ForeachBatch
from midstream.sinks.memory import Memory
from midstream.sinks.noop import Noop
from midstream.sinks.postgres import Postgres

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PROGRAMS = [ROOT / "README.md", ROOT / "docs" / "quickstart.md"]  # their ```python run blocks are one program each
SINKS = (Console, Delta, Files, ForeachBatch, Memory, Noop, Postgres)


class Block(NamedTuple):
    line: int  # of its first line in the page
    kind: str  # what stands after the three backticks
    text: str


def blocks(page: str) -> Iterator[Block]:
    for found in re.finditer(r"^```([^\n]*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        yield Block(page.count("\n", 0, found.start(2)) + 1, found[1].strip(), found[2])


def prose(page: str) -> str:
    return re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)


def anchors(page: str) -> set[str]:
    """The anchors that GitHub makes of headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.fixture
def empty_directory(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in an empty directory, and let Spark, whose process has begun elsewhere, do so too."""
    hadoop = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
    file_system = hadoop.FileSystem.getLocal(spark._jsc.hadoopConfiguration())
    before = file_system.getWorkingDirectory()
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # what `local_session` sets for a new session; ours has begun
    spark.sparkContext.pythonExec = sys.executable
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # where the default cache goes
    file_system.setWorkingDirectory(hadoop.Path(str(tmp_path)))
    yield tmp_path
    file_system.setWorkingDirectory(before)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
@pytest.mark.usefixtures("empty_directory")
def test_a_program_in_the_docs_prints_what_stands_below_it(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = [block for block in blocks(path.read_text()) if block.kind in ("python run", "text output")]
    assert any(block.kind == "text output" for block in program)
    names = {"__name__": f"the program in {path.name}"}
    for block in program:
        if block.kind == "python run":
            exec(compile("\n" * (block.line - 1) + block.text, str(path), "exec"), names)
        else:
            assert capsys.readouterr().out.strip() == block.text.strip(), f"{path.name}, line {block.line}"
    assert capsys.readouterr().out == "", "output that the page does not show"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path.read_text())):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.exists(), f"{path.name} links to {target}"
        assert not anchor or anchor in anchors(linked.read_text()), f"{path.name} links to {target}: no such heading"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_snippets_are_python(path: Path) -> None:
    for block in blocks(path.read_text()):
        if block.kind.split(" ")[0] == "python":
            compile(block.text, f"{path.name}, line {block.line}", "exec")


@cache
def source_files() -> set[str]:
    """Give how a page may name a source file: from the root, from the package, or by its own name in the package."""
    package = ROOT / "src" / "midstream"
    own = {name for file in package.rglob("*.py") for name in (str(file.relative_to(package)), file.name)}
    return own | {
        str(file.relative_to(ROOT))
        for part in ("src", "tests", "examples", "tools")
        for file in (ROOT / part).rglob("*.py")
    }


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_a_page_names_exist(path: Path) -> None:
    named = re.findall(r"`((?:[\w-]+/)*[\w-]+\.py)`", prose(path.read_text()))
    assert set(named) <= source_files()


@pytest.mark.parametrize("name", ms.__all__)
def test_a_public_name_has_a_docstring_and_stands_in_the_concepts(name: str) -> None:
    assert getattr(ms, name) is getattr(api, name), "and not a module of the same name"
    assert inspect.getdoc(getattr(ms, name))
    assert f"ms.{name}" in (ROOT / "docs" / "concepts.md").read_text()


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.__name__)
def test_the_table_of_sinks_gives_each_guarantee_as_the_sink_does(sink: type[Sink]) -> None:
    assert f"| {sink.guarantee} |" in (ROOT / "docs" / "sinks.md").read_text()


def test_the_table_of_packages_is_that_of_the_tree() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text[text.index("| package | what is in it |") : text.index("Where the names differ")]
    named = {
        name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1] if row else "")
    }
    there = {path.stem for path in (ROOT / "src" / "midstream").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert named == there - {"__init__", "__pycache__"}
