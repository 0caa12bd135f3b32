"""What a slot has changed, written as a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from midstream.checkpoint.records import Report
from midstream.checkpoint.storage import Storage
from midstream.state.changelog import LogWriter, read_report
from midstream.state.runs.file import RunFile
from midstream.state.runs.values import NumberValues
from midstream.state.runs.writer import Older, RunWriter
from tests.support.run_parts import Entries, entries_of, part_of

SUMS = np.dtype([("n", "<i8")])


def written(storage: Storage, log: LogWriter) -> tuple[RunFile, Report, str]:
    path = log.write(storage, "log", Report(operator="sums", slot=3))
    frame = int(path.rsplit("-", 1)[1].split(".")[0], 16)
    return RunFile(storage.buffer(path), frame, path), read_report(storage, path), path


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """Give an empty store."""
    return Storage(str(tmp_path))


def test_a_run_has_the_changes_of_each_group_in_the_order_of_keys_and_the_report(storage: Storage) -> None:
    log = RunWriter()
    log.add(5, [b"\1b", b"\1a", b"\2ccc"], [b"B", None, b"C"])
    log.add(2, [b"\1z"], [b"Z"])
    run, report, path = written(storage, log)
    assert entries_of(run.part(5)) == [(b"\1a", None), (b"\1b", b"B"), (b"\2ccc", b"C")]
    assert entries_of(run.part(2)) == [(b"\1z", b"Z")]
    assert report.groups == [(5, 3), (2, 1)]
    assert report.run == [(5, 3, 0), (2, 1, 0)]
    assert path.startswith("log/0003-")


def test_of_a_key_that_is_changed_twice_the_last_change_counts(storage: Storage) -> None:
    log = RunWriter()
    log.add(0, [b"\1a", b"\1b", b"\1c", b"\1b", b"\1a"], [b"1", b"1", b"1", None, b"2"])
    run, _, _ = written(storage, log)
    assert entries_of(run.part(0)) == [(b"\1a", b"2"), (b"\1b", None), (b"\1c", b"1")]


def test_values_of_known_numbers_are_columns(storage: Storage) -> None:
    keys = np.frombuffer(b"\1\1" + bytes(7) + b"\2" + b"\1\1" + bytes(7) + b"\1", np.uint8).reshape(2, 10)
    log = RunWriter()
    log.add_fixed(0, keys, np.array([20, 10]).view(np.uint8).reshape(2, 8), SUMS)
    run, _, _ = written(storage, log)
    values = run.part(0).values
    assert isinstance(values, NumberValues)
    assert values.columns[0].tolist() == [10, 20]


def older(*runs: Entries, whole: bool) -> Older:
    return Older([part_of(entries) for entries in runs], whole)


def test_older_runs_are_merged_with_what_is_written(storage: Storage) -> None:
    log = RunWriter()
    log.add(0, [b"\1a", b"\1b"], [b"new", None])
    log.older = {
        0: older({b"\1b": b"2"}, {b"\1a": b"1", b"\1c": b"1"}, whole=False),  # something lies below: \1b stays deleted
        1: older({b"\1k": b"2"}, {b"\1k": b"1"}, whole=True),  # has not changed in this epoch
        2: older({b"\1x": None}, {b"\1x": b"1"}, whole=True),  # nothing is left
    }
    run, report, _ = written(storage, log)
    assert entries_of(run.part(0)) == [(b"\1a", b"new"), (b"\1b", None), (b"\1c", b"1")]
    assert entries_of(run.part(1)) == [(b"\1k", b"2")]
    assert sorted(run.extents) == [0, 1]
    assert report.run == [(0, 3, 2), (1, 1, 2), (2, 0, 2)]
    assert report.groups == [(0, 2)], "what the epoch has changed, whatever is merged with it"


def test_an_epoch_without_changes_leaves_its_report(storage: Storage) -> None:
    run, report, _ = written(storage, RunWriter())
    assert run.extents == {}
    assert report.groups == []


def test_the_same_changes_have_the_same_checksum_as_in_a_plain_log(storage: Storage) -> None:
    reports = [Report(operator="sums", slot=0) for _ in range(2)]
    for log, report in zip((RunWriter(), LogWriter()), reports, strict=True):
        log.add(1, [b"\1a"], [b"A"])
        log.write(storage, "log", report)
    assert reports[0].content == reports[1].content
