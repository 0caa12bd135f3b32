"""The keys of a group in a run, in the order of their bytes: as integers, as bytes of one width, or of any width.

A run stores the smallest form that fits all its keys. Integers are keys that end in eight bytes, behind a prefix that
all have: those of one column that is a whole number or a time. They are stored as that column.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from midstream.state.keys import Bytes, split
from midstream.state.runs.hashes import Hashes, flat, hashes_of

Places = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]
MISSING = -1  # the place of a key that is not there

_INTEGER = 8
_SIGN = np.uint64(1 << 63)
_NO_INDEX = np.empty(0, np.uint64), np.empty(0, np.uint32)  # of keys that are not in order yet


class Wanted:
    """Keys that are looked up, in the forms in which runs have theirs; each form is made once, when a run needs it."""

    def __init__(self, keys: list[bytes] | Bytes | pa.Array) -> None:
        self._keys = keys
        self._integers: dict[bytes, tuple[npt.NDArray[np.int64], Places]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def matrix(self) -> Bytes | None:
        """The keys as the rows of a matrix, if they have one width."""
        return self._keys if isinstance(self._keys, np.ndarray) else self._rows

    @cached_property
    def _rows(self) -> Bytes | None:
        if len(self) and isinstance(self._keys, list):
            width, joined = len(self._keys[0]), b"".join(self._keys)
            if len(joined) == width * len(self) and {*map(len, self._keys)} == {width}:
                return np.frombuffer(joined, np.uint8).reshape(len(self), width)
        elif len(self) and pa.types.is_fixed_size_binary(self.array.type):
            return rows_of(self.array)
        elif len(self):
            offsets, content = flat(self.array)
            widths = np.diff(offsets)
            if (widths == widths[0]).all():
                return content.reshape(len(self), int(widths[0]))
        return None

    @cached_property
    def array(self) -> pa.Array:
        """The keys as an array of binary, of one width or of any."""
        if isinstance(self._keys, list):
            return pa.array(self._keys, pa.binary())
        return binary(self._keys) if isinstance(self._keys, np.ndarray) else self._keys

    @cached_property
    def hashes(self) -> Hashes:
        """The hashes of the keys."""
        return hashes_of(as_binary(self.array))

    def integers(self, prefix: bytes) -> tuple[npt.NDArray[np.int64], Places]:
        """Return the keys that are integers behind a prefix, and where in the question they are."""
        if prefix not in self._integers:
            rows, places = self.of_width(len(prefix) + _INTEGER)
            head = np.frombuffer(prefix, np.uint8)
            fits = (rows[:, : len(prefix)] == head).all(axis=1)
            if not fits.all():
                rows, places = rows[fits], places[fits]
            self._integers[prefix] = integers_of(rows[:, len(prefix) :]), places
        return self._integers[prefix]

    def of_width(self, width: int) -> tuple[Bytes, Places]:
        """Return the keys of a width, and where in the question they are."""
        if self.matrix is not None:
            if self.matrix.shape[1] == width:
                return self.matrix, np.arange(len(self))
            return np.empty((0, width), np.uint8), np.empty(0, np.intp)
        keys = self._keys if isinstance(self._keys, list) else self.array.to_pylist()
        fitting = [(i, key) for i, key in enumerate(keys) if len(key) == width]
        joined = np.frombuffer(b"".join(key for _, key in fitting), np.uint8).reshape(-1, width)
        return joined, np.array([i for i, _ in fitting], np.intp)


class KeyColumn(ABC):
    """The keys of a group in a run."""

    @abstractmethod
    def __len__(self) -> int:
        """Count them."""

    @abstractmethod
    def find(self, wanted: Wanted) -> Places:
        """Return the place of each key that is looked up, `MISSING` where there is none."""

    @abstractmethod
    def first_from(self, bound: bytes) -> int:
        """Return the place of the first key that is not less than a bound; how many there are if all are."""

    @abstractmethod
    def to_list(self, start: int, stop: int) -> list[bytes]:
        """Some of the keys that follow each other."""

    @abstractmethod
    def array(self) -> pa.Array:
        """The keys as an array of (large) binary."""

    @abstractmethod
    def order(self) -> Places:
        """The places of the keys in their order, equal keys as they are, where they are sorted in pieces only."""

    @abstractmethod
    def differ_in(self, order: Places) -> Flags:
        """Which keys, taken in an order, differ from the one before them."""

    @abstractmethod
    def take(self, places: Places) -> KeyColumn:
        """The keys at some places."""

    def place_of(self, key: bytes) -> int:
        """Return the place of one key, `MISSING` if it is not there: quicker than `find` for one."""
        at = self.first_from(key)
        return at if at < len(self) and self.to_list(at, at + 1) == [key] else MISSING


class MatrixKeys(KeyColumn):
    """Keys that have one width."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many bytes each has."""

    @abstractmethod
    def matrix(self, start: int = 0, stop: int | None = None) -> Bytes:
        """Some of the keys that follow each other, as the rows of a matrix."""

    def to_list(self, start: int, stop: int) -> list[bytes]:  # noqa: D102 - as in the contract
        return split(self.matrix(start, stop))

    @property
    @abstractmethod
    def comparable(self) -> npt.NDArray[Any]:
        """The keys as what NumPy compares and sorts as them."""

    def array(self) -> pa.Array:  # noqa: D102
        return binary(self.matrix())

    def order(self) -> Places:  # noqa: D102
        return np.argsort(self.comparable, kind="stable")  # which merges what is sorted in pieces

    def differ_in(self, order: Places) -> Flags:  # noqa: D102
        arranged = self.comparable[order]
        return np.append(True, arranged[1:] != arranged[:-1])[: len(order)]


