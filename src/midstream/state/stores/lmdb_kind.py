"""The kind of store that keeps each group in a file of LMDB: the one that jobs have unless they choose another."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import ClassVar

from midstream.state.background import in_background
from midstream.state.stores.contract import GroupStore, InPlaceStore, StoreKind
from midstream.state.stores.layered import LayeredStore
from midstream.state.stores.lmdb import LmdbStore, close_environment
from midstream.state.throttle import Throttle

_ROOM = 1 << 20  # bytes that a copy can grow by before it is mapped anew; a snapshot has no free pages


class LmdbKind(StoreKind):
    """Files of LMDB. A snapshot is one too: restoring is copying, and it can be read where it is stored."""

    format: ClassVar[str] = "mdb"
    reads_in_place: ClassVar[bool] = True

    def open(self, path: str) -> GroupStore:  # noqa: D102 - as in the contract
        return LmdbStore(path)

    def delete(self, path: str) -> None:  # noqa: D102
        close_environment(path)
        in_background(_unlinked, (path, f"{path}-lock"))

    def restored(self, path: str) -> GroupStore:  # noqa: D102
        os.truncate(path, os.path.getsize(path) + _ROOM)
        return LmdbStore(path)

    def in_place(self, snapshot: str, path: str, throttle: Throttle) -> InPlaceStore:  # noqa: D102
        return LayeredStore(snapshot, path, throttle)


def _unlinked(files: Iterable[str]) -> None:
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file)
