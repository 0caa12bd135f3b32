"""Every example runs, and prints what its docstring says that it prints."""

from __future__ import annotations

import importlib
import re
import textwrap
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def promised_output(docstring: str) -> str:
    """The indented lines at the end of a docstring."""
    block = re.search(r"prints[^\n]*:\n\n((?: {4}[^\n]*\n?)+)", textwrap.dedent(docstring))
    assert block, "the docstring of an example ends with 'It prints:' and the output, indented by four"
    return textwrap.dedent(block[1]).strip()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 60


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_its_docstring_says(
    path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    example = importlib.import_module(f"examples.{path.stem}")
    example.main(spark)
    assert capsys.readouterr().out.strip() == promised_output(example.__doc__ or "")
