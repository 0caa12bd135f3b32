"""A bounded stream as files: every position once, in order, in as many epochs as were asked for."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import PlanError
from midstream.nexmark.slices import ABOUT, CHUNK, Slices, write_slices


@given(st.integers(1, 50_000), st.integers(1, 20_000), st.integers(1, 4))
def test_every_position_is_in_one_chunk_and_they_follow_each_other(events: int, rows: int, files: int):
    found = list(Slices(events, rows, files))
    chunks = [chunk for file in found for chunk in file]
    assert [start for start, _ in chunks] == [0, *(end for _, end in chunks[:-1])]
    assert chunks[-1][1] == events
    assert all(0 < end - start <= CHUNK for start, end in chunks)
    assert len(found) == -(-events // rows) * files
    for first in range(0, len(found), files):
        size = sum(end - start for file in found[first : first + files] for start, end in file)
        assert size == min(rows, events - first // files * rows), "an epoch has its rows, the last one what is left"


def files(directory: Path) -> list[Path]:
    """In the order in which Spark takes them: by their times."""
    return sorted(directory.glob("slice-*.json"), key=lambda path: path.stat().st_mtime_ns)


def positions(paths: list[Path]) -> list[int]:
    lines = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return [position for line in lines for position in range(line["start"], line["end"])]


@pytest.mark.parametrize(("events", "rows", "tasks", "count"), [(25, 10, 4, 3), (25, 0, 4, 1), (5, 99, 1, 1)])
def test_files_have_the_order_of_their_times(tmp_path: Path, events: int, rows: int, tasks: int, count: int):
    assert write_slices(tmp_path / "slices", events, rows, tasks) == 1, "so few rows are no work for several tasks"
    found = files(tmp_path / "slices")
    assert len(found) == count
    assert positions(found) == list(range(events))
    assert all(a.stat().st_mtime < b.stat().st_mtime for a, b in pairwise(found))


def test_many_rows_are_shared_by_several_tasks(tmp_path: Path):
    assert write_slices(tmp_path / "slices", 5 * CHUNK, 2 * CHUNK, tasks=8) == 2
    assert len(files(tmp_path / "slices")) == 3 * 2
    assert positions(files(tmp_path / "slices")) == list(range(5 * CHUNK))


def test_what_is_there_is_found_again_and_its_times_are_mended(tmp_path: Path):
    write_slices(tmp_path, 25, 10, 1)
    for number, path in enumerate(reversed(files(tmp_path))):
        os.utime(path, (number, number))
    (tmp_path / "mine.txt").write_text("not ours")
    assert write_slices(tmp_path, 25, 10, tasks=9) == 1
    assert positions(files(tmp_path)) == list(range(25))


def test_the_number_of_files_is_that_of_the_first_time(tmp_path: Path):
    write_slices(tmp_path / "slices", 4 * CHUNK, 0, tasks=4)
    assert write_slices(tmp_path / "slices", 4 * CHUNK, 0, tasks=2) == 4


@pytest.mark.parametrize(("events", "rows"), [(0, 1), (-1, 1), (1, -1)])
def test_no_events_and_less_than_none_are_refused(tmp_path: Path, events: int, rows: int):
    with pytest.raises(PlanError, match=f"{events} events in epochs of {rows} are impossible"):
        write_slices(tmp_path / "slices", events, rows, 1)
    assert not (tmp_path / "slices").exists()


def test_other_slices_and_other_files_are_refused_and_left_alone(tmp_path: Path):
    write_slices(tmp_path / "slices", 25, 10, 1)
    with pytest.raises(PlanError, match="has 25 events in epochs of 10, not 26 in epochs of 10; name another"):
        write_slices(tmp_path / "slices", 26, 10, 1)
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "letter.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("others", "file"):
        with pytest.raises(PlanError, match=f"{name} is not a directory of slices; name an empty one"):
            write_slices(tmp_path / name, 25, 10, 1)
    assert (tmp_path / "others" / "letter.txt").read_text() == "mine"


def test_lost_files_are_noticed(tmp_path: Path):
    write_slices(tmp_path, 25, 10, 1)
    (tmp_path / "slice-000000001.json").unlink()
    with pytest.raises(PlanError, match=r"has lost 1 files, slice-000000001\.json first; delete it, and start again"):
        write_slices(tmp_path, 25, 10, 1)


def test_what_a_killed_process_left_is_no_hindrance(tmp_path: Path):
    left = tmp_path / f".slices.{os.getpid()}.partial"
    left.mkdir()
    (left / "slice-000000000.json").write_text("half a li")
    write_slices(tmp_path / "slices", 3, 0, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slices"]
    assert json.loads((tmp_path / "slices" / ABOUT).read_text()) == {"events": 3, "rows": 3, "files": 1}
