"""The state of a group with fields of every kind, over a store in memory: what the tests of state share."""

from __future__ import annotations

from contextlib import ExitStack

import pyarrow as pa

from midstream.plan.plan import StateField
from midstream.state.entries import Form
from midstream.state.keyed import GroupState
from midstream.state.stores.contract import FIRST, LAST, Version
from midstream.state.stores.memory import MemoryStore
from tests.support.edits import Edits

FIELDS = (
    StateField(name="plain", kind="value", type="bigint", default=7),
    StateField(name="brief", kind="value", type="string", ttl=100),
    StateField(name="items", kind="list", type="bigint"),
    StateField(name="recent", kind="list", type="bigint", ttl=50),
    StateField(name="seen", kind="map", key_type="string", type="bigint"),
    StateField(name="hot", kind="map", key_type="bigint", type="string", ttl=80),
)
TTL = {field.name: field.ttl for field in FIELDS}
TYPES = {
    "plain": pa.int64(),
    "brief": pa.string(),
    "items": pa.int64(),
    "recent": pa.int64(),
    "seen": pa.int64(),
    "seen key": pa.string(),
    "hot": pa.string(),
    "hot key": pa.int64(),
}
FORM = Form("sums", FIELDS, TYPES)
VERSION = Version("job", 1, "c")

READERS = ExitStack()  # that stay open


def at_clock(now: int, store: MemoryStore | None = None) -> GroupState:
    return GroupState(FORM, READERS.enter_context((store or MemoryStore()).reader()), now)


def kept(state: GroupState) -> MemoryStore:
    """The store after the epoch, where it was empty before."""
    state.release()
    store = MemoryStore()
    store.apply([Edits(state.changes)], VERSION)
    return store


def entries(store: MemoryStore) -> list[bytes]:
    with store.reader() as reader:
        return [entry for entry, _ in reader.scan(FIRST, LAST)]
