"""Files of runs: read as they were written, by others too, or refused."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.ipc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import StateError
from midstream.state.runs.file import RunFile, checksum_of_frame, encoded
from midstream.state.runs.keys import IntegerKeys
from midstream.state.runs.part import Part
from midstream.state.runs.values import NumberValues
from tests.support.run_parts import ENTRIES, Entries, entries_of, part_of

GROUPS = st.dictionaries(st.integers(0, 9), ENTRIES, min_size=1, max_size=4)
SUMS = np.dtype([("total", "<f8"), ("n", "<i8")])


def written(groups: dict[int, Entries]) -> pa.Buffer:
    return encoded({group: part_of(entries) for group, entries in groups.items()}, {"report": "{}"})


def opened(content: bytes | pa.Buffer, frame: int | None = None) -> RunFile:
    buffer = pa.py_buffer(content)
    return RunFile(buffer, checksum_of_frame(buffer) if frame is None else frame, "run.arrow")


def contents(run: RunFile) -> dict[int, list[tuple[bytes, bytes | None]]]:
    return {group: entries_of(run.part(group)) for group in run.extents}


def sums() -> Part:
    """The totals of keys 5 and 7."""
    numbers = NumberValues(SUMS, (np.array([1.5, 2.5]), np.array([3, 4])))
    return Part(IntegerKeys(b"\1\1", np.array([5, 7])), numbers)


@given(GROUPS)
def test_a_run_has_of_each_group_what_was_written(groups: dict[int, Entries]) -> None:
    run = opened(written(groups))
    assert contents(run) == {group: sorted(entries.items()) for group, entries in groups.items()}
    with pytest.raises(StateError, match="nothing of group 10, against the commit record"):
        run.part(10)


def test_a_run_is_read_by_pandas_and_duckdb_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    path.write_bytes(encoded({1: sums()}, {}).to_pybytes())
    with pa.memory_map(str(path)) as file:
        rows = duckdb.from_arrow(pa.ipc.open_file(file).read_all()).order("_key").fetchall()
        assert rows == [(5, 1.5, 3), (7, 2.5, 4)]
    frame = pd.read_feather(path)
    assert frame.to_dict("list") == {"_key": [5, 7], "total": [1.5, 2.5], "n": [3, 4]}


def test_what_else_the_footer_says_can_be_read_without_the_rest() -> None:
    assert pa.ipc.open_file(written({1: {b"\1a": b"b"}})).metadata[b"report"] == b"{}"


@pytest.mark.parametrize(
    "groups",
    [{3: {b"\1\1" + bytes(8): b"a"}, 5: {b"\1\1" + b"\2" * 8: None}}, {1: {b"\1x": b"1", b"\1yy": None}}],
    ids=["integers", "varied"],
)
def test_no_bit_of_a_run_changes_what_is_read(groups: dict[int, Entries]) -> None:
    whole = written(groups).to_pybytes()
    frame, wanted = checksum_of_frame(pa.py_buffer(whole)), contents(opened(whole))
    refused = 0
    for bit in range(0, len(whole) * 8, 3):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert contents(opened(bytes(flipped), frame)) == wanted  # what lies between the columns says nothing
        except StateError:
            refused += 1
    assert refused > len(whole) * 8 // 3 * 0.9


def test_a_run_that_is_cut_off_is_refused_by_name() -> None:
    whole = written({1: {b"\1a": b"b"}}).to_pybytes()
    frame = checksum_of_frame(pa.py_buffer(whole))
    for size in range(len(whole)):
        with pytest.raises(StateError, match=r"run run\.arrow is missing or damaged .*Restore it"):
            opened(whole[:size], frame)


def test_a_group_is_verified_when_it_is_looked_at_and_no_other() -> None:
    whole = bytearray(written({1: {b"\1aaaaaaaa": b"one"}, 2: {b"\1bbbbbbbb": b"two"}}).to_pybytes())
    frame = checksum_of_frame(pa.py_buffer(bytes(whole)))
    whole[whole.index(b"two")] ^= 1
    run = opened(bytes(whole), frame)
    assert entries_of(run.part(1)) == [(b"\1aaaaaaaa", b"one")]
    with pytest.raises(StateError, match="the checksum of group 2 does not match"):
        run.part(2)
