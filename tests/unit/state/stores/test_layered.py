"""A snapshot with a layer over it: read where it lies, left as it is. What all stores promise is in tests/contract."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import StateError
from midstream.state.stores.contract import FIRST, LAST
from midstream.state.stores.layered import LayeredStore
from midstream.state.throttle import Throttle
from tests.contract.test_stores import BEGIN, NEXT, contents, in_lmdb, layered, numbered
from tests.support.edits import Edits


def test_a_layered_store_stands_at_the_version_of_its_snapshot_until_something_is_applied(tmp_path: Path):
    base = in_lmdb(tmp_path, {b"\1a": b"A"})
    base.snapshot(str(tmp_path / "base"))
    store = LayeredStore(str(tmp_path / "base"), str(tmp_path / "layer"))
    assert store.version() == BEGIN
    assert contents(store) == [(b"\1a", b"A")]
    store.apply([], NEXT)
    assert store.version() == NEXT
    store.close()


def test_a_layered_store_leaves_its_snapshot_alone_and_is_not_snapshotted_itself(tmp_path: Path):
    store = layered(tmp_path, numbered(10))
    assert isinstance(store, LayeredStore)
    before = Path(store.base).read_bytes()
    store.apply([Edits({b"\1%06d" % i: None for i in range(10)})], NEXT)
    assert contents(store) == []
    assert Path(store.base).read_bytes() == before
    with pytest.raises(StateError, match="flatten"):
        store.snapshot(str(tmp_path / "again"))
    store.close()


def test_a_layered_store_over_a_far_snapshot_waits_for_every_page_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    waited: list[float] = []
    monkeypatch.setattr("midstream.state.throttle.time.sleep", waited.append)
    entries = numbered(20_000)
    base = in_lmdb(tmp_path, entries)
    base.snapshot(str(tmp_path / "base"))
    store = LayeredStore(str(tmp_path / "base"), str(tmp_path / "layer"), Throttle(bytes_per_second=1))
    store.apply([Edits({b"\1%06d" % 1: b"new"})], NEXT)
    with store.reader() as reader:
        reader.get_many([b"\1%06d" % 1])
        assert waited.pop() <= 0, "what is in the layer is near"
        reader.get_many([b"\1%06d" % number for number in range(3)])
        assert waited.pop() == pytest.approx((2 + 1) * 4096, abs=1), "two leaves below one root"
        list(reader.scan(FIRST, LAST))
    assert waited.pop() >= sum(len(key) + len(value) for key, value in entries.items())
    store.flatten(str(tmp_path / "full")).close()
    assert waited.pop() == pytest.approx(os.path.getsize(tmp_path / "base"), abs=1)
    store.close()


ENTRIES = st.dictionaries(
    st.sampled_from([b"\1%c" % letter for letter in b"abcdef"]), st.none() | st.binary(max_size=3)
)


@given(ENTRIES, ENTRIES, ENTRIES)
def test_flattened_it_holds_what_it_held(
    tmp_path_factory: pytest.TempPathFactory,
    stored: dict[bytes, bytes | None],
    first: dict[bytes, bytes | None],
    second: dict[bytes, bytes | None],
):
    directory = tmp_path_factory.mktemp("layered")
    base = in_lmdb(directory, {key: value for key, value in stored.items() if value is not None})
    base.snapshot(str(directory / "base"))
    store = LayeredStore(str(directory / "base"), str(directory / "layer"))
    store.apply([Edits(first), Edits(second)], NEXT)
    model = Edits(second).applied_to(Edits(first).applied_to(Edits(stored).applied_to({})))
    assert dict(contents(store)) == model
    full = store.flatten(str(directory / "full"))
    assert (dict(contents(full)), full.version(), full.entries()) == (model, NEXT, len(model))
    for each in (base, store, full):
        each.close()


def test_without_a_snapshot_there_is_nothing_to_read(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        LayeredStore(str(tmp_path / "gone"), str(tmp_path / "layer"))
