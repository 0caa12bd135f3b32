"""The three walks of docs/architecture.md: files that are there, packages from high to low, not too many of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.test_layers import LEVEL, SOURCE

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
MOST = {"One row": 25, "One `job.modify(ms.replace": 18, "One `job.modify(ms.rescale": 24}  # walk -> files
STOP = re.compile(r"(\d+) ([a-z_/]+)")


def walks() -> dict[str, tuple[int, dict[str, list[tuple[int, str]]]]]:
    """Heading -> the number it names, and package -> its stops: number and file."""
    found = {}
    walk = re.compile(r"^### ([^\n]*): (\d+) files\n\n```\n(.*?)```", re.M | re.S)
    for heading, count, figure in walk.findall(PAGE.read_text()):
        rows = dict(line.split(maxsplit=1) for line in figure.splitlines())
        stops = {package: [(int(n), name) for n, name in STOP.findall(rest)] for package, rest in rows.items()}
        found[heading] = int(count), stops
    return found


@pytest.mark.parametrize("walk", MOST)
def test_a_walk_passes_files_that_are_there_each_once_and_no_more_than_it_may(walk: str) -> None:
    count, packages = next(found for heading, found in walks().items() if heading.startswith(walk))
    files = [SOURCE / package / f"{name}.py" for package, stops in packages.items() for _, name in stops]
    assert [str(file) for file in files if not file.is_file()] == []
    assert len(set(files)) == len(files) == count <= MOST[walk]
    assert sorted(number for stops in packages.values() for number, _ in stops) == list(range(1, count + 1))


@pytest.mark.parametrize("walk", MOST)
def test_a_walk_has_its_packages_from_high_to_low(walk: str) -> None:
    _, packages = next(found for heading, found in walks().items() if heading.startswith(walk))
    levels = [LEVEL[package] for package in packages]
    assert levels == sorted(set(levels))


@pytest.mark.parametrize("walk", MOST)
def test_a_walk_returns_once(walk: str) -> None:
    text = PAGE.read_text().split(f"### {walk}")[1].split("\n#")[0]
    assert text.count("*The return:*") == 1
