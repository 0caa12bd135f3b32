"""The driver is killed with SIGKILL while its job is being modified; a restart leaves no trace of it.

What is armed is applied after the restart, what was not armed is not; rows and state are those of the old plan before
the reported cut and of the new one from it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from tests.faults.killing import killed
from tests.support.modifying import AT, EPOCHS, KINDS, Modified, cuts, expected, files_read, outcome
from tests.support.slow import slow

POINTS = [
    "before Submitted", "after Submitted", "before Validated", "after Validated", "before Prepared", "after Prepared",
    "before Armed", "after Armed",
    f"before journal {AT}", f"after journal {AT}", f"before run {AT}", f"after run {AT}",
    f"before commit {AT}", f"after commit {AT}", "before Applied", "after Applied", "before Completed",
    "after Completed", f"after publish {AT}",
]  # fmt: skip
EXCHANGE = ["after stopped", "after feeds", "after offsets", "after started"]  # of the query, for a source
# the gaps between two durable steps, one with each kind; `make test-all` runs the whole matrix
GAPS = [
    "after Submitted", "after Validated", "after Prepared", "after Armed", f"after journal {AT}", f"before run {AT}",
    f"after run {AT}", f"after commit {AT}", "after Applied", f"after publish {AT}", "before Armed", f"after run {AT}",
    "after Submitted", f"after journal {AT}", f"before commit {AT}",
]  # fmt: skip
SHORT = [
    *zip(KINDS, [*GAPS[6:], *GAPS[:6]], strict=True),
    ("add source", "after stopped"),
    ("add source", "after offsets"),
]
DRIVERS = {
    "each kind": SHORT,
    **{point: [(kind, point) for kind in KINDS] for point in POINTS},
    "exchange": [("add source", point) for point in EXCHANGE],
}


@pytest.mark.parametrize("driver", [driver if driver == "each kind" else slow(driver) for driver in DRIVERS])
def test_a_driver_killed_while_it_modifies_its_jobs_loses_and_repeats_nothing(
    spark: SparkSession, tmp_path: Path, driver: str
) -> None:
    cases = DRIVERS[driver]
    for dead, (kind, point) in zip(killed("tests.support.modifying", tmp_path, cases), cases, strict=True):
        assert dead.arrived == point, "the fault must have fired"
        job = Modified(spark, dead.root, kind, steps=[]).run(on_drift="keep")
        found = job.modifications
        cut = found[0].cut.epoch if found and found[0].cut is not None else None
        armed = point in EXCHANGE or POINTS.index(point) > POINTS.index("before Armed")
        assert cut in cuts(kind, AT) if armed else cut is None, (kind, point)
        if cut is not None:  # also where the driver died between the commit and the word that it is applied
            read = files_read(dead.root)[cut - 1][0].stop - 1
            assert found[0].cut.offsets["rows"] == f'{{"logOffset":{read}}}', (kind, point)  # type: ignore[union-attr]
        assert [m.phase for m in found] == ([] if point == "before Submitted" else [_end(armed)]), (kind, point)
        assert outcome(spark, dead.root, job) == expected(kind, cut, files_read(dead.root)), (kind, point)


def _end(armed: bool) -> ms.Phase:
    return ms.Phase.COMPLETED if armed else ms.Phase.FAILED


@pytest.mark.parametrize(("when", "phase"), [("first epoch", ms.Phase.ARMED), ("dry run", ms.Phase.FAILED)])
def test_a_modification_is_not_blamed_for_the_end_of_java(
    spark: SparkSession, tmp_path: Path, when: str, phase: ms.Phase
) -> None:
    (dead,) = killed("tests.faults.javaless", tmp_path, [(when,)])
    assert dead.arrived == f"{when}: {phase.value}"
    job = Modified(spark, dead.root, "replace stateful", steps=[]).run(on_drift="keep")
    is_applied = phase is ms.Phase.ARMED
    assert [m.phase for m in job.modifications] == [_end(is_applied)]
    assert outcome(spark, dead.root, job) == expected("replace stateful", AT if is_applied else None)


def test_code_that_kills_the_driver_in_its_first_epoch_is_given_up_after_the_second_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    killed("tests.support.modifying", tmp_path, [("lethal", "by itself")])
    ((root, _),) = killed("tests.support.modifying", tmp_path, [("lethal", "by itself")])
    job = Modified(spark, root, "lethal", steps=[]).run(on_drift="keep")
    assert [m.phase for m in job.modifications] == [ms.Phase.ROLLED_BACK]
    assert "the driver ended 2 times" in job.modifications[0].error
    assert job.status.epoch == EPOCHS - 1
    assert outcome(spark, root, job) == expected("none", None)
    assert os.path.exists(f"{root}/checkpoint")


def test_a_driver_killed_in_the_dry_run_goes_on_without_the_modification(spark: SparkSession, tmp_path: Path) -> None:
    ((root, _),) = killed("tests.support.modifying", tmp_path, [("lethal when tried", "by itself")])
    (record,) = Path(root, "checkpoint/modifications").iterdir()
    assert b'"phase":"Validated"' in record.read_bytes(), "it died in the dry run"
    job = Modified(spark, root, "none", steps=[]).run()
    assert [m.phase for m in job.modifications] == [ms.Phase.FAILED]
    assert "submit it again" in job.modifications[0].error
    assert outcome(spark, root, job) == expected("none", None)
    assert not os.path.exists(f"{root}/checkpoint/rehearsal"), "what it left is deleted"
