"""What every store promises, and what only a store that is shared by processes has to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import lmdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from midstream.errors import StateError
from midstream.state.background import in_background
from midstream.state.stores.contract import FIRST, LAST, GroupStore, InPlaceStore, StoreKind, Version
from midstream.state.stores.layered import LayeredStore
from midstream.state.stores.lmdb_kind import LmdbKind
from midstream.state.stores.memory import MemoryStore
from midstream.state.throttle import Throttle
from tests.outside.whole import Whole
from tests.support.edits import Edits

Entries = dict[bytes, bytes]
Make = Callable[[Entries], GroupStore]

BEGIN = Version("job", 1, "first")
NEXT = Version("job", 2, "second")


KINDS: dict[str, StoreKind] = {
    "lmdb": LmdbKind(),
    "whole": Whole(),
}


class Implementation(NamedTuple):
    """How a store is made, and how it is made of a snapshot."""

    make: Callable[[Path, Entries], GroupStore]
    restored: Callable[[str], GroupStore]


def of_kind(kind: StoreKind) -> Implementation:
    def make(directory: Path, entries: Entries) -> GroupStore:
        store = kind.open(str(directory / f"{os.urandom(4).hex()}.{kind.format}"))
        store.apply([Edits(entries)], BEGIN)
        return store

    return Implementation(make, kind.restored)


def memory(directory: Path, entries: Entries) -> GroupStore:
    return MemoryStore(entries, BEGIN)


in_lmdb = of_kind(KINDS["lmdb"]).make


def layered(directory: Path, entries: Entries) -> GroupStore:
    """Half of the entries lie in the snapshot, the others and what hides older ones in the layer."""
    keys = sorted(entries)
    below = {key: entries[key] for key in keys[::2]}
    stale = dict.fromkeys(keys[1::4], b"stale")
    gone = {b"\1gone": b"1", b"\1gone" * 130: b"2", b"\x80": b"3"}
    gone = {key: value for key, value in gone.items() if key not in entries}
    full = in_lmdb(directory, {**below, **stale, **gone})
    base = str(directory / f"{os.urandom(4).hex()}.snapshot")
    full.snapshot(base)
    full.close()
    store = LayeredStore(base, base + ".layer")
    above: dict[bytes, bytes | None] = {key: entries[key] for key in keys[1::2]}
    store.apply([Edits({**above, **dict.fromkeys(gone)})], BEGIN)
    return store


IMPLEMENTATIONS = {
    "memory": Implementation(memory, MemoryStore.restore),
    "layered": Implementation(layered, KINDS["lmdb"].restored),
    **{name: of_kind(kind) for name, kind in KINDS.items()},
}


@pytest.fixture(params=list(IMPLEMENTATIONS))
def implementation(request: pytest.FixtureRequest) -> Implementation:
    """Give one after the other."""
    return IMPLEMENTATIONS[request.param]


@pytest.fixture
def make(implementation: Implementation, tmp_path: Path) -> Iterator[Make]:
    """Give a function that makes a store with some entries, at the version `BEGIN`."""
    made: list[GroupStore] = []

    def make(entries: Entries) -> GroupStore:
        made.append(implementation.make(tmp_path, entries))
        return made[-1]

    yield make
    for store in made:
        store.close()


def contents(store: GroupStore) -> list[tuple[bytes, bytes]]:
    with store.reader() as reader:
        return list(reader.scan(FIRST, LAST))


def numbered(count: int, value: bytes = b"v") -> Entries:
    return {b"\1%06d" % i: value + b"%d" % i for i in range(count)}


class TestEveryStore:
    def test_gives_the_values_of_keys_in_the_order_of_the_question_and_none_for_what_it_has_not(self, make: Make):
        store = make({b"\1a": b"A", b"\1b": b"B", b"\1c": b"C"})
        with store.reader() as reader:
            assert reader.get_many([b"\1c", b"\1x", b"\1a"]) == [b"C", None, b"A"]
            assert reader.get_many([b"\1b", b"\1b"]) == [b"B", b"B"]
            assert reader.get_many([b"\1b", b"\1x", b"\1b"]) == [b"B", None, b"B"]
            assert reader.get_many([b"\1x", b"\1gone"]) == [None, None]
            assert reader.get_many([]) == []

    @pytest.mark.parametrize(
        ("start", "stop", "found"),
        [
            (FIRST, LAST, "a aa ab b c"),
            (b"\1aa", b"\1b", "aa ab"),
            (b"\1a\0", b"\1b\0", "aa ab b"),
            (b"\1b", b"\1b", ""),
            (b"\1c", b"\1a", ""),
            (b"\1d", LAST, ""),
            (b"\1", b"\1", ""),
        ],
    )
    def test_scans_from_the_first_key_up_to_but_not_including_the_last(
        self, make: Make, start: bytes, stop: bytes, found: str
    ):
        store = make({b"\1" + name.encode(): b"v" for name in ("b", "a", "c", "ab", "aa")})
        with store.reader() as reader:
            assert [key[1:].decode() for key, _ in reader.scan(start, stop)] == found.split()

    def test_scans_in_the_order_of_bytes(self, make: Make):
        keys = [b"\1\xff", b"\1\x00", b"\1", b"\xfe\xff\xff", b"\1\x00\x00", b"\2", b"\1\x7f", b"\1\x80", b"\1\xff\x00"]
        store = make(dict.fromkeys(keys, b"v"))
        assert [key for key, _ in contents(store)] == sorted(keys)

    def test_stands_at_the_version_that_was_applied_last(self, make: Make):
        store = make({b"\1a": b"A"})
        assert store.version() == BEGIN
        store.apply([], NEXT)
        assert store.version() == NEXT
        assert contents(store) == [(b"\1a", b"A")]

    def test_applies_puts_and_deletions(self, make: Make):
        store = make({b"\1a": b"A", b"\1b": b"B"})
        store.apply([Edits({b"\1a": b"newer", b"\1b": None, b"\1c": b"C", b"\1unknown": None})], NEXT)
        assert contents(store) == [(b"\1a", b"newer"), (b"\1c", b"C")]

    def test_applies_several_epochs_oldest_first(self, make: Make):
        store = make({b"\1a": b"A"})
        epochs = [{b"\1a": b"1", b"\1b": b"1"}, {b"\1a": None, b"\1c": b"2"}, {b"\1a": b"3", b"\1b": None}]
        store.apply([Edits(epoch) for epoch in epochs], NEXT)
        assert contents(store) == [(b"\1a", b"3"), (b"\1c", b"2")]

    @pytest.mark.parametrize("size", [10, 5_000], ids=["at once", "after growing"])
    def test_that_fails_to_apply_is_as_it_was(self, make: Make, size: int):
        class Broken(Edits):
            def deletes(self) -> Iterable[bytes]:
                raise OSError("the disk is gone")

        store = make({b"\1a": b"A"})
        with pytest.raises(OSError, match="the disk is gone"):
            store.apply([Edits({b"\1a": b"B"}), Broken(numbered(size, b"x" * 500))], NEXT)
        assert store.version() == BEGIN
        assert contents(store) == [(b"\1a", b"A")]
        store.apply([Edits({b"\1b": b"B"})], NEXT)
        assert contents(store) == [(b"\1a", b"A"), (b"\1b", b"B")]

    def test_shows_an_open_reader_nothing_newer(self, make: Make):
        store = make({b"\1a": b"A", b"\1b": b"B"})
        with store.reader() as reader:
            store.apply([Edits({b"\1a": b"newer", b"\1b": None, b"\1c": b"C"})], NEXT)
            assert reader.get_many([b"\1a", b"\1b", b"\1c"]) == [b"A", b"B", None]
            assert list(reader.scan(FIRST, LAST)) == [(b"\1a", b"A"), (b"\1b", b"B")]
        assert contents(store) == [(b"\1a", b"newer"), (b"\1c", b"C")]

    def test_that_grows_fails_an_open_reader_rather_than_show_it_what_is_newer(self, make: Make):
        store = make({b"\1a": b"A", b"\1b": b"B"})
        with store.reader() as reader:
            walk = reader.scan(FIRST, LAST)
            assert next(walk) == (b"\1a", b"A")
            store.apply([Edits({b"\1b": b"newer", **numbered(5_000, b"x" * 1000)})], NEXT)
            try:
                assert list(walk) == [(b"\1b", b"B")]
                assert reader.get_many([b"\1b"]) == [b"B"]
            except lmdb.Error:
                pass
        assert len(contents(store)) == 5_002

    def test_keeps_empty_values_apart_from_no_values(self, make: Make):
        store = make({b"\1a": b"", b"\1b": b""})
        store.apply([Edits({b"\1b": None, b"\1c": b"", b"\1" * 600: b""})], NEXT)
        with store.reader() as reader:
            assert reader.get_many([b"\1a", b"\1b", b"\1c", b"\1" * 600]) == [b"", None, b"", b""]
        assert len(contents(store)) == 3

    @pytest.mark.parametrize("size", [478, 479, 480, 510, 511, 512, 600, 5_000])
    def test_takes_keys_of_any_length(self, make: Make, size: int):
        key, other = b"\1" * size, b"\1" * (size - 1) + b"\2"
        store = make({key: b"A", other: b"B", b"\1short": b"C"})
        with store.reader() as reader:
            assert reader.get_many([other, key, key + b"\0", key[:-1]]) == [b"B", b"A", None, None]
        assert contents(store) == [(key, b"A"), (other, b"B"), (b"\1short", b"C")]
        store.apply([Edits({key: b"newer", other: None})], NEXT)
        assert contents(store) == [(key, b"newer"), (b"\1short", b"C")]
        store.apply([Edits({key: None})], NEXT)
        assert contents(store) == [(b"\1short", b"C")]

    def test_scans_long_keys_of_one_beginning_in_order(self, make: Make):
        prefix = b"\1" + b"p" * 478  # as much as LMDB's own order reaches
        ends = [b"", b"\0", b"a", b"a" * 31, b"a" * 32, b"a" * 33, b"b" * 40, b"c", b"z" * 32, b"z" * 100, b"\xff" * 50]
        around = [b"\1o", prefix[:-1], prefix[:-1] + b"q" * 60, b"\2"]
        entries = {key: b"v%d" % i for i, key in enumerate([*(prefix + end for end in ends), *around])}
        store = make(entries)
        assert contents(store) == sorted(entries.items())
        bounds = [*entries, prefix + b"a" * 20, prefix + b"m" * 600, prefix + b"zz"]
        with store.reader() as reader:
            for start in bounds:
                for stop in bounds:
                    expected = [key for key in sorted(entries) if start <= key < stop]
                    assert [key for key, _ in reader.scan(start, stop)] == expected

    def test_grows_as_its_contents_do(self, make: Make):
        store = make(numbered(10))
        entries = numbered(4_000, b"x" * 1000)
        store.apply([Edits(entries)], NEXT)
        store.apply([Edits({b"\1large": b"y" * 3_000_000})], NEXT)
        assert dict(contents(store)) == {**entries, b"\1large": b"y" * 3_000_000}
        assert store.bytes_used() > 7_000_000
        twice = 20 if isinstance(store, LayeredStore) else 0  # what was there before may be counted in both layers
        assert len(entries) + 1 <= store.entries() <= len(entries) + 1 + twice

    def test_is_the_same_after_a_snapshot(self, make: Make, implementation: Implementation, tmp_path: Path):
        entries = {**numbered(2_000, b"x" * 700), b"\1" * 700: b"long", b"\1none": b""}
        store = make(entries)
        path = str(tmp_path / "snapshot")
        if isinstance(store, LayeredStore):
            store = store.flatten(str(tmp_path / "flat"))
        store.snapshot(path)
        opened = implementation.restored(path)
        assert opened.version() == BEGIN
        assert dict(contents(opened)) == entries
        opened.apply([Edits({b"\1none": None, b"\1new": b"1"})], NEXT)
        assert dict(contents(store)) == entries
        store.close()
        opened.close()

    @settings(
        max_examples=40,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(data=st.data())
    def test_holds_what_a_dictionary_would(self, make: Make, data: st.DataObject):
        bodies = st.binary(max_size=3) | st.sampled_from([b"a" * 510, b"a" * 511, b"a" * 540, b"a" * 540 + b"b"])
        keys = st.builds(lambda first, body: bytes((first,)) + body, st.sampled_from([1, 2, 16, 254]), bodies)
        values = st.binary(max_size=3)
        model = data.draw(st.dictionaries(keys, values, max_size=20))
        store = make(model)
        for epoch in data.draw(st.lists(st.dictionaries(keys, values | st.none(), max_size=10), max_size=4)):
            store.apply([Edits(epoch)], NEXT)
            model = Edits(epoch).applied_to(model)
        start, stop = data.draw(keys), data.draw(keys)
        asked = data.draw(st.lists(keys, max_size=10))
        with store.reader() as reader:
            assert list(reader.scan(FIRST, LAST)) == sorted(model.items())
            expected = [(key, value) for key, value in sorted(model.items()) if start <= key < stop]
            assert list(reader.scan(start, stop)) == expected
            assert reader.get_many(asked) == [model.get(key) for key in asked]


def test_a_new_store_in_memory_is_empty_and_has_no_version():
    store = MemoryStore()
    assert store.version() is None
    assert contents(store) == []
    store.close()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
class TestEveryKind:
    def test_begins_an_empty_store_without_a_version_that_is_there_from_then_on(self, kind: StoreKind, tmp_path: Path):
        path = str(tmp_path / "new")
        store = kind.open(path)
        assert store.version() is None
        assert contents(store) == []
        assert os.path.exists(path)
        store.close()
        again = kind.open(path)
        assert again.version() is None
        again.close()

    def test_opens_what_was_applied_before(self, kind: StoreKind, tmp_path: Path):
        path = str(tmp_path / "store")
        store = kind.open(path)
        store.apply([Edits({b"\1a": b"A"})], BEGIN)
        store.close()
        again = kind.open(path)
        assert again.version() == BEGIN
        assert contents(again) == [(b"\1a", b"A")]
        again.close()

    def test_deletes_a_store_with_all_that_belongs_to_it_and_one_that_is_not_there(
        self, kind: StoreKind, tmp_path: Path
    ):
        store = kind.open(str(tmp_path / "store"))
        store.apply([Edits(numbered(100))], BEGIN)
        for _ in range(2):
            kind.delete(str(tmp_path / "store"))
            in_background(lambda: None).result()
            assert list(tmp_path.iterdir()) == []

    def test_makes_of_one_snapshot_as_many_stores_as_are_wanted(self, kind: StoreKind, tmp_path: Path):
        store = of_kind(kind).make(tmp_path, {b"\1a": b"A"})
        store.snapshot(str(tmp_path / "snapshot"))
        copies = [shutil.copy(tmp_path / "snapshot", tmp_path / f"copy {number}") for number in range(2)]
        stores = [kind.restored(str(copy)) for copy in copies]
        stores[0].apply([Edits({b"\1a": b"newer"})], NEXT)
        assert [(store.version(), contents(store)) for store in stores] == [
            (NEXT, [(b"\1a", b"newer")]),
            (BEGIN, [(b"\1a", b"A")]),
        ]
        for each in (store, *stores):
            each.close()

    @pytest.mark.parametrize("size", [1, 100, 5_000])
    def test_says_that_a_store_is_damaged_when_it_is_opened_or_asked_for_its_version(
        self, kind: StoreKind, tmp_path: Path, size: int
    ):
        (tmp_path / "store").write_bytes(b"x" * size)
        with pytest.raises((StateError, OSError, ValueError)):
            kind.open(str(tmp_path / "store")).version()

    def test_reads_a_snapshot_in_place_or_says_that_it_does_not(self, kind: StoreKind, tmp_path: Path):
        store = of_kind(kind).make(tmp_path, {b"\1a": b"A", b"\1b": b"B"})
        snapshot, layer = str(tmp_path / "snapshot"), str(tmp_path / "layer")
        store.snapshot(snapshot)
        before = Path(snapshot).read_bytes()
        if not kind.reads_in_place:
            with pytest.raises(StateError, match="does not read snapshots in place"):
                kind.in_place(snapshot, layer, Throttle())
            return
        there = kind.in_place(snapshot, layer, Throttle())
        assert isinstance(there, InPlaceStore)
        assert (there.base, there.version()) == (snapshot, BEGIN)
        there.apply([Edits({b"\1a": None, b"\1c": b"C"})], NEXT)
        assert contents(there) == contents(there.flatten(str(tmp_path / "full"))) == [(b"\1b", b"B"), (b"\1c", b"C")]
        assert Path(snapshot).read_bytes() == before
        there.close()
        kind.delete(layer)
        in_background(lambda: None).result()
        assert not os.path.exists(layer)
