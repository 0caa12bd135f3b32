"""Kinds of stores by name: ours, and those of other packages by where they are imported from."""

from __future__ import annotations

import importlib
import re
from functools import cache

from midstream.errors import StateError
from midstream.state.stores.contract import StoreKind

DEFAULT, RUNS = "lmdb", "runs"
BUILT_IN = {
    DEFAULT: "midstream.state.stores.lmdb_kind:LmdbKind",
    RUNS: "midstream.state.runs.kind:RunsKind",
}
_FORMAT = re.compile(r"[a-z0-9_]+")
_RESERVED = "base"  # ends names of links to snapshots that are read in place


@cache
def store_kind(name: str) -> StoreKind:
    """Return the kind of store of a name: one of ours, or `package.module:Name`, a `StoreKind` to be imported.

    >>> store_kind("lmdb").format
    'mdb'
    """
    module, _, attribute = BUILT_IN.get(name, name).partition(":")
    if not module or not attribute:
        raise StateError(
            f"there is no store {name!r}: it is {' or '.join(map(repr, BUILT_IN))}, or where a StoreKind is imported "
            "from, as 'package.module:Name'"
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever the module does when it is imported
        raise StateError(
            f"the store {name!r} cannot be imported: {type(error).__name__}: {error}. Install its package in the "
            "Python of the driver and of the executors"
        ) from error
    if not (isinstance(found, type) and issubclass(found, StoreKind)):
        raise StateError(f"{name!r} is not a store: it must be a class made of midstream's StoreKind, not {found!r}")
    try:
        kind: StoreKind = found()
    except TypeError as error:  # abstract methods are left, or arguments are wanted
        raise StateError(f"the store {name!r} cannot be made: {error}") from error
    if not _FORMAT.fullmatch(getattr(kind, "format", "")) or kind.format == _RESERVED:
        raise StateError(
            f"the store {name!r} needs a format, a name of lower-case letters, digits and underscores other than "
            f"{_RESERVED!r}, not {getattr(kind, 'format', '')!r}"
        )
    return kind