@dataclass(frozen=True, slots=True)
class IntegerKeys(MatrixKeys):
    """Keys of eight bytes behind a common prefix, as the integers whose order is theirs."""

    prefix: bytes
    values: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:  # noqa: D102 - as in the contract
        return len(self.prefix) + _INTEGER

    @property
    def comparable(self) -> npt.NDArray[np.int64]:  # noqa: D102
        return self.values

    def take(self, places: Places) -> IntegerKeys:  # noqa: D102
        return IntegerKeys(self.prefix, self.values[places])

    def find(self, wanted: Wanted) -> Places:  # noqa: D102
        integers, places = wanted.integers(self.prefix)
        return _found(self.values, integers, places, len(wanted))

    def first_from(self, bound: bytes) -> int:  # noqa: D102
        size = len(self.prefix)
        if bound[:size] != self.prefix:
            return 0 if bound < self.prefix else len(self)
        number, side = _bounded(bound[size:], _INTEGER)
        return int(np.searchsorted(self.values, integers_of(number[None, :])[0], side))

    def matrix(self, start: int = 0, stop: int | None = None) -> Bytes:  # noqa: D102
        values = self.values[start:stop]
        rows = np.empty((len(values), self.width), np.uint8)
        rows[:, : len(self.prefix)] = np.frombuffer(self.prefix, np.uint8)
        bits = values.view(np.uint64) ^ _SIGN
        rows[:, len(self.prefix) :] = bits.astype(">u8").view(np.uint8).reshape(-1, _INTEGER)
        return rows


@dataclass(frozen=True, slots=True)
class FixedKeys(MatrixKeys):
    """Keys of one width, as the rows of a matrix."""

    rows: Bytes

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:  # noqa: D102
        return int(self.rows.shape[1])

    @property
    def comparable(self) -> npt.NDArray[np.bytes_]:  # noqa: D102
        return _strings(self.rows)

    def take(self, places: Places) -> FixedKeys:  # noqa: D102
        return FixedKeys(self.rows[places])

    def find(self, wanted: Wanted) -> Places:  # noqa: D102
        rows, places = wanted.of_width(self.width)
        return _found(self.comparable, _strings(rows), places, len(wanted))

    def first_from(self, bound: bytes) -> int:  # noqa: D102
        row, side = _bounded(bound, self.width)
        return int(np.searchsorted(self.comparable, _strings(row[None, :])[0], side))

    def matrix(self, start: int = 0, stop: int | None = None) -> Bytes:  # noqa: D102
        return self.rows[start:stop]


