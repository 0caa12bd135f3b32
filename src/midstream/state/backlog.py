"""Rows that wait for the state of their group: an epoch commits without them, a later one makes up for it.

A group that has not come yet sits out an epoch as a whole, with its rows and its timers, and every epoch after it until
its state is there. Then it goes through them one after the other, each with the clock, the seed and the watermark that
it had: what comes out is what would have come out without waiting, only later.
"""

from __future__ import annotations

import os

import msgspec
import pyarrow as pa
import pyarrow.ipc

from midstream.checkpoint.checksum import checked_content, named_by_content
from midstream.checkpoint.records import Deferred
from midstream.checkpoint.storage import Storage
from midstream.errors import StateError


def write_rows(storage: Storage, directory: str, rows: pa.RecordBatch) -> str:
    """Store rows under a name that nobody else uses, and return it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_batch(rows)
    buffer = sink.getvalue()
    path = named_by_content(f"{directory}/{os.urandom(8).hex()}", buffer)
    storage.write_new(path, buffer)
    return path


def read_rows(storage: Storage, path: str) -> pa.RecordBatch:
    """Read rows that were put aside."""
    try:
        return pa.ipc.open_file(checked_content(path, storage.buffer(path))).get_batch(0)
    except (OSError, pa.ArrowInvalid) as error:
        raise StateError(
            f"the rows in {storage.path(path)} wait for their state, and are missing or damaged ({error}). Restore the "
            "file from a copy of the checkpoint and start again with the same checkpoint"
        ) from error


def left_over(backlog: tuple[Deferred, ...], caught_up: set[int]) -> tuple[Deferred, ...]:
    """What still waits after some groups have made up for all they had missed."""
    rest = []
    for each in backlog:
        groups = tuple(group for group in each.groups if group not in caught_up)
        if groups:
            rest.append(msgspec.structs.replace(each, groups=groups))
    return tuple(rest)
