"""A picture of latencies: written in the form that its name says, whatever the number of contestants."""

from __future__ import annotations

from pathlib import Path

import pytest

from midstream.bench.chart import Course, draw

COURSES = {name: Course([(-1.0, 120.0), (0.0, 900.0), (1.0, 150.0)], 0.8) for name in ("live", "all_at_once")}


@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
@pytest.mark.parametrize("count", [1, 2])
def test_a_picture_is_written(tmp_path: Path, ending: str, begins: bytes, count: int):
    path = tmp_path / f"moves.{ending}"
    draw(dict(list(COURSES.items())[:count]), str(path))
    assert path.read_bytes().startswith(begins)


def test_every_contestant_is_named(tmp_path: Path):
    draw(COURSES, str(tmp_path / "moves.svg"))
    text = (tmp_path / "moves.svg").read_text()
    assert all(f"<!-- {name} -->" in text for name in COURSES)
