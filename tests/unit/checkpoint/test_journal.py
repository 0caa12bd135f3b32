"""What is written down: it is read back as written, and damage is said with the file's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from midstream.checkpoint.journal import Journal
from midstream.checkpoint.layout import (
    FEEDS,
    FORGOTTEN,
    IDENTITY,
    commit_file,
    journal_file,
    modification_file,
    plan_file,
)
from midstream.checkpoint.offsets import Feed
from midstream.checkpoint.records import (
    FORMAT,
    Commit,
    Cut,
    Identity,
    Intent,
    LogRef,
    OperatorState,
    Phase,
    Record,
    SnapshotRef,
    Staged,
)
from midstream.checkpoint.storage import Storage
from midstream.errors import CheckpointError
from midstream.plan.plan import Plan, Source


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """Give the journal of an empty checkpoint."""
    return Journal(Storage(str(tmp_path / "checkpoint")))


def commit(epoch: int, id: str = "") -> Commit:
    state = OperatorState(
        logs=(LogRef(0, "state/sums/log/x.arrow", 12, ((3, 2, -1), (5, 1, 4))),),
        changed=(None, (epoch, "c"), None),
        snapshots=(None, SnapshotRef(1, "b", "state/sums/snapshot/x.mdb", 4096, 123), None),
        deadlines={1: (5, None), 2: (None, -7)},
        layouts={0: "by (x int): total double"},
    )
    return Commit(
        epoch=epoch,
        id=id or f"id-{epoch}",
        parent=f"id-{epoch - 1}",
        version=2,
        clock=1_700_000_000_000_000,
        offsets=('{"logOffset": 5}', "-"),
        operators={"sums": state, "none": OperatorState()},
        sinks=(Staged("out", "job", epoch, "/out/_staged", ("part-0.parquet",)),),
        event_times={"timed": -5},
        final=True,
    )


def intent(epoch: int) -> Intent:
    return Intent(epoch=epoch, version=2, clock=5, seed="ab")


UNSEALED = b'{"checksum": "0", "record": {"format": 5, "job": "j", "groups": 3}}'


def plan(version: int) -> Plan:
    return Plan(name="flow", operators=(Source(id="in", schema="x int"),), version=version)


# --- there and back -------------------------------------------------------------------------------------------------


def test_a_new_checkpoint_has_no_identity_plan_intent_or_commit(journal: Journal):
    assert (journal.identity(), journal.running_plan(), journal.intent(0), journal.newest_commit()) == (None,) * 4


def test_what_is_written_is_read_back(journal: Journal):
    journal.create("job", 64, "runs")
    journal.write_intent(intent(7))
    journal.write_commit(commit(7))
    journal.write_plan(plan(1))
    again = Journal(Storage(journal.storage.root))
    assert again.identity() == Identity(format=FORMAT, job="job", groups=64, store="runs")
    assert again.intent(7) == intent(7)
    assert again.commit(7) == commit(7) == again.newest_commit()
    assert again.plan(1) == plan(1)


def test_the_newest_is_the_one_of_the_highest_number_whatever_the_number_of_digits(journal: Journal):
    for number in (2, 11, 9, 100, 3):
        journal.write_commit(commit(number))
        journal.write_plan(plan(number))
    newest, newest_plan = journal.newest_commit(), journal.running_plan()
    assert newest is not None
    assert newest_plan is not None
    assert (newest.epoch, newest_plan.version) == (100, 100)


@pytest.mark.parametrize("phase", [Phase.PREPARED, Phase.ARMED, Phase.FAILED, Phase.ROLLED_BACK, Phase.REJECTED])
def test_the_plan_of_a_modification_that_was_not_applied_is_not_the_running_one(journal: Journal, phase: Phase):
    for version in (1, 2):
        journal.write_plan(plan(version))
    journal.write_modification(Record(number=1, what="", phase=phase, base=1, version=2))
    assert journal.running_plan() == plan(1)
    assert journal.next_version() == 3, "a number is never given twice"


def test_a_record_is_replaced_whole(journal: Journal):
    journal.write_commit(commit(1, "first"))
    journal.write_commit(commit(1, "second"))
    assert journal.commit(1).id == "second"
    assert journal.storage.list("commits") == ["000000000001.json"]


def test_the_offsets_of_an_epoch_are_what_spark_logged_behind_version_and_metadata(journal: Journal):
    journal.storage.write("spark/offsets/3", b'v1\n{"batchWatermarkMs":0}\n-\n{"logOffset": 5}\n-')
    assert journal.offsets(3) == ("-", '{"logOffset": 5}'), "sources at the end that were never read do not count"
    with pytest.raises(CheckpointError, match=r"Spark's offset log .*/spark/offsets/4 is missing"):
        journal.offsets(4)


def test_the_newest_two_entries_of_the_offset_log_are_rewritten_without_their_checksums(journal: Journal):
    for epoch in (8, 9, 10):
        journal.storage.write(f"spark/offsets/{epoch}", f"v1\n{{}}\n{epoch}".encode())
        journal.storage.write(f"spark/offsets/.{epoch}.crc", b"sum")
    fit = {"v1\n{}\n9": "v1\n{}\n9", "v1\n{}\n10": "v1\n{}\n10\n-"}
    assert journal.fit_offsets(lambda log, where: fit[log]) == 10
    assert journal.storage.read("spark/offsets/10") == b"v1\n{}\n10\n-"
    assert journal.storage.list("spark/offsets") == [".8.crc", ".9.crc", "10", "8", "9"]
    assert Journal(Storage(journal.storage.path("elsewhere"))).fit_offsets(lambda log, where: log) == -1


# --- forgetting -----------------------------------------------------------------------------------------------------


def test_the_record_and_the_intent_of_an_epoch_are_forgotten(journal: Journal):
    for epoch in range(3):
        journal.write_commit(commit(epoch))
        journal.write_intent(intent(epoch))
    journal.forget(1)
    journal.forget(1)
    assert journal.storage.list("commits") == ["000000000000.json", "000000000002.json"]
    assert journal.storage.list("journal") == ["000000000000.json", "000000000002.json"]


def test_what_a_cut_write_left_is_no_record(journal: Journal):
    journal.write_commit(commit(3))
    journal.storage.write_new("commits/000000000004.json.ab12.tmp", b"half")
    newest = journal.newest_commit()
    assert newest is not None
    assert newest.epoch == 3


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"", b"{", b'{"epoch": "seven"}', b"[]", b'{"epoch": 1}', b"\xff\xfe"])
def test_a_damaged_record_is_refused_with_its_file(journal: Journal, text: bytes):
    for path, read in (
        (commit_file(7), lambda: journal.commit(7)),
        (commit_file(7), journal.newest_commit),
        (journal_file(7), lambda: journal.intent(7)),
    ):
        journal.storage.write(path, text)
        with pytest.raises(CheckpointError) as refusal:
            read()
        assert str(refusal.value).startswith(f"{journal.storage.path(path)} is damaged (")
        assert "restore it from a copy of the checkpoint" in str(refusal.value)


def test_no_bit_of_a_record_can_be_another_one_without_being_noticed(journal: Journal):
    journal.create("job", 64, "runs")
    journal.write_intent(intent(7))
    journal.write_commit(commit(7))
    journal.write_plan(plan(1))
    journal.write_feeds((Feed(id="in", schema="x int"), Feed(id="")))
    journal.write_forgotten({"sums": 3})
    journal.write_modification(Record(number=1, what="replace 'big'", cut=Cut(3, {"in": "5"})))
    for path, read in (
        (IDENTITY, journal.identity),
        (commit_file(7), lambda: journal.commit(7)),
        (journal_file(7), lambda: journal.intent(7)),
        (plan_file(1), lambda: journal.plan(1)),
        (FEEDS, journal.feeds),
        (FORGOTTEN, journal.forgotten),
        (modification_file(1), journal.modifications),
    ):
        text = journal.storage.read(path)
        file = Path(journal.storage.path(path))
        for bit in range(0, len(text) * 8, 7):
            flipped = bytearray(text)
            flipped[bit // 8] ^= 1 << bit % 8
            file.write_bytes(flipped)
            with pytest.raises(CheckpointError):
                read()
        file.write_bytes(text)
        assert read() is not None


def test_a_record_that_is_gone_is_said_to_be_missing(journal: Journal):
    with pytest.raises(CheckpointError, match=r"commits/000000000007\.json is missing; restore it from a copy"):
        journal.commit(7)


@pytest.mark.parametrize("text", [None, b"", b'{"name": 1}'])
def test_a_plan_that_cannot_be_read_is_refused_with_its_version_and_file(journal: Journal, text: bytes | None):
    if text is not None:
        journal.storage.write(plan_file(4), text)
    with pytest.raises(CheckpointError, match=r"plan version 4 cannot be read from .*/plans/v000004\.json"):
        journal.plan(4)


@pytest.mark.parametrize("format", [0, 1, "2", 3])
def test_a_checkpoint_of_an_unknown_format_is_refused(journal: Journal, format: object):
    shown = '"2"' if format == "2" else str(format)
    journal.storage.write("midstream.json", f'{{"format": {shown}, "job": "j", "of the future": true}}'.encode())
    with pytest.raises(CheckpointError, match=f"has format {format}, this Midstream reads format {FORMAT}"):
        journal.identity()


@pytest.mark.parametrize("text", [b"", b"[1]", b'{"format": 5}', b'{"format": null}', UNSEALED])
def test_a_damaged_identity_is_refused_with_its_file(journal: Journal, text: bytes):
    journal.storage.write("midstream.json", text)
    with pytest.raises(CheckpointError, match=r"midstream\.json is damaged"):
        journal.identity()


@pytest.mark.parametrize("left", ["commits/000000000000.json", "spark/metadata"])
def test_a_checkpoint_without_identity_but_with_files_of_a_job_is_refused(journal: Journal, left: str):
    journal.storage.write(left, b"{}")
    with pytest.raises(CheckpointError, match=r"has files of a job but no midstream\.json"):
        journal.identity()
