"""`midstream ingest` as a process: what it acknowledged is in the spool, once, whatever happens to it."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from midstream.bench import ingest as bench
from midstream.bench import siege
from midstream.bench.ingest import lines
from midstream.bench.oracle import ResultError
from midstream.sources.spools import segments
from midstream.sources.spools.reader import SpoolStreamReader
from tests.support.ingesting import SCHEMA, Producer, Server, environment, record, served


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("plain") / "spool", *SCHEMA, "--max-record", "1000") as server:
        yield server


# --- HTTP -----------------------------------------------------------------------------------------------------------


def test_what_http_acknowledges_is_in_the_spool(plain: Server) -> None:
    assert plain.post(record(1), "", record(2)) == (200, {"accepted": 2, "rejected": 0})
    assert [row["n"] for row in plain.rows()][-2:] == [1, 2]
    assert plain.request("POST", "/", iter([record(3).encode(), b"\n", record(4).encode()]))[0] == 200, "chunked"
    assert [row["n"] for row in plain.rows()][-2:] == [3, 4]
    status, about = plain.request("GET", "/")
    assert status == 200
    assert about["records"] >= 4
    assert about["full"] is False


def test_malformed_and_oversized_lines_go_to_the_dead_letters_with_the_reason(plain: Server) -> None:
    status, answer = plain.post("null", record(5), json.dumps({"n": 6, "s": "y" * 2000}))
    assert status == 207
    assert answer == {"accepted": 1, "rejected": 2, "first": "record 0: Expected `object`, got `null`"}
    malformed, oversized = plain.letters()[-2:]
    assert (malformed["record"], malformed["content"]) == (0, "null")
    assert (oversized["record"], oversized["reason"], oversized["bytes"]) == (2, "longer than 1000 bytes", 2017)
    assert malformed["time"] <= oversized["time"]
    assert plain.post("null")[0] == 400
    assert plain.post("z" * 1001)[0] == 413
    assert not [row for row in plain.rows() if row["n"] == 6]


def test_what_is_not_understood_is_answered(plain: Server) -> None:
    assert plain.request("PUT", "/", b"")[0] == 405
    assert plain.request("GET", "/nothing")[0] == 404
    assert plain.post(record(0), origin="http://example.org")[0] == 403
    assert plain.post(record(0), Midstream_Producer="p")[0] == 400
    assert plain.post(record(0), Midstream_Producer="p/q", Midstream_Sequence="0")[0] == 400
    for request, status in [
        (b"POST / HTTP/1.1\r\nHost: a\r\n\r\n", "411"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", "400"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\nshort", "400"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n", "413"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "400"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", "400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"x" * 20_000 + b"\r\n\r\n", "431"),
    ]:
        assert plain.talk(request)[0].split(" ")[1] == status


def test_a_producer_that_sends_again_over_http_is_stored_once(plain: Server) -> None:
    def send(first: int, *numbers: int) -> tuple[int, dict[str, Any]]:
        return plain.post(*map(record, numbers), Midstream_Producer="http", Midstream_Sequence=str(first))

    assert send(0, 100, 101) == (200, {"accepted": 2, "rejected": 0, "duplicates": 0, "next": 2})
    assert send(0, 100, 101, 102) == (200, {"accepted": 1, "rejected": 0, "duplicates": 2, "next": 3})
    assert send(0, 100) == (200, {"accepted": 0, "rejected": 0, "duplicates": 1, "next": 3})
    assert send(9, 109) == (409, {"error": "records are missing before these", "next": 3})
    assert plain.request("GET", "/producers/http") == (200, {"next": 3})
    assert [row["n"] for row in plain.rows() if 100 <= row["n"] < 200] == [100, 101, 102]


# --- TCP ------------------------------------------------------------------------------------------------------------


def test_what_tcp_acknowledges_is_in_the_spool(plain: Server) -> None:
    lines = [record(200), "null", "z" * 5000, record(201), '{"n": 202']
    answer = plain.talk("\n".join(lines).encode())
    assert [line for line in answer if not line.startswith("OK")] == [
        "ERR 1 Expected `object`, got `null`",
        "ERR 2 longer than 1000 bytes",
        "ERR 4 the last line has no newline, so it may be torn and was not taken",
    ]
    assert [line for line in answer if line.startswith("OK")][-1] == "OK 4"
    assert [row["n"] for row in plain.rows() if 200 <= row["n"] < 300] == [200, 201]


def test_a_producer_goes_on_over_tcp_where_it_was(plain: Server) -> None:
    answer = plain.talk(b"PRODUCER tcp\n", record(300).encode(), b"\nnonsense\n")
    assert (answer[0], answer[-1]) == ("AT 0", "OK 2")
    assert plain.talk(b"PRODUCER tcp\n", record(302).encode(), b"\n") == ["AT 2", "OK 3"]
    assert [row["n"] for row in plain.rows() if 300 <= row["n"] < 400] == [300, 302]
    assert plain.talk(b"PRODUCER a b\n")[0].startswith("ERR 0 ")


def test_csv_lines_and_arrow_streams_are_taken_too(tmp_path: Path) -> None:
    with served(tmp_path / "csv", *SCHEMA, "--format", "csv") as server:
        assert server.post('1,"a,b"', "2,", "x,y")[1] == {
            "accepted": 2, "rejected": 1, "first": "record 2: Expected `int | null`, got `str` - at `$[0]`",
        }  # fmt: skip
        assert server.rows() == [{"n": 1, "s": "a,b"}, {"n": 2, "s": ""}]
    table = pa.table({"n": pa.array([1, 2, 3], pa.int64()), "s": ["a", None, "c"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table, max_chunksize=2)
    stream = sink.getvalue().to_pybytes()
    with served(tmp_path / "arrow", *SCHEMA, "--format", "arrow") as server:
        assert server.request("POST", "/", stream)[1] == {"accepted": 3, "rejected": 0}
        assert server.talk(stream) == ["OK 2", "OK 3"]
        assert server.talk(b"PRODUCER a\n", stream) == ["AT 0", "OK 2", "OK 3"]
        assert server.request("POST", "/", b"junk")[0] == 400
        assert server.talk(b"junk and more of it\n") == ["ERR 0 not an Arrow stream"]
        assert server.talk(stream[:8], b"\xff" * 500)[0].startswith("ERR 0 ")
        assert server.rows() == table.to_pylist() * 3


# --- access ---------------------------------------------------------------------------------------------------------


def test_without_the_token_nothing_is_taken(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    with served(tmp_path / "spool", "--token-file", str(token)) as server:
        assert server.post("x")[0] == 401
        assert server.post("x", Authorization="Bearer wrong")[0] == 401
        assert server.talk(b"x\n") == ["ERR 0 the first line must be AUTH and the token"]
        assert server.talk(b"AUTH wrong\nx\n") == ["ERR 0 wrong token"]
        assert server.rows() == []
        assert server.post("one", Authorization="Bearer 0123456789abcdef")[0] == 200
        assert server.talk(b"AUTH 0123456789abcdef\nPRODUCER p\ntwo\n") == ["AT 0", "OK 1"]
        assert server.rows() == [{"value": "one"}, {"value": "two"}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--listen", "0.0.0.0:0"], "--allow-remote"),
        (["--listen", "0.0.0.0:0", "--allow-remote"], "--token-file"),
        (["--format", "xml"], "is not known"),
        (["--schema", "a map<int,int>"], "schema"),
    ],
)
def test_options_that_cannot_work_are_refused(
    tmp_path: Path,
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from midstream import cli

    monkeypatch.setattr(sys, "argv", ["midstream", "ingest", "--to", str(tmp_path / "spool"), *options])
    with pytest.raises(SystemExit) as exit:
        cli.main()
    assert exit.value.code == 1
    assert message in capsys.readouterr().err


# --- push-back ------------------------------------------------------------------------------------------------------


class Job:
    """Reads a spool the way Spark does, epoch by epoch."""

    def __init__(self, spool: Path) -> None:
        self.found: list[int] = []
        self._reader = SpoolStreamReader(str(spool), "job", max_rows=0, keep=0.0, tasks=1)
        self._at = self._reader.initialOffset()

    def epoch(self) -> None:
        end = self._reader.latestOffset(self._at, self._reader.getDefaultReadLimit())
        for part in self._reader.partitions(self._at, end):
            self.found += [n for batch in self._reader.read(part) for n in batch.column("n").to_pylist()]
        self._reader.commit(end)
        self._at = end


def test_a_full_spool_pushes_back_and_goes_on_when_a_reader_has_committed(tmp_path: Path) -> None:
    bound, total, answers = 300_000, 10_000, []
    with served(tmp_path / "spool", *SCHEMA, "--max-bytes", str(bound)) as server:
        job = Job(server.spool)
        data = "".join(f"{record(n)}\n" for n in range(total)).encode()  # three times the bound
        sender = threading.Thread(target=lambda: answers.extend(server.talk(data)), daemon=True)
        sender.start()
        statuses = []
        while sender.is_alive():
            statuses.append(server.post(*[record(-1)] * 300)[0])
            there, merged = segments.scan(str(server.spool))
            assert sum(segment.size for segment in there + merged) <= bound
            if statuses[-1] == 429:
                job.epoch()
        assert set(statuses) == {200, 429}
        assert answers[-1] == f"OK {total}"
        job.epoch()
        assert [n for n in job.found if n >= 0] == list(range(total))
        assert job.found.count(-1) == 300 * statuses.count(200)


# --- ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_and_what_was_acknowledged_is_there(tmp_path: Path, number: int) -> None:
    with served(tmp_path / "spool", *SCHEMA) as server, server.connect() as sock:
        sock.sendall(record(1).encode() + b"\n")
        answers = sock.makefile()
        assert answers.readline() == "OK 1\n"
        assert server.end(number) == (0, "")
        assert answers.read() == ""
        assert [row["n"] for row in server.rows()] == [1]


def test_a_second_server_on_a_spool_is_refused(plain: Server) -> None:
    command = [sys.executable, "-m", "midstream.cli", "ingest", "--to", str(plain.spool), "--listen", "127.0.0.1:0"]
    done = subprocess.run([*command, *SCHEMA], capture_output=True, text=True, env=environment())
    assert done.returncode == 1
    assert "another process writes to the spool" in done.stderr


def kill_again_and_again(spool: Path, kills: int, total: int) -> None:
    chance = random.Random(7)
    with served(spool, *SCHEMA) as server:
        producers = [Producer(server, f"p{i}", total) for i in range(2)]
        for producer in producers:
            producer.start()
        for mark in sorted(chance.randrange(total // 50, total * 9 // 10) for _ in range(kills)):
            producers[0].wait_for(mark)
            server.end(signal.SIGKILL)
            server.start()
        for producer in producers:
            producer.finish()
        found = [row["n"] for row in server.rows()]
        assert len(found) == 2 * total
        assert sorted(found) == [n for n in range(total) for _ in producers]


def test_killed_in_the_middle_every_acknowledged_record_is_there_once(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path / "spool", kills=2, total=15_000)


@pytest.mark.slow
def test_killed_twenty_times_every_acknowledged_record_is_there_once(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path / "spool", kills=20, total=400_000)


# --- the benchmark --------------------------------------------------------------------------------------------------


def test_the_benchmark_checks_the_spool_before_it_tells_a_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    bench.run(records=4000, producers=2, kills=1, json=tmp_path / "ingest.json")
    saved = json.loads((tmp_path / "ingest.json").read_text())
    assert (saved["checked"], saved["records"], saved["kills"]) == (True, 4000, 1)
    assert "exactly once" in capfd.readouterr().out
    monkeypatch.setattr(bench, "lines", lambda producer, first, last: lines(producer, last, 2 * last - first))
    with pytest.raises(ResultError, match="no time is printed"):
        bench.run(records=1000, producers=1, json=tmp_path / "wrong.json")
    assert not (tmp_path / "wrong.json").exists()


def test_the_siege_checks_that_nothing_but_what_was_acknowledged_is_in_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    siege.run(malformed=54, connections=20, seconds=0.3, rounds=1, producers=3, json=tmp_path / "siege.json")
    saved = json.loads((tmp_path / "siege.json").read_text())
    assert (saved["checked"], saved["malformed"], saved["retries"]) == (True, 54, 0)
    answers = saved["answers"]
    assert {word: answers[word] for word in ("400", "405", "413", "431", "505")} == {
        "400": 24, "405": 3, "413": 3, "431": 3, "505": 3,
    }  # fmt: skip
    monkeypatch.setattr(siege, "check", lambda spool, sent: bench.check(spool, sent[:-1]))
    with pytest.raises(ResultError, match="records that no producer sent"):
        siege.run(malformed=1, connections=0, seconds=0.1, rounds=1, producers=2, json=tmp_path / "wrong.json")
    assert not (tmp_path / "wrong.json").exists()
