"""Expiry: what has outlived its TTL is deleted, in the epoch in which it was noted to look."""

from __future__ import annotations

from typing import Any

import msgspec

from midstream.state.entries import EXPIRY, after, field_prefix, split_field_entry
from midstream.state.keyed import GroupState

_unpack = msgspec.msgpack.Decoder().decode


def expire(state: GroupState) -> None:
    """Delete what of a group has outlived its TTL."""
    shortened: set[tuple[int, bytes]] = set()  # lists that lost elements: field, key
    for note in state.take_until(EXPIRY, state.now):
        entry = note[9:]
        stored = state.get(entry)
        if stored is None:
            continue
        key = state.form.key_of_record(entry)
        if key is not None:
            record = _unpack(stored)
            _remove_items(state, key, record, [at for at, item in enumerate(record) if _is_over(state, at, item)])
        elif state.form.owns(entry) and _unpack(stored)[1] <= state.now:
            state.put(entry, None)
            shortened.add(split_field_entry(entry)[:2])
    for number, key in sorted(shortened):
        at, prefix, stored = state.form.field_at(number), field_prefix(number, key), state.get(state.form.record(key))
        assert at is not None
        if state.form.fields[at].kind == "list" and stored and not any(state.scan(prefix, after(prefix))):
            _remove_items(state, key, _unpack(stored), [at])


def _is_over(state: GroupState, at: int, item: Any) -> bool:
    field = state.form.fields[at]
    return bool(field.ttl and field.kind == "value" and item is not None and item[1] <= state.now)


def _remove_items(state: GroupState, key: bytes, record: list[Any], gone: list[int]) -> None:
    state.put_record(key, [None if at in gone else item for at, item in enumerate(record)])
