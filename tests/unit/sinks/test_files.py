"""A directory of files, without Spark: who owns it, what is published to it, and what becomes of what is left over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from midstream import sinks
from midstream.checkpoint.records import Delivered, Staged
from midstream.errors import SinkError
from midstream.sinks.contract import LostRowsError, OtherHistoryError, Staging
from midstream.sinks.files import Files

SPARK: Any = None  # no file of this sink is published by Spark


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Give the directory of a sink, not there yet."""
    return tmp_path / "out"


def opened(out: Path, sink: str = "out", job: str = "job") -> Files:
    made = sinks.files(out)
    made.open(SPARK, sink, job)
    return made


def stage(out: Path, epoch: int, *numbers: int, run: str = "run", commit: str = "") -> Staged:
    """Put rows where the sink stages them, and say what a commit record would."""
    location = out / ".midstream" / "out" / f"{epoch}-{run}"
    location.mkdir(parents=True)
    names = [f"part-{i}-{run}.parquet" for i in range(len(numbers))]
    for name, number in zip(names, numbers, strict=True):
        pq.write_table(pa.table({"n": [number]}), location / name)
    return Staged("out", "job", epoch, str(location), tuple(names), commit or f"commit-{epoch}-{run}")


def visible(out: Path) -> list[tuple[int, int]]:
    """What a reader of Hive-style partitions sees: (epoch, n)."""
    table = pyarrow.dataset.dataset(out, partitioning="hive").to_table()
    return sorted(zip(table["epoch"].to_pylist(), table["n"].to_pylist(), strict=True)) if table.num_rows else []


# --- ownership ------------------------------------------------------------------------------------------------------


def test_a_directory_belongs_to_one_sink_of_one_job(out: Path):
    for _ in range(2):
        opened(out)
    assert json.loads((out / ".midstream" / "owner.json").read_text()) == {"job": "job", "sink": "out"}
    for sink, job in (("other", "job"), ("out", "other")):
        with pytest.raises(SinkError, match="belongs to sink 'out' of job job"):
            opened(out, sink, job)
    assert [path.name for path in (out / ".midstream").iterdir()] == ["owner.json"], "no draft is left"


def test_files_that_readers_ignore_are_no_strangers(out: Path):
    out.mkdir()
    (out / "_SUCCESS").touch()
    (out / ".DS_Store").touch()
    opened(out)
    assert (out / "_SUCCESS").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff"])
def test_an_owner_that_cannot_be_read_is_not_guessed(out: Path, content: bytes):
    (out / ".midstream").mkdir(parents=True)
    (out / ".midstream" / "owner.json").write_bytes(content)
    with pytest.raises(SinkError, match=f"sink 'out' cannot write to {out}: "):
        opened(out)


# --- publication ----------------------------------------------------------------------------------------------------


def test_an_epoch_is_there_once_it_is_published_and_only_once(out: Path):
    sink, first, second = opened(out), stage(out, 1, 10, 11), stage(out, 2, 20)
    assert visible(out) == []
    for staged, expected in ((first, [(1, 10), (1, 11)]), (second, [(1, 10), (1, 11), (2, 20)])):
        for _ in range(2):
            sink.publish(staged, SPARK)
            assert visible(out) == expected
            assert sink.published("out", "job") == Delivered(staged.epoch, staged.commit)


def test_an_epoch_without_rows_leaves_nothing(out: Path):
    sink = opened(out)
    sink.publish(Staged("out", "job", 3, str(out / "nowhere"), (), "c"), SPARK)
    assert sink.published("out", "job") is None
    assert [path.name for path in out.iterdir()] == [".midstream"]


def test_a_crash_behind_the_rename_and_before_the_note_is_made_up_for(out: Path):
    staged = stage(out, 1, 10)
    opened(out)
    Path(staged.location).rename(out / "epoch=1")
    again = opened(out)
    assert again.published("out", "job") == Delivered(1, ""), "the directory says it, but not of which commit"
    again.publish(staged, SPARK)
    assert again.published("out", "job") == Delivered(1, staged.commit)
    assert visible(out) == [(1, 10)]


