"""The change log: what is written is read back, the file is the report, and damage is said with its name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from midstream.checkpoint.records import Report
from midstream.checkpoint.storage import Storage
from midstream.errors import StateError
from midstream.state import changelog
from midstream.state.changelog import Latest, Log, LogWriter, read_report

Changes = dict[bytes, bytes | None]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """Give an empty checkpoint."""
    return Storage(str(tmp_path))


def write(storage: Storage, groups: dict[int, Changes], report: Report | None = None) -> str:
    log = LogWriter()
    for group, changes in groups.items():
        log.add(group, list(changes), list(changes.values()))
    return log.write(storage, "state/sums/log/0/run", report or Report(operator="sums", slot=3))


def read(log: Log, group: int) -> Changes | None:
    found = log.changes(group)
    if found is None:
        return None
    once = {**dict(found.puts()), **dict.fromkeys(found.deletes())}
    assert {**dict(found.puts()), **dict.fromkeys(found.deletes())} == once  # may be read several times
    return once


def matrix(*rows: bytes) -> Any:
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)


# --- there and back -------------------------------------------------------------------------------------------------

changes = st.dictionaries(st.binary(max_size=5), st.binary(max_size=5) | st.none(), max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.integers(0, 200), changes, max_size=4))
def test_what_each_group_changed_is_read_back(storage: Storage, groups: dict[int, Changes]):
    log = Log(storage, write(storage, groups))
    assert {group: read(log, group) for group in groups} == groups
    assert read(log, 201) is None


def test_records_of_one_width_are_read_back(storage: Storage):
    log = LogWriter()
    log.add_fixed(4, matrix(b"\0a", b"\xff\0"), matrix(b"123", b"\0\0\0"))
    log.add_fixed(9, matrix(b"zz"), matrix(b"456"))
    found = Log(storage, log.write(storage, "log", Report(operator="sums", slot=0)))
    assert read(found, 4) == {b"\0a": b"123", b"\xff\0": b"\0\0\0"}
    assert read(found, 9) == {b"zz": b"456"}


def test_rows_out_of_the_middle_of_a_matrix_are_those_rows(storage: Storage):
    keys, values = matrix(b"a0", b"b0", b"c0", b"d0"), matrix(b"1", b"2", b"3", b"4")
    log = LogWriter()
    log.add_fixed(0, keys[1:3], values[1:3])
    log.add_fixed(1, keys[::2], values[::2])
    found = Log(storage, log.write(storage, "log", Report(operator="sums", slot=0)))
    assert read(found, 0) == {b"b0": b"2", b"c0": b"3"}
    assert read(found, 1) == {b"a0": b"1", b"c0": b"3"}


def test_groups_of_several_widths_share_a_file(storage: Storage):
    log = LogWriter()
    log.add_fixed(0, matrix(b"ab"), matrix(b"123"))
    log.add_fixed(1, matrix(b"abc"), matrix(b"1"))
    log.add(2, [b"x", b"yy"], [None, b""])
    found = Log(storage, log.write(storage, "log", Report(operator="sums", slot=0)))
    assert [read(found, group) for group in range(3)] == [{b"ab": b"123"}, {b"abc": b"1"}, {b"x": None, b"yy": b""}]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(changes, max_size=4))
def test_several_logs_leave_of_each_key_what_the_last_one_says(storage: Storage, logs: list[Changes]):
    found = Latest(found for each in logs if (found := Log(storage, write(storage, {7: each})).changes(7)))
    left: Changes = {}
    for each in logs:
        left |= each
    assert {**dict(found.puts()), **dict.fromkeys(found.deletes())} == left


def test_a_log_beyond_what_plain_binary_can_count_is_written_with_long_offsets(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(changelog, "_MOST_IN_BINARY", 10)
    groups: dict[int, Changes] = {1: {b"a": b"1" * 20, b"b": None}, 2: {b"c": b""}}
    log = Log(storage, write(storage, groups))
    assert {group: read(log, group) for group in groups} == groups


def test_a_slot_that_changed_nothing_writes_a_report(storage: Storage):
    path = write(storage, {})
    assert read_report(storage, path).groups == []
    assert Log(storage, path).changes(0) is None


# --- the report -----------------------------------------------------------------------------------------------------


def test_the_file_is_the_report(storage: Storage):
    report = Report(
        operator="sums",
        slot=3,
        rows=10,
        keys=4,
        deadlines={5: (1, None), 7: (None, None)},
        snapshots=[(5, 2, "c", "path", 4096, 17)],
        restored=1,
        times={"read": 0.5},
    )
    path = write(storage, {7: {b"a": b"1", b"b": None}, 5: {b"c": b"2"}}, report)
    found = read_report(storage, path)
    assert found == report
    assert found.groups == [(7, 2), (5, 1)]


def content(storage: Storage, groups: dict[int, Changes]) -> int:
    return read_report(storage, write(storage, groups)).content


def test_equal_changes_have_equal_content_and_other_changes_other_content(storage: Storage):
    one: dict[int, Changes] = {1: {b"a": b"1", b"b": None}, 2: {b"c": b"2"}}
    assert content(storage, one) == content(storage, one)
    others: list[dict[int, Changes]] = [
        {1: {b"a": b"1", b"b": b""}, 2: {b"c": b"2"}},
        {1: {b"a": b"1", b"b": None}, 2: {b"c": b"3"}},
        {1: {b"a": b"1"}, 2: {b"c": b"2"}},
        {},
    ]
    assert content(storage, one) not in [content(storage, other) for other in others]


def test_the_values_may_be_left_out_of_the_content(storage: Storage):
    def without_values(value: bytes, key: bytes = b"a") -> int:
        log = LogWriter()
        log.add(0, [key], [value])
        path = log.write(storage, "log", Report(operator="sums", slot=0), content=False)
        return read_report(storage, path).content

    assert without_values(b"1") == without_values(b"2") != without_values(b"1", b"b")


def test_two_attempts_write_two_files(storage: Storage):
    groups: dict[int, Changes] = {1: {b"a": b"1"}}
    one, other = write(storage, groups), write(storage, groups)
    assert one != other
    assert os.path.basename(one).startswith("0003-")
    assert len(storage.list("state/sums/log/0/run")) == 2


# --- damage ---------------------------------------------------------------------------------------------------------


def cut(kept: float) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, int(path.stat().st_size * kept))


def flip(at: float) -> Callable[[Path], None]:
    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(len(content) * at)] ^= 1
        path.write_bytes(content)

    return flip


DAMAGE: dict[str, Callable[[Path], None]] = {
    "missing": Path.unlink,
    "empty": cut(0),
    "cut in the middle": cut(0.5),
    "cut at the end": cut(0.99),
    "a bit of the head": flip(0.01),
    "a bit of the data": flip(0.5),
    "a bit of the end": flip(0.999),
    "something else": lambda path: path.write_text("something else") and None,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_log_that_is_missing_or_damaged_is_refused_with_its_name(storage: Storage, damage: Callable[[Path], None]):
    path = write(storage, {1: {b"key %d" % i: b"value" * 10 for i in range(50)}})
    damage(Path(storage.path(path)))
    with pytest.raises(StateError) as refusal:
        Log(storage, path)
    assert f"the change log {storage.path(path)} is missing or damaged" in str(refusal.value)
    assert "start from a savepoint" in str(refusal.value)


def test_the_log_of_another_slot_under_this_name_is_refused(storage: Storage):
    one, other = write(storage, {1: {b"a": b"1"}}), write(storage, {1: {b"a": b"2"}})
    os.replace(storage.path(other), storage.path(one))
    with pytest.raises(StateError, match="its checksum does not match"):
        Log(storage, one)
