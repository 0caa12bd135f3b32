"""Settings of a server."""

from __future__ import annotations

import hmac
import ipaddress
import re
from dataclasses import dataclass

from midstream.errors import PlanError
from midstream.ingest.records import VALUE
from midstream.sources.spools.columns import Column

FORMATS = ("json", "csv", "arrow")
MAX_BODY = 16 << 20
_PRODUCER = re.compile(r"[\w.:-]{1,100}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where to listen, and what to accept."""

    host: str
    port: int
    format: str
    columns: tuple[Column, ...] = VALUE
    max_record: int = 1 << 20
    max_bytes: int = 10 << 30
    token: bytes | None = None
    max_connections: int = 1000
    idle: float = 300.0  # seconds that a connection may do nothing

    @property
    def max_body(self) -> int:
        """The most bytes of an HTTP body, or of an Arrow message."""
        return min(MAX_BODY, self.max_bytes // 8)

    @property
    def memory(self) -> int:
        """The most bytes of what connections have begun and not finished."""
        return 16 * self.max_body

    @property
    def chunk(self) -> int:
        """The most bytes that are read at once: a small part of the spool, so that each block finds room in turn."""
        return min(1 << 20, self.max_bytes // 16)

    def check(self) -> None:
        """Refuse what cannot work."""
        if self.format not in FORMATS:
            raise PlanError(f"the format {self.format!r} is not known; there are {', '.join(FORMATS)}")
        if self.format == "arrow" and self.columns == VALUE:
            raise PlanError("the format arrow needs a schema: add --schema 'name type, ...'")
        if not 1 <= self.max_record <= self.max_bytes // 16:
            raise PlanError(f"--max-record must be between 1 and a sixteenth of --max-bytes, not {self.max_record}")

    def admits(self, token: bytes) -> bool:
        """Compare a token in constant time."""
        return self.token is None or hmac.compare_digest(self.token, token.strip())


def is_producer(name: str) -> bool:
    """Tell whether a name can be that of a producer."""
    return bool(_PRODUCER.fullmatch(name))


def address(listen: str) -> tuple[str, int]:
    """Read HOST:PORT; an IPv6 address is in brackets.

    >>> address("127.0.0.1:7000"), address("[::1]:0")
    (('127.0.0.1', 7000), ('::1', 0))
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise PlanError(f"cannot listen on {listen!r}: write HOST:PORT, such as 127.0.0.1:7000")
    return host.removeprefix("[").removesuffix("]"), int(port)


def check_exposure(host: str, allow_remote: bool, token: bytes | None) -> None:
    """Refuse an address that others can reach, unless that is intended and a token is required."""
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if local:
        return
    if not allow_remote:
        raise PlanError(f"{host} can be reached from other machines; add --allow-remote and --token-file if it should")
    if token is None:
        raise PlanError(f"{host} can be reached from other machines, so a token is needed: add --token-file FILE")
