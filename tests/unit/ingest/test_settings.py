"""ServerSettings of a server: what cannot work, or would let others in, is refused before anything listens."""

from __future__ import annotations

import os

import pytest

from midstream.errors import PlanError
from midstream.ingest.settings import ServerSettings, address, check_exposure, is_producer
from midstream.sources.spools import columns, segments


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
        ServerSettings("::1", 0, "xml").check()
    with pytest.raises(PlanError, match="needs a schema"):
        ServerSettings("::1", 0, "arrow").check()
    with pytest.raises(PlanError, match="max-record"):
        ServerSettings("::1", 0, "json", max_record=1 << 20, max_bytes=1 << 20).check()
    assert os.path.isabs(segments.local_directory("x"))


def test_an_address_is_read_in_every_form() -> None:
    assert address("127.0.0.1:7000") == ("127.0.0.1", 7000)
    assert address("[::1]:65535") == ("::1", 65535)
    assert address("host.example:0") == ("host.example", 0)


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("sensor-7", True), ("a", True), ("a.b:c_d", True), ("x" * 100, True), ("x" * 101, False), ("", False),
        ("a b", False), ("a/b", False), ("größe", False), ("a\n", False),
    ],
)  # fmt: skip
def test_the_name_of_a_producer_is_a_word(name: str, fits: bool) -> None:
    assert is_producer(name) == fits


def test_a_token_is_compared_whole_and_without_one_all_are_admitted() -> None:
    strict = ServerSettings("::1", 0, "json", token=b"0123456789abcdef")
    assert strict.admits(b"0123456789abcdef")
    assert strict.admits(b" 0123456789abcdef\r")
    assert not any(map(strict.admits, (b"", b"0123456789abcde", b"0123456789abcdefg", b"0123456789ABCDEF")))
    assert ServerSettings("::1", 0, "json").admits(b"")


@pytest.mark.parametrize("max_bytes", [1 << 16, 1 << 20, 10 << 30])
def test_what_is_taken_at_once_is_a_small_part_of_the_spool(max_bytes: int) -> None:
    settings = ServerSettings("::1", 0, "json", max_bytes=max_bytes, max_record=1)
    settings.check()
    assert 0 < settings.chunk <= max_bytes // 16
    assert settings.chunk <= settings.max_body <= max_bytes // 8
    assert settings.max_body <= settings.memory


def test_the_longest_record_is_a_sixteenth_of_the_spool() -> None:
    ServerSettings("::1", 0, "json", max_record=1 << 16, max_bytes=1 << 20).check()
    ServerSettings("::1", 0, "arrow", columns=columns.parse("n long")).check()
    for max_record in (0, -1, (1 << 16) + 1):
        with pytest.raises(PlanError, match=f"between 1 and a sixteenth of --max-bytes, not {max_record}"):
            ServerSettings("::1", 0, "json", max_record=max_record, max_bytes=1 << 20).check()
