"""The spool on disk: what was appended can be read again in any range, whatever a crash left behind."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import MidstreamError, PlanError
from midstream.sources.spools import columns, segments
from midstream.sources.spools import writer as spool_writer
from midstream.sources.spools.segments import Segment
from midstream.sources.spools.writer import SpoolWriter
from tests.support.spools import N, names, read, reader, rows

# --- reading again --------------------------------------------------------------------------------------------------


@given(
    steps=st.lists(
        st.one_of(st.integers(0, 9), st.just("restart"), st.just("torn"), st.just("commit"), st.just("tear a merge"))
    ),
    cut=st.data(),
)
def test_a_spool_is_a_list_of_which_only_committed_beginnings_vanish(
    steps: list[int | str], cut: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool_writer, "MERGE", 3)
        directory, model, committed = Path(name), [], 0
        writer = SpoolWriter(name, N)
        for step in steps:
            if isinstance(step, int):
                new = list(range(len(model), len(model) + step))
                writer.append(rows(*new), {"p": len(model) + step})
                model += new
            elif step == "commit":
                committed = len(model)
                reader(directory).commit({"record": committed})
                writer.release()
            else:
                writer.close()
                if step == "torn":
                    (directory / f"{Segment(len(model), 7, 0, 0).name}.tmp").write_bytes(b"ARROW1\0\0torn")
                if step == "tear a merge" and names(directory):  # it was written, but what it replaces is still there
                    _leave_unmerged(directory)
                writer = SpoolWriter(name, N)
            assert writer.end == len(model)
            assert writer.producers.get("p", 0) == len(model)
            assert writer.used == sum(path.stat().st_size for path in directory.glob("*.arrow"))
        first = segments.listing(name)[0].first if names(directory) else 0
        assert first <= committed
        start = cut.draw(st.integers(first, len(model)))
        end = cut.draw(st.integers(start, len(model)))
        assert read(name, start, end) == model[start:end]
        writer.close()


def _leave_unmerged(directory: Path) -> None:
    last = segments.listing(str(directory))[-1]
    part = Segment(last.first, 1, 0, 0)
    if last.count > 1:
        (directory / part.name).write_bytes(b"whatever: its records are in the merged one")


def test_a_reader_finds_its_records_while_segments_are_merged(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, N)
    for n in range(spool_writer.MERGE - 1):
        writer.append(rows(n), {})
    reading = segments.read(str(tmp_path), 0, writer.end)
    found = [next(reading).column(0)[0].as_py()]
    writer.append(rows(writer.end), {})  # the files that the reader has listed are gone now
    assert len(names(tmp_path)) == 1
    found += [n for batch in reading for n in batch.column(0).to_pylist()]
    assert found == list(range(spool_writer.MERGE - 1))


def test_a_torn_file_is_neither_read_nor_kept(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, N)
    writer.append(rows(1, 2), {})
    writer.close()
    (before,) = names(tmp_path)
    (tmp_path / f"{Segment(2, 9, 0, 0).name}.tmp").write_bytes(b"ARROW1")
    assert read(tmp_path, 0, 2) == [1, 2]
    writer = SpoolWriter(tmp_path, N)
    assert names(tmp_path) == [before]
    writer.append(rows(3), {})
    assert read(tmp_path, 0, 3) == [1, 2, 3]


def test_lost_and_damaged_segments_are_errors_not_fewer_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_PAUSE", 0)
    writer = SpoolWriter(tmp_path, N)
    for n in range(3):
        writer.append(rows(n), {})
    writer.close()
    with pytest.raises(MidstreamError, match="records 1 to 7 are not in the spool"):
        read(tmp_path, 1, 8)
    rotten, gone, _ = names(tmp_path)
    (tmp_path / rotten).write_bytes(b"rot")
    with pytest.raises(MidstreamError, match="is damaged"):
        read(tmp_path, 0, 1)
    (tmp_path / gone).unlink()
    with pytest.raises(MidstreamError, match="has lost records 1 to 1"):
        SpoolWriter(tmp_path, N)


# --- damage ---------------------------------------------------------------------------------------------------------


def bits(content: bytes, count: int) -> Iterator[bytes]:
    """Give the content with one bit changed, at many places."""
    chance = random.Random(5)
    for bit in chance.sample(range(8 * len(content)), min(count, 8 * len(content))):
        changed = bytearray(content)
        changed[bit >> 3] ^= 1 << (bit & 7)
        yield bytes(changed)


def test_no_bit_of_a_segment_can_change_unnoticed(tmp_path: Path) -> None:
    schema = columns.parse("n long, s string")
    writer = SpoolWriter(tmp_path, schema)
    writer.append(pa.table({"n": pa.array([1, 2], pa.int64()), "s": ["one", None]}), {"p": 1234})
    writer.close()
    (file,) = tmp_path.glob("*.arrow")
    content = file.read_bytes()
    assert read(tmp_path, 0, 2) == [1, 2]
    for changed in bits(content, 1500):
        file.write_bytes(changed)
        with pytest.raises(MidstreamError, match=rf"{file.name} is damaged: .* Restore .* records 0 to 1 are lost"):
            read(tmp_path, 0, 2)
        with contextlib.suppress(MidstreamError):  # it reads no more than what is noted of producers
            writer = SpoolWriter(tmp_path, schema)
            assert writer.producers == {"p": 1234}
            writer.close()
    file.write_bytes(content)
    assert read(tmp_path, 0, 2) == [1, 2], "a file that was restored is read again"


def test_no_bit_of_the_small_files_can_change_unnoticed(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, N)
    writer.append(rows(0), {"p": 1200})
    writer.append(rows(1, 2), {})
    reader(tmp_path).commit({"record": 1})
    assert writer.release() > 0
    writer.append(rows(3), {})
    for name, harm in [
        (segments.SPEC, lambda: SpoolWriter(tmp_path, N)),
        (segments.SPEC, lambda: reader(tmp_path)),
        (segments.PRODUCERS, lambda: SpoolWriter(tmp_path, N)),
    ]:
        writer.close()
        content = (tmp_path / name).read_bytes()
        for changed in bits(content, 400):
            (tmp_path / name).write_bytes(changed)
            with pytest.raises(MidstreamError, match=rf"{name} is damaged|has spool format"):
                harm()
        (tmp_path / name).write_bytes(content)
        writer = SpoolWriter(tmp_path, N)
    assert writer.producers == {"p": 1200}
    mark = tmp_path / segments.READERS / "job.json"
    reader(tmp_path).commit({"record": 3})
    for changed in bits(mark.read_bytes(), 400):
        mark.write_bytes(changed)
        assert writer.release() == 0, "a reader that cannot tell what it has read holds all"


# --- what is no spool -----------------------------------------------------------------------------------------------


def test_what_is_not_a_spool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="is not a spool"):
        segments.read_spec(str(tmp_path))
    (tmp_path / segments.SPEC).write_text("{")
    with pytest.raises(PlanError, match="is damaged"):
        segments.read_spec(str(tmp_path))
    (tmp_path / segments.SPEC).write_text('{"id": "1", "columns": [], "format": 99}')
    with pytest.raises(PlanError, match="format 99"):
        segments.read_spec(str(tmp_path))
    (tmp_path / segments.SPEC).write_text('{"id": "1", "columns": [{"name": "n", "type": "bigint"}], "format": 1}')
    for refused in (lambda: reader(tmp_path), lambda: SpoolWriter(tmp_path, N)):
        with pytest.raises(PlanError, match=r"format 1; .* reads 2\. Let the version that wrote it read it to its end"):
            refused()
    with pytest.raises(PlanError, match="give a local path"):
        SpoolWriter("s3://bucket/spool", N)
