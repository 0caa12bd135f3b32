"""Kinds of stores are found by name, and what is none is refused with what is wrong."""

from __future__ import annotations

from typing import ClassVar

import pytest

from midstream.errors import StateError
from midstream.state.stores.contract import GroupStore, StoreKind
from midstream.state.stores.kinds import BUILT_IN, store_kind
from midstream.state.stores.lmdb_kind import LmdbKind
from tests.outside.whole import Whole

HERE = __name__


class Unfinished(StoreKind):
    """Cannot be made."""

    format: ClassVar[str] = "unfinished"


class Nameless(StoreKind):
    """Has no format."""

    def open(self, path: str) -> GroupStore:
        raise NotImplementedError

    def delete(self, path: str) -> None:
        raise NotImplementedError


class Misnamed(Nameless):
    """Has one that cannot end the name of a file."""

    format: ClassVar[str] = "a/b"


class Reserved(Nameless):
    """Has one that ends the names of other files."""

    format: ClassVar[str] = "base"


def test_a_kind_is_found_by_its_name_or_by_where_it_is_and_made_once():
    assert isinstance(store_kind("lmdb"), LmdbKind)
    assert isinstance(store_kind("tests.outside.whole:Whole"), Whole)
    assert store_kind("lmdb") is store_kind("lmdb")
    assert [isinstance(store_kind(name), StoreKind) for name in BUILT_IN] == [True] * len(BUILT_IN)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("rocksdb", "there is no store 'rocksdb': it is 'lmdb' or 'runs', or where a StoreKind is imported from"),
        ("", "there is no store ''"),
        ("tests.outside.whole", "there is no store 'tests.outside.whole'"),
        ("tests.outside.whole:", "there is no store 'tests.outside.whole:'"),
        ("no.such.package:Store", "cannot be imported: ModuleNotFoundError: No module named 'no'"),
        ("tests.outside.whole:Half", "cannot be imported: AttributeError: .* 'Half'"),
        ("tests.outside.whole:WholeStore", "is not a store: it must be a class made of midstream's StoreKind"),
        (f"{HERE}:HERE", "is not a store"),
        (f"{HERE}:Unfinished", "cannot be made: .*abstract"),
        (f"{HERE}:Nameless", "needs a format, .*, not ''"),
        (f"{HERE}:Misnamed", "needs a format, .*, not 'a/b'"),
        (f"{HERE}:Reserved", "needs a format, .* other than 'base', not 'base'"),
    ],
)
def test_what_is_no_kind_of_store_is_refused_with_what_is_wrong(name: str, why: str):
    with pytest.raises(StateError, match=why):
        store_kind(name)
