"""The command `midstream ingest`: from options to a server, and its one line on the terminal."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console

from midstream.errors import PlanError
from midstream.ingest import server
from midstream.ingest.records import VALUE
from midstream.ingest.settings import ServerSettings, address, check_exposure
from midstream.sources.spools import columns


def run(
    to: Path,
    listen: str,
    format: str,
    schema: str | None,
    max_bytes: int,
    max_record: int,
    allow_remote: bool,
    token_file: Path | None,
    max_connections: int,
    idle: float,
) -> None:
    """Serve until a signal comes; refuse what cannot work before anything listens."""
    host, port = address(listen)
    token = _token(token_file) if token_file is not None else None
    check_exposure(host, allow_remote, token)
    settings = ServerSettings(
        host=host,
        port=port,
        format=format,
        columns=columns.parse(schema) if schema else VALUE,
        max_record=min(max_record, max_bytes // 16),
        max_bytes=max_bytes,
        token=token,
        max_connections=max_connections,
        idle=idle,
    )
    console = Console(stderr=True, highlight=False)
    with console.status("starting") as line:
        server.run(
            settings,
            os.fspath(to),
            listening=lambda where: print(f"listening on {where}, writing to {to}", flush=True),
            status=line.update,
        )


def _token(path: Path) -> bytes:
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        raise PlanError(f"the token file {path} cannot be read: {error.strerror}") from None
    if len(token) < 16 or len(token.split()) != 1:
        raise PlanError(
            f"the token in {path} must be one word of 16 bytes or more; create one with `openssl rand -hex 32`"
        )
    return token
