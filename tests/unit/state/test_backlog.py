"""Rows that wait for the state of their group: kept as they were, until their group has made up for them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from midstream.checkpoint.records import Deferred
from midstream.checkpoint.storage import Storage
from midstream.errors import StateError
from midstream.state.backlog import left_over, read_rows, write_rows

ROWS = pa.record_batch({"key": pa.array([b"a", None, b""]), "n": pa.array([1, 2, None], pa.int32())})


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """Give a directory that does not exist yet."""
    return Storage(str(tmp_path / "checkpoint"))


@pytest.mark.parametrize("rows", [ROWS, ROWS[:0], ROWS[1:2]], ids=["all", "none", "a part"])
def test_rows_are_read_back_as_they_were_put_aside(storage: Storage, rows: pa.RecordBatch):
    path = write_rows(storage, "state/sums/backlog/7/run", rows)
    assert path.startswith("state/sums/backlog/7/run/")
    found = read_rows(storage, path)
    assert found.equals(rows)
    assert found.schema == rows.schema


def test_the_same_rows_put_aside_twice_are_two_files(storage: Storage):
    assert write_rows(storage, "aside", ROWS) != write_rows(storage, "aside", ROWS)
    assert len(storage.list("aside")) == 2


def test_no_bit_of_them_can_change_unnoticed(storage: Storage):
    path = write_rows(storage, "aside", ROWS)
    file = Path(storage.path(path))
    content = file.read_bytes()
    for bit in range(0, 8 * len(content), 37):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
        with pytest.raises(StateError, match="wait for their state, and are missing or damaged"):
            read_rows(storage, path)
    file.write_bytes(content)
    assert read_rows(storage, path).equals(ROWS)


@pytest.mark.parametrize("harm", ["gone", "empty", "cut off"])
def test_rows_that_are_lost_are_said_with_their_file(storage: Storage, harm: str):
    path = write_rows(storage, "aside", ROWS)
    file = Path(storage.path(path))
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(b"" if harm == "empty" else file.read_bytes()[:100])
    with pytest.raises(StateError, match=f"the rows in {file} wait .* Restore the file from a copy"):
        read_rows(storage, path)


def test_what_has_caught_up_waits_no_more():
    waiting = tuple(
        Deferred(epoch=epoch, clock=0, seed="", watermark=None, groups=groups, path=f"{epoch}")
        for epoch, groups in ((3, (1, 2)), (4, (2,)))
    )
    assert [each.groups for each in left_over(waiting, {1})] == [(2,), (2,)]
    assert left_over(waiting, {1, 2}) == ()


def test_without_a_group_that_has_caught_up_all_of_it_waits():
    waiting = (Deferred(epoch=3, clock=5, seed="s", watermark=7, groups=(1, 2), path="p", form="f"),)
    assert left_over(waiting, set()) == left_over(waiting, {9}) == waiting
    assert left_over((), {1}) == ()
