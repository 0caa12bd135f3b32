"""The store in memory beyond what every store promises: its snapshots, and readers that are closed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import StateError
from midstream.state.stores.contract import FIRST, LAST, Version
from midstream.state.stores.memory import MemoryStore
from tests.support.edits import Edits

NOW = Version("job", 3, "c")
ENTRIES = st.dictionaries(st.binary(min_size=1, max_size=4).map(lambda key: b"\1" + key), st.binary(max_size=4))


def contents(store: MemoryStore) -> dict[bytes, bytes]:
    with store.reader() as reader:
        return dict(reader.scan(FIRST, LAST))


@given(ENTRIES, st.none() | st.just(NOW))
def test_a_snapshot_is_restored_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[bytes, bytes], version: Version | None
):
    path = str(tmp_path_factory.mktemp("memory") / "snapshot")
    MemoryStore(entries, version).snapshot(path)
    again = MemoryStore.restore(path)
    assert (contents(again), again.version(), again.entries()) == (entries, version, len(entries))
    assert again.bytes_used() == sum(map(len, entries)) + sum(map(len, entries.values()))


def test_a_store_and_what_it_was_made_of_do_not_share_entries():
    given = {b"\1a": b"1"}
    store = MemoryStore(given)
    given[b"\1b"] = b"2"
    store.apply([Edits({b"\1a": None})], NOW)
    assert (contents(store), given) == ({}, {b"\1a": b"1", b"\1b": b"2"})


def test_a_reader_that_is_closed_is_refused():
    store = MemoryStore({b"\1a": b"1"})
    with store.reader() as reader:
        assert reader.get_many([b"\1a"]) == [b"1"]
    for ask in (lambda: reader.get_many([]), lambda: next(reader.scan(FIRST, LAST))):
        with pytest.raises(StateError, match="a reader that is closed"):
            ask()


def test_closed_it_has_nothing(tmp_path: Path):
    store = MemoryStore({b"\1a": b"1"}, NOW)
    store.close()
    assert (contents(store), store.entries(), store.bytes_used()) == ({}, 0, 0)
