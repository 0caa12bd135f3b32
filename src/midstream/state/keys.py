"""Keys as bytes: how the key columns of Arrow rows become the byte strings that stores know, and back.

A key is the concatenation of its columns, each preceded by one byte (0 null, 1 present); integers and times are
big-endian with the sign bit flipped, so that byte order is value order; strings carry their length. Keys whose
columns all have a fixed width are handled as one NumPy matrix, without Python code per row.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Rows:
    """Rows arranged by group and key."""

    order: npt.NDArray[np.intp]  # row numbers, sorted by (group, key)
    starts: npt.NDArray[np.intp]  # where in `order` each distinct key begins
    groups: npt.NDArray[np.int32]  # of each distinct key
    distinct: list[bytes] | Bytes  # each distinct key; as the rows of a matrix, where the width is fixed

    @property
    def matrix(self) -> Bytes | None:
        """The distinct keys as a matrix, where the width is fixed."""
        return self.distinct if isinstance(self.distinct, np.ndarray) else None

    @cached_property
    def keys(self) -> list[bytes]:
        """Each distinct key; made of the matrix when it is asked for."""
        return split(self.distinct) if isinstance(self.distinct, np.ndarray) else self.distinct


class KeyCodec:
    """Encodes the key columns of one operator."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.widths = [_width(field.type) for field in schema]
        self.fixed = all(self.widths)
        self.width = sum(w + 1 for w in self.widths) if self.fixed else 0

    def arrange(
        self, columns: list[pa.Array], groups: npt.NDArray[np.int32], prefix: bytes = b"", *, stable: bool = True
    ) -> Rows:
        """Sort rows by group and key, and find the distinct keys; each gets the prefix.

        `stable`: rows of one key keep their order; without it the sort takes half the time.
        """
        if self.fixed:
            ranks, matrix = self._ranks(columns, len(groups))
        else:
            encoded = self.encode(columns).dictionary_encode()
            by_value = pc.sort_indices(encoded.dictionary).to_numpy()
            rank = np.empty(len(by_value), dtype=np.int64)
            rank[by_value] = np.arange(len(by_value))
            codes = encoded.indices.to_numpy(zero_copy_only=False)
            ranks = rank[codes]
        order = np.argsort(ranks, kind="stable" if stable else None)
        owners = groups.astype(np.int16) if groups.max(initial=0) < 1 << 15 else groups  # 16 bits: a radix sort
        order = order[np.argsort(owners[order], kind="stable")]
        new = np.ones(len(order), dtype=bool)
        new[1:] = (ranks[order[1:]] != ranks[order[:-1]]) | (owners[order[1:]] != owners[order[:-1]])
        starts = np.flatnonzero(new)
        chosen = order[starts]
        if not self.fixed:
            keys = encoded.dictionary.take(pa.array(codes[chosen])).to_pylist()
            return Rows(order, starts, groups[chosen], [prefix + key for key in keys])
        if matrix is None:
            matrix = self._matrix([column.take(pa.array(chosen)) for column in columns], len(chosen))
        else:
            matrix = matrix[chosen]
        if prefix:
            head = np.broadcast_to(np.frombuffer(prefix, np.uint8), (len(matrix), len(prefix)))
            matrix = np.concatenate([head, matrix], axis=1)
        return Rows(order, starts, groups[chosen], matrix)

    def _ranks(self, columns: list[pa.Array], rows: int) -> tuple[npt.NDArray[Any], Bytes | None]:
        """Something that sorts like the keys: the integers themselves, or the keys as byte strings of one width."""
        if len(columns) == 1 and columns[0].null_count == 0 and pa.types.is_integer(self.schema[0].type):
            return columns[0].to_numpy(), None
        matrix = self._matrix(columns, rows)
        return matrix.view(f"S{self.width}").ravel() if rows else np.zeros(0, "S1"), matrix

    def encode(self, columns: list[pa.Array]) -> pa.Array:
        """Turn key columns into one array of binary keys."""
        if self.fixed:
            rows = len(columns[0])
            data = pa.py_buffer(self._matrix(columns, rows))
            return pa.Array.from_buffers(pa.binary(self.width), rows, [None, data]).cast(pa.binary())
        parts = []
        for column, field, width in zip(columns, self.schema, self.widths, strict=True):
            flag = pc.if_else(column.is_valid(), pa.scalar(b"\1"), pa.scalar(b"\0"))
            if width:
                data = pa.py_buffer(_big_endian(column, field.type))
                body = pa.Array.from_buffers(pa.binary(width), len(column), [None, data]).cast(pa.binary())
            else:
                text = column.cast(pa.string()) if pa.types.is_decimal(field.type) else column
                text = text.cast(pa.binary()).fill_null(b"")
                lengths = pc.binary_length(text).cast(pa.int32()).to_numpy(zero_copy_only=False).astype(">u4")
                prefix = pa.Array.from_buffers(pa.binary(4), len(text), [None, pa.py_buffer(lengths)]).cast(pa.binary())
                body = pc.binary_join_element_wise(prefix, text, b"")
            parts += [flag, body]
        return pc.binary_join_element_wise(*parts, b"")

    def decode(self, keys: list[bytes]) -> list[pa.Array]:
        """Turn binary keys back into key columns."""
        if self.fixed and keys:
            matrix = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), self.width)
            found, at = [], 0
            for field, width in zip(self.schema, self.widths, strict=True):
                data = np.ascontiguousarray(matrix[:, at + 1 : at + 1 + width])
                found.append(_from_matrix(data, matrix[:, at] != 0, field.type, width))
                at += 1 + width
            return found
        columns: list[list[Any]] = [[] for _ in self.widths]
        for key in keys:
            at = 0
            for column, width in zip(columns, self.widths, strict=True):
                present, size, at = key[at], width, at + 1
                if not width:
                    size, at = int.from_bytes(key[at : at + 4], "big"), at + 4
                column.append(key[at : at + size] if present else None)
                at += size
        return [_from_bytes(c, f.type, w) for c, f, w in zip(columns, self.schema, self.widths, strict=True)]

    def _matrix(self, columns: list[pa.Array], rows: int) -> Bytes:
        matrix = np.empty((rows, self.width), dtype=np.uint8)
        at = 0
        for column, field, width in zip(columns, self.schema, self.widths, strict=True):
            matrix[:, at] = 1 if column.null_count == 0 else column.is_valid().to_numpy(zero_copy_only=False)
            matrix[:, at + 1 : at + 1 + width] = _big_endian(column, field.type)
            at += 1 + width
        return matrix