@dataclass(frozen=True, slots=True)
class VariedKeys(KeyColumn):
    """Keys of any width, with an index by hash: the hashes in their order, and the place of the key that each is of."""

    keys: pa.Array
    hashes: Hashes
    places: npt.NDArray[np.uint32]

    @classmethod
    def indexed(cls, keys: pa.Array) -> VariedKeys:
        """Make the index of keys."""
        hashes = hashes_of(keys)
        order = np.argsort(hashes)
        return cls(keys, hashes[order], order.astype(np.uint32))

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, wanted: Wanted) -> Places:  # noqa: D102
        found = np.full(len(wanted), MISSING)
        if not len(self):
            return found
        at = np.searchsorted(self.hashes, wanted.hashes)
        asked = np.flatnonzero(at < len(self))
        while len(asked):  # once, unless different keys have the same hash
            same = self.hashes[at[asked]] == wanted.hashes[asked]
            asked = asked[same]
            places = self.places[at[asked]]
            equal = pc.equal(self.keys.take(pa.array(places)), as_binary(wanted.array).take(pa.array(asked)))
            hit = equal.to_numpy(zero_copy_only=False)
            found[asked[hit]] = places[hit]
            asked = asked[~hit]
            at[asked] += 1
            asked = asked[at[asked] < len(self)]
        return found

    def first_from(self, bound: bytes) -> int:  # noqa: D102
        return bisect_left(range(len(self)), bound, key=lambda i: self.keys[i].as_py())

    def place_of(self, key: bytes) -> int:  # noqa: D102
        at = self.first_from(key)
        return at if at < len(self) and self.keys[at].as_py() == key else MISSING

    def to_list(self, start: int, stop: int) -> list[bytes]:  # noqa: D102
        return self.keys.slice(start, stop - start).to_pylist()  # type: ignore[no-any-return]

    def array(self) -> pa.Array:  # noqa: D102
        return self.keys

    def order(self) -> Places:  # noqa: D102
        return pc.sort_indices(self.keys).to_numpy().astype(np.intp)  # type: ignore[no-any-return]  # it is stable

    def differ_in(self, order: Places) -> Flags:  # noqa: D102
        arranged = self.keys.take(pa.array(order))
        differ = pc.not_equal(arranged[1:], arranged[:-1]).to_numpy(zero_copy_only=False)
        return np.append(True, differ)[: len(order)]

    def take(self, places: Places) -> VariedKeys:  # noqa: D102
        return VariedKeys.indexed(self.keys.take(pa.array(places)))


def key_column(keys: list[bytes] | Bytes | pa.Array) -> KeyColumn:
    """Return keys, which are in order, in the smallest form that fits them."""
    wanted = Wanted(keys)
    rows = wanted.matrix
    if rows is None:
        return VariedKeys.indexed(as_binary(wanted.array))
    size = rows.shape[1] - _INTEGER
    if size > 0 and len(rows) and (rows[:, :size] == rows[0, :size]).all():
        return IntegerKeys(rows[0, :size].tobytes(), integers_of(rows[:, size:]))
    return FixedKeys(rows)


def concatenated(columns: Sequence[KeyColumn]) -> KeyColumn:
    """Return keys behind each other in one column, in the smallest form that fits all: sorted in pieces only."""
    matrices = [column for column in columns if isinstance(column, MatrixKeys)]
    if len(matrices) < len(columns) or len({column.width for column in matrices}) > 1:
        arrays = [column.array() for column in columns]
        type = pa.large_binary() if any(a.type == pa.large_binary() for a in arrays) else pa.binary()
        return VariedKeys(pa.concat_arrays([array.cast(type) for array in arrays]), *_NO_INDEX)
    integers = [column for column in matrices if isinstance(column, IntegerKeys)]
    if len(integers) == len(columns) and len({column.prefix for column in integers}) == 1:
        return IntegerKeys(integers[0].prefix, np.concatenate([column.values for column in integers]))
    return FixedKeys(np.concatenate([column.matrix() for column in matrices]))


def binary(rows: Bytes) -> pa.Array:
    """Return the rows of a matrix as an array of binary."""
    content = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.Array.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, content]).cast(pa.binary())


def as_binary(array: pa.Array) -> pa.Array:
    """Return an array of binary of one width, or of any, as one of any."""
    return array.cast(pa.binary()) if pa.types.is_fixed_size_binary(array.type) else array


def rows_of(array: pa.Array) -> Bytes:
    """Return an array of binary of one width as the rows of a matrix."""
    width = array.type.byte_width
    content = np.frombuffer(array.buffers()[1], np.uint8, len(array) * width, array.offset * width)
    return content.reshape(len(array), width)


def integers_of(rows: Bytes) -> npt.NDArray[np.int64]:
    """Return the integers whose order is that of rows of eight bytes."""
    bits = np.ascontiguousarray(rows).view(">u8").ravel().astype(np.uint64)
    return (bits ^ _SIGN).view(np.int64)


def _strings(rows: Bytes) -> npt.NDArray[np.bytes_]:
    """Rows of bytes as strings that NumPy can compare; all have one width, so it is no matter that it drops zeros."""
    return np.ascontiguousarray(rows).view(f"S{rows.shape[1]}").ravel()


def _found(values: npt.NDArray[Any], wanted: npt.NDArray[Any], places: Places, size: int) -> Places:
    if not len(values) or not len(wanted):
        return np.full(size, MISSING)
    at = np.searchsorted(values, wanted)
    at[at == len(values)] = 0
    at[values[at] != wanted] = MISSING
    if len(at) == size:  # places are all there are, in order
        return at
    found = np.full(size, MISSING)
    found[places] = at
    return found


def _bounded(bound: bytes, width: int) -> tuple[Bytes, Any]:
    """A bound as a key of a width, and its side of an equal key: a longer one is behind what it begins with."""
    row = np.frombuffer(bound[:width].ljust(width, b"\0"), np.uint8)
    return row, "right" if len(bound) > width else "left"
