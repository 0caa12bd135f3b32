"""The values of a group in a run, in the order of the keys: columns of numbers, or bytes; or that a key is deleted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.state.keys import Bytes, split
from midstream.state.runs.keys import Places

Array = npt.NDArray[Any]
Flags = npt.NDArray[np.uint8]


class ValueColumn(ABC):
    """The values of a group in a run."""

    @property
    @abstractmethod
    def gone(self) -> Flags | None:
        """Which keys are deleted; `None`: none."""

    @abstractmethod
    def take(self, places: Places) -> ValueColumn:
        """The values at some places, in their order."""

    @abstractmethod
    def to_list(self) -> list[bytes | None]:
        """The values, one after the other; `None` where a key is deleted."""


@dataclass(frozen=True, slots=True)
class NumberValues(ValueColumn):
    """Values that are records of numbers, each number in a column."""

    dtype: np.dtype[Any]  # of a record, packed: its bytes are the value
    columns: tuple[Array, ...]
    gone: Flags | None = None

    @classmethod
    def of_rows(cls, dtype: np.dtype[Any], rows: Bytes) -> NumberValues:
        """Part the rows of a matrix into their numbers."""
        records = np.ascontiguousarray(rows).view(dtype).ravel()
        return cls(dtype, tuple(np.ascontiguousarray(records[name]) for name in dtype.names or ()))

    def take(self, places: Places) -> NumberValues:  # noqa: D102 - as in the contract
        gone = None if self.gone is None else self.gone[places]
        return NumberValues(self.dtype, tuple(column[places] for column in self.columns), gone)

    def to_list(self) -> list[bytes | None]:  # noqa: D102
        found: list[bytes | None] = list(split(self.rows()))
        return found if self.gone is None else _without(found, self.gone)

    def rows(self) -> Bytes:
        """The values as the rows of a matrix."""
        size = len(self.columns[0])
        records = np.empty(size, self.dtype)
        for name, column in zip(self.dtype.names or (), self.columns, strict=True):
            records[name] = column
        return records.view(np.uint8).reshape(size, self.dtype.itemsize)


@dataclass(frozen=True, slots=True)
class ByteValues(ValueColumn):
    """Values of any width."""

    array: pa.Array  # (large) binary without nulls; empty where a key is deleted
    gone: Flags | None = None

    @classmethod
    def of(cls, values: Sequence[bytes | None] | pa.Array) -> ByteValues:
        """Take values as they are collected: nothing for a key that is deleted."""
        array = values if isinstance(values, pa.Array) else pa.array(values, pa.binary())
        if pa.types.is_fixed_size_binary(array.type):
            array = array.cast(pa.binary())
        if not array.null_count:
            return cls(array)
        return cls(array.fill_null(b""), array.is_null().cast(pa.uint8()).to_numpy(zero_copy_only=False))

    def take(self, places: Places) -> ByteValues:  # noqa: D102
        gone = None if self.gone is None else self.gone[places]
        return ByteValues(self.array.take(pa.array(places)), gone)

    def to_list(self) -> list[bytes | None]:  # noqa: D102
        found: list[bytes | None] = self.array.to_pylist()
        return found if self.gone is None else _without(found, self.gone)


def joined(values: Sequence[ValueColumn]) -> ValueColumn:
    """Concatenate values: as numbers if all are the same numbers, else as bytes."""
    gone = None
    if any(each.gone is not None for each in values):
        gone = np.concatenate([np.zeros(size_of(v), np.uint8) if v.gone is None else v.gone for v in values])
    dtypes = {v.dtype for v in values if isinstance(v, NumberValues)}
    if len(dtypes) == 1:
        (dtype,) = dtypes
        numbers = [number for v in values if (number := _as_numbers(v, dtype)) is not None]
        if len(numbers) == len(values):
            columns = zip(*(v.columns for v in numbers), strict=True)
            return NumberValues(dtype, tuple(np.concatenate(column) for column in columns), gone)
    arrays = [_as_binary(value) for value in values]
    type = pa.large_binary() if any(array.type == pa.large_binary() for array in arrays) else pa.binary()
    return ByteValues(pa.concat_arrays([array.cast(type) for array in arrays]), gone)


def size_of(values: ValueColumn) -> int:
    """Count values."""
    return len(values.columns[0]) if isinstance(values, NumberValues) else len(values.array)  # type: ignore[attr-defined]


def _as_numbers(values: ValueColumn, dtype: np.dtype[Any]) -> NumberValues | None:
    """Return values as records of numbers, if they have their width."""
    if not isinstance(values, ByteValues):
        return values if isinstance(values, NumberValues) and values.dtype == dtype else None
    blank = bytes(dtype.itemsize)
    rows = [blank if value is None else value for value in values.to_list()]
    if any(len(row) != dtype.itemsize for row in rows):
        return None
    return NumberValues.of_rows(dtype, np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1))


def _as_binary(values: ValueColumn) -> pa.Array:
    if isinstance(values, ByteValues):
        return values.array
    return pa.array([value or b"" for value in values.to_list()], pa.binary())


def _without(values: list[bytes | None], gone: Flags) -> list[bytes | None]:
    for at in np.flatnonzero(gone).tolist():
        values[at] = None
    return values
