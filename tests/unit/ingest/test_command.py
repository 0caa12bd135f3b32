"""The command `midstream ingest`: what cannot work is refused before anything listens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from midstream.errors import MidstreamError, PlanError, SchemaError
from midstream.ingest import command, server
from midstream.ingest.records import VALUE
from midstream.ingest.settings import ServerSettings
from midstream.sources.spools import columns

OPTIONS: dict[str, Any] = {
    "listen": "127.0.0.1:0", "format": "json", "schema": None, "max_bytes": 1 << 30, "max_record": 1 << 20,
    "allow_remote": False, "token_file": None, "max_connections": 10, "idle": 5.0,
}  # fmt: skip


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[ServerSettings, str]]:
    """Give what a server was started with; it ends at once."""
    found: list[tuple[ServerSettings, str]] = []

    def run(settings: ServerSettings, directory: str, *, listening: Any, status: Any) -> None:
        settings.check()
        found.append((settings, directory))
        listening("127.0.0.1:4711")
        status("as it is")

    monkeypatch.setattr(server, "run", run)
    return found


def test_options_become_settings_and_it_says_where_it_listens(
    tmp_path: Path, served: list[tuple[ServerSettings, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    command.run(tmp_path, **OPTIONS)
    expected = ServerSettings(
        "127.0.0.1", 0, "json", VALUE, max_record=1 << 20, max_bytes=1 << 30, max_connections=10, idle=5.0
    )
    assert served == [(expected, str(tmp_path))]
    assert capsys.readouterr().out == f"listening on 127.0.0.1:4711, writing to {tmp_path}\n"


def test_a_schema_and_a_token_are_read(tmp_path: Path, served: list[tuple[ServerSettings, str]]) -> None:
    (tmp_path / "token").write_text("  0123456789abcdef\n")
    remote = {"listen": "0.0.0.0:7000", "allow_remote": True, "token_file": tmp_path / "token"}
    command.run(tmp_path, **OPTIONS | remote | {"schema": "n long", "format": "arrow"})
    ((settings, _),) = served
    assert (settings.host, settings.port, settings.token) == ("0.0.0.0", 7000, b"0123456789abcdef")
    assert settings.columns == columns.parse("n long")


def test_a_record_is_never_more_than_a_sixteenth_of_the_spool(
    tmp_path: Path, served: list[tuple[ServerSettings, str]]
) -> None:
    command.run(tmp_path, **OPTIONS | {"max_bytes": 1 << 16})
    assert served[0][0].max_record == 1 << 12


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"listen": "7000"}, "write HOST:PORT"),
        ({"listen": "0.0.0.0:0"}, "--allow-remote"),
        ({"listen": "0.0.0.0:0", "allow_remote": True}, "--token-file"),
        ({"schema": "n map<int,int>"}, "cannot be read|cannot take"),
        ({"schema": "n"}, "cannot be read"),
        ({"format": "xml"}, "is not known"),
        ({"format": "arrow"}, "needs a schema"),
        ({"max_record": 0}, "--max-record"),
    ],
)
def test_what_cannot_work_is_refused(
    tmp_path: Path, served: list[tuple[ServerSettings, str]], options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises((PlanError, SchemaError), match=complaint):
        command.run(tmp_path / "spool", **OPTIONS | options)
    assert served == []
    assert not (tmp_path / "spool").exists()


@pytest.mark.parametrize("content", [None, b"", b"short", b"0123456789 abcdef", b"0123456789\nabcdef", b"\n"])
def test_a_token_that_is_none_is_refused_with_its_file(
    tmp_path: Path, served: list[tuple[ServerSettings, str]], content: bytes | None
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    wanted = "cannot be read: No such file" if content is None else "must be one word of 16 bytes or more"
    with pytest.raises(MidstreamError, match=rf"{file}.* {wanted}"):
        command.run(tmp_path, **OPTIONS | {"token_file": file})
    assert served == []
