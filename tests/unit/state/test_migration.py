"""All entries of a group whose state was migrated: keys that were not met since have what a call would have made."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from midstream.plan.plan import StateField
from midstream.state.entries import NEVER, Form
from midstream.state.keyed import GroupState
from midstream.state.migration import migrated
from midstream.state.stores.contract import Version
from midstream.state.stores.memory import MemoryStore
from tests.support.edits import Edits

OLD = Form("sums", (StateField(name="total", kind="value", type="bigint"),), {"total": pa.int64()})


def doubled(old: dict[str, Any]) -> dict[str, Any]:
    return {"twice": old["total"] * 2}


NEW = Form("sums", (StateField(name="twice", kind="value", type="bigint"),), {"twice": pa.int64()}, 1, OLD, doubled)


def written(store: MemoryStore, form: Form, name: str, values: dict[bytes, int]) -> None:
    with store.reader() as reader:
        state = GroupState(form, reader, 0)
        for key, value in values.items():
            state.bind(key)
            state.write(name, value)
            state.release()
    store.apply([Edits(state.changes)], Version("job", 1, "c"))


def test_a_key_that_was_not_met_since_is_migrated_and_one_that_was_is_left_as_it_is():
    store = MemoryStore()
    written(store, OLD, "total", {b"a": 1, b"b": 2})
    written(store, NEW, "twice", {b"b": 40, b"c": 60})
    with store.reader() as reader:
        found = MemoryStore(dict(migrated(NEW, reader)))
    with found.reader() as reader:
        state, seen = GroupState(NEW, reader, NEVER), {}
        for key in (b"a", b"b", b"c", b"d"):
            state.bind(key)
            seen[key] = state.read("twice")
        assert seen == {b"a": 2, b"b": 40, b"c": 60, b"d": None}
        assert state.changes == {}


def test_state_that_has_no_older_form_is_walked_as_it_is():
    store = MemoryStore()
    written(store, OLD, "total", {b"a": 1, b"b": 2})
    with store.reader() as reader:
        assert list(migrated(OLD, reader)) == list(reader.scan(b"\1", b"\xff"))