def test_an_epoch_of_another_history_is_refused_and_stays(out: Path):
    sink = opened(out)
    for epoch in (1, 2):
        sink.publish(stage(out, epoch, epoch), SPARK)
    for other in (stage(out, 2, 99, run="other"), stage(out, 1, 99, run="other")):
        with pytest.raises(OtherHistoryError, match="has epoch 2 of commit commit-2-run"):
            opened(out).publish(other, SPARK)
    assert visible(out) == [(1, 1), (2, 2)]


def test_rows_that_were_staged_and_are_gone_are_missed(out: Path):
    sink, staged = opened(out), stage(out, 1, 10, 11)
    (Path(staged.location) / staged.files[1]).unlink()
    with pytest.raises(LostRowsError, match=rf"rows of epoch 1 .* {staged.files[1]} is gone"):
        sink.publish(staged, SPARK)
    assert visible(out) == []


def test_a_directory_that_is_emptied_while_the_job_runs_is_missed(out: Path):
    sink = opened(out)
    sink.publish(stage(out, 1, 10), SPARK)
    (out / "epoch=1").rename(out.parent / "elsewhere")
    (out / ".midstream" / "published.json").unlink()
    with pytest.raises(LostRowsError, match="was deleted, emptied or exchanged while the job ran: it had epoch 1"):
        sink.publish(stage(out, 2, 20), SPARK)


def test_older_epochs_may_be_deleted_or_compacted_by_others(out: Path):
    sink = opened(out)
    for epoch in (1, 2):
        sink.publish(stage(out, epoch, epoch), SPARK)
    for file in (out / "epoch=1").iterdir():
        file.unlink()
    (out / "epoch=1").rmdir()
    sink.publish(stage(out, 3, 30), SPARK)
    assert visible(out) == [(2, 2), (3, 30)]


def test_before_anything_was_published_there_is_nothing(out: Path):
    assert sinks.files(out).published("out", "job") is None
    (out / "epoch=x").mkdir(parents=True)
    assert sinks.files(out).published("out", "job") is None


# --- cleaning -------------------------------------------------------------------------------------------------------


def test_what_other_runs_left_goes_with_the_next_epoch_and_later_ones_stay(out: Path):
    sink = opened(out)
    for epoch, run in ((0, "lost"), (1, "lost"), (2, "later")):
        stage(out, epoch, epoch, run=run)
    staged = stage(out, 1, 10)
    sink.publish(staged, SPARK)
    for _ in range(2):
        sink.clean(staged)
        assert [path.name for path in (out / ".midstream" / "out").iterdir()] == ["2-later"]
    sink.clean(Staging("out", "job", 2, "later", "unused"))
    assert list((out / ".midstream" / "out").iterdir()) == []
    assert visible(out) == [(1, 10)]


# --- what it is told ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["json", "csv"])
@pytest.mark.parametrize("codec", ["none", "uncompressed", "gzip", "bzip2", "GZIP"])
def test_text_may_be_compressed_in_ways_that_others_read(format: Any, codec: str):
    assert codec in sinks.files("/out", format, compression=codec).describe()
    assert codec in sinks.files("/out", format, codec=codec).describe()


@pytest.mark.parametrize("name", ["compression", "Compression", "codec"])
def test_other_codecs_are_for_parquet_only_whatever_the_case_of_the_option(name: str):
    sinks.files("/out", **{name: "zstd"})
    with pytest.raises(SinkError, match=r"files\(format='json', compression='zstd'\) is not supported"):
        sinks.files("/out", "json", **{name: "zstd"})


def test_a_copy_knows_its_configuration_and_not_what_this_process_saw(out: Path):
    sink = opened(out)
    sink.publish(stage(out, 1, 10), SPARK)
    copy = cloudpickle.loads(cloudpickle.dumps(sink))
    assert (copy.describe(), copy._newest) == (sink.describe(), None)
    assert copy.published("out", "job") == sink.published("out", "job")
