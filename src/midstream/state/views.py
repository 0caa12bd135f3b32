"""Views of a list or map of the key at hand, as a `KeyedFunction` sees them: entries, each stored on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any, Protocol

import msgspec

from midstream.state.entries import Form, after, field_prefix

_pack, _unpack = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode


class State(Protocol):
    """What a view needs of the state of its group."""

    form: Form
    now: int

    @property
    def key(self) -> bytes:
        """The key at hand."""
        ...

    def get(self, entry: bytes) -> bytes | None:
        """Look an entry up."""
        ...

    def put(self, entry: bytes, value: bytes | None) -> None:
        """Change an entry; `None` deletes it."""
        ...

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Walk entries in order."""
        ...

    def item(self, at: int) -> Any:
        """Return one item of the record at hand."""
        ...

    def set_item(self, at: int, item: Any) -> None:
        """Change one item of the record at hand."""
        ...

    def expiry(self, at: int, entry: bytes) -> int:
        """Return the moment when something written now expires."""
        ...


class _View:
    """The entries of one list or map of the key at hand; they are kept apart from the record."""

    def __init__(self, state: State, at: int) -> None:
        self._state, self._at = state, at
        self._wire = state.form.wires[at]
        self._prefix = field_prefix(state.form.number(at), state.key)

    def _entries(self) -> Iterator[tuple[bytes, Any]]:
        for entry, stored in self._state.scan(self._prefix, after(self._prefix)):
            value, expiry = _unpack(stored)
            if not expiry or expiry > self._state.now:
                yield entry, value

    def _put(self, entry: bytes, value: Any) -> None:
        packed = self._wire.checked(value)
        self._state.put(entry, _pack((packed, self._state.expiry(self._at, entry))))

    def _out(self, packed: Any) -> Any:
        return None if packed is None else self._wire.unpack(packed)

    def clear(self) -> None:
        """Remove everything."""
        for entry, _ in list(self._state.scan(self._prefix, after(self._prefix))):
            self._state.put(entry, None)


class ListView(_View):
    """The list of the key at hand."""

    def append(self, value: Any) -> None:
        """Add an element at the end."""
        size = self._state.item(self._at) or 0
        self._put(self._prefix + size.to_bytes(4, "big"), value)
        self._state.set_item(self._at, size + 1)

    def extend(self, values: Iterable[Any]) -> None:
        """Add elements at the end."""
        for value in values:
            self.append(value)

    def clear(self) -> None:
        """Remove everything."""
        super().clear()
        self._state.set_item(self._at, None)

    def replace(self, values: Iterable[Any]) -> None:
        """Make the list hold just these."""
        kept = list(values)
        self.clear()
        self.extend(kept)

    def __iter__(self) -> Iterator[Any]:
        return (self._out(value) for _, value in self._entries())

    def __len__(self) -> int:
        return sum(1 for _ in self._entries())

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __bool__(self) -> bool:
        return next(self._entries(), None) is not None

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, (ListView, list, tuple)) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


class MapView(_View, MutableMapping[Any, Any]):
    """The map of the key at hand; iterates in the order of its encoded keys, the same in every replay."""

    def _entry(self, key: Any) -> bytes:
        wire = self._state.form.key_wires[self._at]
        assert wire is not None
        return self._prefix + _pack(wire.key(key))

    def __getitem__(self, key: Any) -> Any:
        stored = self._state.get(self._entry(key))
        if stored is not None:
            value, expiry = _unpack(stored)
            if not expiry or expiry > self._state.now:
                return self._out(value)
        raise KeyError(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._put(self._entry(key), value)

    def __delitem__(self, key: Any) -> None:
        self[key]
        self._state.put(self._entry(key), None)

    def discard(self, key: Any) -> None:
        """Remove an entry that may be there, without looking."""
        self._state.put(self._entry(key), None)

    def __iter__(self) -> Iterator[Any]:
        wire = self._state.form.key_wires[self._at]
        assert wire is not None
        unpack: Callable[[Any], Any] = wire.unpack
        for entry, _ in list(self._entries()):
            yield unpack(_unpack(entry[len(self._prefix) :]))

    def __len__(self) -> int:
        return sum(1 for _ in self._entries())

    def replace(self, entries: Any) -> None:
        """Make the map hold just these."""
        kept = dict(entries)
        self.clear()
        self.update(kept)

    def __repr__(self) -> str:
        return repr(dict(self))
