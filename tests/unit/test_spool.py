"""The spool on disk: what was appended can be read again in any range, whatever a crash left behind."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import MidstreamError, PlanError, SchemaError
from midstream.ingest import records
from midstream.ingest.committer import Block, Committer, Full, Gap, Malformed, Outcome, Stored, append_letters
from midstream.ingest.settings import Settings, address, check_exposure
from midstream.sources import columns, segments, spool_writer
from midstream.sources.segments import Mark, Segment
from midstream.sources.spool_reader import SpoolStreamReader
from midstream.sources.spool_writer import Retention, SpoolWriter

N = columns.parse("n long")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


def read(directory: Path | str, start: int, end: int) -> list[int]:
    return [n for batch in segments.read(str(directory), start, end) for n in batch.column(0).to_pylist()]


def reader(directory: Path, **options: object) -> SpoolStreamReader:
    return SpoolStreamReader(str(directory), "job", **{"max_rows": 0, "keep": 0.0, "tasks": 2} | options)  # type: ignore[arg-type]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.arrow*"))


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
                    (directory / f"{Segment(len(model), 7, 0).name}.tmp").write_bytes(b"ARROW1\0\0torn")
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
    part = Segment(last.first, 1, 0)
    if last.count > 1:
        (directory / part.name).write_bytes(b"whatever: its records are in the merged one")


def test_small_segments_become_few_large_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_writer, "MERGE", 6)
    writer = SpoolWriter(tmp_path, N)
    for n in range(spool_writer.MERGE**2 + 5):
        writer.append(rows(n), {f"p{n % 7}": n})
    assert [segment.level for segment in segments.listing(str(tmp_path))] == [2, 0, 0, 0, 0, 0]
    assert read(tmp_path, 0, writer.end) == list(range(writer.end))
    known = writer.producers
    writer.close()
    assert SpoolWriter(tmp_path, N).producers == known


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
    (tmp_path / f"{Segment(2, 9, 0).name}.tmp").write_bytes(b"ARROW1")
    assert read(tmp_path, 0, 2) == [1, 2]
    writer = SpoolWriter(tmp_path, N)
    assert names(tmp_path) == ["000000000000000000-2-0.arrow"]
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
    (tmp_path / Segment(0, 1, 0).name).write_bytes(b"rot")
    with pytest.raises(MidstreamError, match="is damaged"):
        read(tmp_path, 0, 1)
    (tmp_path / Segment(1, 1, 0).name).unlink()
    with pytest.raises(MidstreamError, match="has lost records 1 to 1"):
        SpoolWriter(tmp_path, N)


# --- one writer, one schema -----------------------------------------------------------------------------------------


def test_a_spool_has_one_writer_and_one_schema(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, N)
    with pytest.raises(MidstreamError, match="another process writes"):
        SpoolWriter(tmp_path, N)
    writer.close()
    with pytest.raises(PlanError, match="has the columns `n` bigint, not `m` string"):
        SpoolWriter(tmp_path, columns.parse("m string"))
    SpoolWriter(tmp_path, N).close()


def test_what_is_not_a_spool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="is not a spool"):
        segments.read_spec(str(tmp_path))
    (tmp_path / segments.SPEC).write_text("{")
    with pytest.raises(PlanError, match="cannot be read"):
        segments.read_spec(str(tmp_path))
    (tmp_path / segments.SPEC).write_text('{"id": "1", "columns": [], "format": 99}')
    with pytest.raises(PlanError, match="format 99"):
        segments.read_spec(str(tmp_path))
    with pytest.raises(PlanError, match="give a local path"):
        SpoolWriter("s3://bucket/spool", N)


# --- retention ------------------------------------------------------------------------------------------------------


def test_what_every_reader_has_committed_goes_after_its_time_and_no_earlier() -> None:
    clock = Clock()
    retention = Retention(clock)
    assert retention.done({}) == 0
    assert retention.done({"a": Mark(10, 60), "b": Mark(7, 0)}) == 0
    clock.now = 59
    assert retention.done({"a": Mark(20, 60), "b": Mark(30, 0)}) == 0
    clock.now = 60
    assert retention.done({"a": Mark(20, 60), "b": Mark(30, 0)}) == 10
    clock.now = 119
    assert retention.done({"a": Mark(5, 60), "b": Mark(30, 0)}) == 5, "a job may go back to a savepoint"
    clock.now = 300
    assert retention.done({"a": Mark(5, 60), "b": Mark(30, 0)}) == 5
    assert retention.done({"b": Mark(30, 0)}) == 30, "a reader that is forgotten holds nothing"


def test_the_newest_segment_stays_and_so_do_the_producers(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, N)
    assert writer.release() == 0
    for n in range(3):
        writer.append(rows(n), {f"p{n}": n + 1})
    assert writer.release() == 0, "nobody has read them"
    source = reader(tmp_path)
    offset = source.latestOffset(source.initialOffset(), source.getDefaultReadLimit())
    source.commit(offset)
    broken = tmp_path / segments.READERS / "broken.json"
    broken.write_text("{")
    assert writer.release() == 0, "a reader that cannot tell what it has read holds all"
    broken.unlink()
    before = writer.used
    assert writer.release() == before - writer.used > 0
    assert names(tmp_path) == ["000000000000000002-1-0.arrow"]
    writer.close()
    writer = SpoolWriter(tmp_path, N)
    assert writer.end == 3
    assert writer.producers == {"p0": 1, "p1": 2, "p2": 3}


def test_progress_without_rows_is_durable_too(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, N)
    writer.append(rows(), {"p": 4})
    writer.close()
    assert SpoolWriter(tmp_path, N).producers == {"p": 4}


# --- the source, without Spark --------------------------------------------------------------------------------------


def test_epochs_are_bounded_and_shared_among_tasks(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, N)
    writer.append(rows(*range(100)), {})
    source = reader(tmp_path, max_rows=60)
    start = source.initialOffset()
    source.prepareForTriggerAvailableNow()
    writer.append(rows(100), {})
    middle = source.latestOffset(start, source.getDefaultReadLimit())
    end = source.latestOffset(middle, source.getDefaultReadLimit())
    assert [offset["record"] for offset in (start, middle, end, source.reportLatestOffset())] == [0, 60, 100, 101]
    assert source.latestOffset(end, source.getDefaultReadLimit()) == end
    parts = source.partitions(start, {**end, "record": 50_000})
    assert [(part.start, part.end) for part in parts] == [(0, 25_000), (25_000, 50_000)]  # type: ignore[attr-defined]
    (part,) = source.partitions(middle, end)
    assert sum(batch.num_rows for batch in source.read(part)) == 40
    assert source.partitions(end, end) == []
    with pytest.raises(MidstreamError, match="another spool"):
        source.partitions({"spool": "x", "record": 0}, end)


# --- group commit ---------------------------------------------------------------------------------------------------


def committed(writer: SpoolWriter, *blocks: Block) -> list[Outcome]:
    """What becomes of blocks that are submitted together."""

    async def run() -> list[Outcome]:
        committer = Committer(writer, records.of("json", N, 100))
        running = asyncio.ensure_future(committer.run())
        outcomes = asyncio.gather(*map(committer.submit, blocks))
        try:
            await asyncio.wait([running, outcomes], return_when=asyncio.FIRST_COMPLETED)
            return outcomes.result() if outcomes.done() else running.result()  # type: ignore[return-value]
        finally:
            outcomes.cancel()
            running.cancel()
            await asyncio.gather(running, outcomes, return_exceptions=True)
            committer.close()

    return asyncio.run(run())


def test_blocks_that_come_together_become_one_segment(tmp_path: Path) -> None:
    one, two, again = b'{"n":1}\n', b'{"n":2}\nnonsense\n', b'{"n":2}\nnonsense\n{"n":3}\n'
    first, second, third, gap = committed(
        SpoolWriter(tmp_path, N), Block(one, "a"), Block(two, "b", "p"), Block(again, "c", "p"), Block(one, "d", "q", 5)
    )
    assert (first, third, gap) == (Stored(1, 0, []), Stored(1, 2, []), Gap(0))
    assert isinstance(second, Stored)
    assert (second.accepted, second.records, len(second.refused)) == (1, 2, 1)
    assert names(tmp_path) == ["000000000000000000-3-0.arrow"]
    assert read(tmp_path, 0, 3) == [1, 2, 3]
    assert SpoolWriter(tmp_path, N).producers == {"p": 3}


def test_a_full_disk_pushes_back_and_a_broken_one_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(number: int) -> None:
        def fsync(file: int) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr("midstream.storage.os.fsync", fsync)

    writer = SpoolWriter(tmp_path, N)
    fail(errno.ENOSPC)
    assert committed(writer, Block(b'{"n":1}', "a", "p")) == [Full()]
    assert names(tmp_path) == []
    monkeypatch.undo()
    writer = SpoolWriter(tmp_path, N)
    assert writer.producers == {}
    fail(errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        committed(writer, Block(b'{"n":1}', "a"))


def test_what_never_fits_is_refused_instead_of_waiting_for_ever(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, N, max_bytes=10_000)
    (outcome,) = committed(writer, Block(b'{"n":1}\n' * 1000, "a"))
    assert isinstance(outcome, Malformed)
    assert "do not fit in a spool of 10000" in outcome.reason


# --- columns, records and addresses ---------------------------------------------------------------------------------

EVERY = "a boolean, b tinyint, c short, d int, e long, f float, g double, h string, i binary, j date, k timestamp, "
EVERY += "`l m` decimal(10, 2)"


def test_columns_are_written_the_way_spark_reads_them() -> None:
    found = columns.parse(EVERY)
    assert columns.parse(columns.ddl(found)) == found
    assert columns.arrow_schema(found).field("l m").type == pa.decimal128(10, 2)


@pytest.mark.parametrize(
    "ddl",
    [
        "",
        "a",
        "a long,",
        "a long b int",
        "a array<int>",
        "a long not null",
        "a decimal(39,1)",
        "a int(3)",
        "a int, A int",
    ],
)
def test_a_schema_that_cannot_be_taken_is_refused(ddl: str) -> None:
    with pytest.raises(SchemaError, match="schema"):
        columns.parse(ddl)


JSON = (
    b'{"a":true,"b":-128,"c":1,"d":2,"e":3,"f":1.5,"g":2.5,"h":"\xc3\xa4","i":"aGk=","j":"2026-01-02",'
    b'"k":"2026-01-02T03:04:05+01:00","l m":1.25,"other":[{}]}'
)
CSV = 'true,-128,1,2,3,1.5,2.5,ä,aGk=,2026-01-02,2026-01-02 02:04:05,"1.25"'.encode()


@pytest.mark.parametrize(("name", "line", "nothing"), [("json", JSON, b"{}"), ("csv", CSV, b"," * 11)])
def test_every_type_is_read(name: str, line: bytes, nothing: bytes) -> None:
    found = columns.parse(EVERY)
    format = records.of(name, found, 1000)
    parsed = format.parse(format.split(line + b"\r\n\n" + nothing))
    assert parsed.refused == []
    values = [str(value) for value in parsed.rows.to_pylist()[0].values()]
    assert values == ["True", "-128", "1", "2", "3", "1.5", "2.5", "ä", "b'hi'", "2026-01-02",
                      "2026-01-02 02:04:05+00:00", "1.25"]  # fmt: skip
    assert set(parsed.rows.to_pylist()[1].values()) <= {None, ""}


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("json", b"null", "Expected `object`, got `null`"),
        ("json", b'{"a":1}{"a":2}', "trailing characters"),
        ("json", b'{"a":9223372036854775808}', "int"),
        ("json", b'{"d":1.234}', "Decimal"),
        ("json", b'{"d":1e999999999}', "out of range for decimal128(5, 2)"),
        ("json", b'{"t":"9999-12-31T23:59:59-23:59"}', "after 9999"),
        ("json", b'{"s":"\xff"}', "not UTF-8"),
        ("json", b'{"x":' + b"[" * 90_000, ""),
        ("json", b'{"s":"' + b"x" * 100_000 + b'"}', "longer than 100000 bytes"),
        ("json", b" " * 100_001, "longer than 100000 bytes"),
        ("csv", b"1,x", "2 values instead of 4"),
        ("csv", b"x,x,1,", "Expected `int | null`"),
        ("csv", b'1,"x,1', "unexpected end of data"),
        ("csv", b"1,\xff,1,", "not UTF-8"),
    ],
)
def test_a_bad_line_is_refused_and_its_neighbours_are_taken(name: str, line: bytes, reason: str) -> None:
    good = {"json": b'{"a":7,"s":"y"}', "csv": b"7,y,,"}[name]
    format = records.of(name, columns.parse("a long, s string, d decimal(5,2), t timestamp"), 100_000)
    parsed = format.parse(format.split(b"\n".join([good, line, good, line])))
    assert [row["a"] for row in parsed.rows.to_pylist()] == [7, 7]
    assert [refused.place for refused in parsed.refused] == [1, 3]
    assert reason in parsed.refused[0].reason


def test_without_a_schema_a_line_is_kept_as_it_is() -> None:
    format = records.of("json", records.VALUE, 100)
    assert format.parse(format.split(b' {"a": 1}\r\nx y \n')).rows.to_pylist() == [
        {"value": ' {"a": 1}'},
        {"value": "x y "},
    ]


def test_an_arrow_stream_is_taken_whole_or_not_at_all() -> None:
    format = records.of("arrow", N, 100)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows().schema) as out:
        out.write_table(rows(1, 2))
    stream = sink.getvalue().to_pybytes()
    assert format.parse(format.split(stream)).rows.equals(rows(1, 2))
    for torn in (b"", b"junk", stream[:-30], stream[:40], stream.replace(b"n\0\0\0", b"\xff\0\0\0")):
        with pytest.raises(SchemaError, match="Arrow stream"):
            format.split(torn)
    with pytest.raises(SchemaError, match="of n int64 instead of m int64"):
        records.of("arrow", columns.parse("m long"), 100).split(stream)


def test_a_torn_dead_letter_does_not_spoil_the_next(tmp_path: Path) -> None:
    append_letters(str(tmp_path), [b'{"a":1}\n', b'{"to'])
    append_letters(str(tmp_path), [b'{"b":2}\n'])
    assert (tmp_path / segments.DEAD_LETTERS).read_bytes() == b'{"a":1}\n{"to\n{"b":2}\n'


def test_only_this_machine_can_connect_unless_it_is_asked_for_with_a_token() -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        check_exposure(host, False, None)
    for host in ("0.0.0.0", "example.org", "::"):
        with pytest.raises(PlanError, match="--allow-remote"):
            check_exposure(host, False, b"token")
        with pytest.raises(PlanError, match="--token-file"):
            check_exposure(host, True, None)
        check_exposure(host, True, b"token")
    for listen in ("7000", ":7000", "host:", "host:70000", "host:x"):
        with pytest.raises(PlanError, match="HOST:PORT"):
            address(listen)


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(PlanError, match="not known"):
        Settings("::1", 0, "xml").check()
    with pytest.raises(PlanError, match="needs a schema"):
        Settings("::1", 0, "arrow").check()
    with pytest.raises(PlanError, match="max-record"):
        Settings("::1", 0, "json", max_record=1 << 20, max_bytes=1 << 20).check()
    assert os.path.isabs(segments.local_directory("x"))
