"""Changes of an epoch that is not committed are seen over what is stored, by the same epoch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from midstream.state.stores.memory import MemoryStore
from midstream.state.stores.pending import PendingStore

KEYS = st.binary(min_size=1, max_size=3).map(lambda key: b"\1" + key)


@given(st.dictionaries(KEYS, st.binary()), st.dictionaries(KEYS, st.none() | st.binary()), KEYS, KEYS)
def test_a_view_is_the_store_with_the_changes_applied(
    stored: dict[bytes, bytes], changes: dict[bytes, bytes | None], start: bytes, stop: bytes
):
    model = {key: value for key, value in {**stored, **changes}.items() if value is not None}
    keys = sorted({*stored, *changes, start})
    with PendingStore(MemoryStore(stored), changes).reader() as reader:
        assert reader.get_many(keys) == [model.get(key) for key in keys]
        assert list(reader.scan(start, stop)) == [(key, model[key]) for key in sorted(model) if start <= key < stop]