def split(matrix: Bytes) -> list[bytes]:
    """Cut the rows of a byte matrix into byte strings."""
    return [row for (row,) in struct.iter_unpack(f"{matrix.shape[1]}s", matrix.tobytes())] if len(matrix) else []


def _width(type: pa.DataType) -> int:
    if pa.types.is_decimal128(type) or pa.types.is_decimal256(type) or type.num_fields:
        return 0
    if pa.types.is_boolean(type):
        return 1
    try:
        return int(type.bit_width) // 8
    except ValueError:
        return 0


def _unsigned(width: int) -> np.dtype[Any]:
    return np.dtype(f"<u{width}")


def _big_endian(column: pa.Array, type: pa.DataType) -> Bytes:
    """The values of a fixed-width column as big-endian bytes in value order; nulls are zero."""
    width = _width(type)
    if pa.types.is_boolean(type):
        ones: Bytes = column.fill_null(False).cast(pa.uint8()).to_numpy(zero_copy_only=False).reshape(-1, 1)
        return ones
    if pa.types.is_floating(type):
        filled = column.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0
        filled[np.isnan(filled)] = np.nan  # one of many
        bits = filled.view(_unsigned(width))
    else:
        integers = column.view(pa.int64() if width == 8 else pa.int32()) if pa.types.is_temporal(type) else column
        bits = integers.fill_null(0).to_numpy(zero_copy_only=False).view(_unsigned(width))
        bits = bits ^ _unsigned(width).type(1 << (8 * width - 1))
    big: Bytes = bits.astype(f">u{width}").view(np.uint8).reshape(-1, width)
    return big


def _from_bytes(values: list[bytes | None], type: pa.DataType, width: int) -> pa.Array:
    if not width:
        if pa.types.is_decimal(type):
            return pa.array([None if v is None else v.decode() for v in values], pa.string()).cast(type)
        return pa.array(values, pa.binary()).cast(type)
    valid = np.array([v is not None for v in values], dtype=bool)
    joined = b"".join(v if v is not None else bytes(width) for v in values)
    return _from_matrix(np.frombuffer(joined, np.uint8).reshape(-1, width), valid, type, width)


def _from_matrix(data: Bytes, valid: npt.NDArray[np.bool_], type: pa.DataType, width: int) -> pa.Array:
    """Turn the big-endian bytes of a column, one value a row, back into values."""
    if pa.types.is_boolean(type):
        return pa.array(data.ravel() != 0, mask=~valid)
    bits = data.view(f">u{width}").ravel().astype(_unsigned(width))
    if pa.types.is_floating(type):
        return pa.array(bits.view(f"<f{width}"), type, mask=~valid)
    signed = (bits ^ _unsigned(width).type(1 << (8 * width - 1))).view(f"<i{width}")
    return pa.array(signed, signed_type(width), mask=~valid).cast(type)


def signed_type(width: int) -> pa.DataType:
    """The signed integer type of a width in bytes."""
    return {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}[width]
