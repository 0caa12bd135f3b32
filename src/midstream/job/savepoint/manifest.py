"""The manifest of a savepoint, and the form of its tables."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from midstream.checkpoint.offsets import Feed
from midstream.checkpoint.seals import BrokenSealError, opened
from midstream.checkpoint.storage import Storage
from midstream.errors import CheckpointError
from midstream.job.savepoint.files import SavedFile
from midstream.plan.plan import Plan
from midstream.plan.text import decode_plain
from midstream.plan.window_regimes import Regime

_log = logging.getLogger("midstream")
MANIFEST = "manifest.json"
SAVED = 2  # the format of savepoints
UNSEALED = 1  # an older one, which is read too: it does not name its files


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a savepoint is of."""

    format: int
    job: str
    epoch: int
    clock: int
    groups: int
    offsets: tuple[str, ...]
    feeds: tuple[Feed, ...]  # whose offsets these are
    event_times: dict[str, int]
    watermarks: dict[str, int | None] = {}  # operator -> up to where its windows are closed
    latest: dict[str, int | None] = {}  # operator -> up to where its windows have had rows
    regimes: dict[str, tuple[Regime, ...]] = {}  # operator -> which of its windows are of which shape
    tables: dict[str, tuple[str, ...]]  # operator -> tables
    files: dict[str, SavedFile] = {}  # path -> what must be there
    layouts: dict[str, str]  # operator -> the form of its state
    plan: msgspec.Raw

    def read_plan(self) -> Plan:
        """Return the plan; the defaults of its state are not to be relied on."""
        return decode_plain(self.plan)


def read_manifest(source: Storage) -> Manifest:
    """Read what a savepoint is of; refuse one that is not whole."""
    where = source.path(MANIFEST)
    try:
        text = source.read(MANIFEST)
        known = msgspec.json.decode(text, type=dict[str, Any]).get("format")  # below the seal, from format 2 on
        if known == UNSEALED:
            _log.warning("the savepoint %s is of an older format that names no files: it is not verified", source.root)
        elif known is not None:
            raise CheckpointError(f"the savepoint {source.root} has format {known}; this Midstream reads {SAVED}")
        manifest = msgspec.json.decode(text if known == UNSEALED else opened(text), type=Manifest)
        if manifest.format not in (SAVED, UNSEALED):
            raise CheckpointError(
                f"the savepoint {source.root} has format {manifest.format}; this Midstream reads {SAVED}"
            )
        return manifest
    except FileNotFoundError as error:
        raise CheckpointError(f"{source.root} is not a savepoint, or was not finished: {where} is missing") from error
    except (BrokenSealError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{where} is damaged: {error}") from error
