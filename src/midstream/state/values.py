"""Values of declared state types: checked when a user writes them, and turned into what msgpack can hold."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa

from midstream.errors import StateError

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY = date(1970, 1, 1)
_MICRO = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=timezone.utc) - EPOCH) // _MICRO
_LAST = (datetime.max.replace(tzinfo=timezone.utc) - EPOCH) // _MICRO


def micros_of(moment: datetime) -> int:
    """Return microseconds since 1970; a moment without a zone is taken as UTC."""
    return ((moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)) - EPOCH) // _MICRO


def moment_of(micros: int) -> datetime:
    """Return the moment, in UTC, so many microseconds after 1970; beyond the years 1 to 9999 the first or last of them.

    Spark's times go further than Python's, and a watermark may lie there.
    """
    return EPOCH + timedelta(microseconds=min(max(micros, _FIRST), _LAST))


class Wire:
    """The form of one type between Python and msgpack."""

    def __init__(self, type: pa.DataType, what: str) -> None:
        self.type = type
        self._what = what
        self.pack, self.unpack = _converters(type)

    def checked(self, value: Any) -> Any:
        """Turn a user's value into its stored form, or say that it does not fit."""
        if value is None:
            return None
        try:
            return self.pack(value)
        except (TypeError, ValueError, ArithmeticError, pa.ArrowException) as error:
            raise StateError(
                f"{self._what} is declared as {self.type}; {value!r} ({type(value).__name__}) does not fit: {error}"
            ) from None

    def array(self, packed: Sequence[Any]) -> pa.Array:
        """Turn stored forms into a column."""
        plain = _stored_as(self.type)
        if plain is None:
            return pa.array([None if value is None else self.unpack(value) for value in packed], self.type)
        return pa.array(packed, plain).cast(self.type)

    def stored(self, column: pa.Array) -> list[Any]:
        """Turn a column into stored forms."""
        plain = _stored_as(self.type)
        if plain is None:
            return [None if value is None else self.pack(value) for value in column.to_pylist()]
        return list(column.cast(plain).to_pylist())

    def key(self, value: Any) -> Any:
        """Turn the key of a map into its stored form: it must be there, and 0.0 and -0.0 are one."""
        if value is None:
            raise StateError(f"{self._what} cannot be None")
        packed = self.checked(value)
        return packed + 0.0 if isinstance(packed, float) else packed


def _stored_as(type: pa.DataType) -> pa.DataType | None:
    """The plain type whose values are what is stored; `None` for what is made of several."""
    if pa.types.is_timestamp(type):
        return pa.int64()
    if pa.types.is_date32(type):
        return pa.int32()
    if pa.types.is_decimal(type):
        return pa.string()
    return None if pa.types.is_nested(type) else type


def _integer(bits: int) -> Callable[[Any], int]:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def pack(value: Any) -> int:
        if type(value) is int:
            number = value
        elif isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError("a whole number is needed")
        else:
            number = int(value.__index__())
        if not low <= number <= high:
            raise ValueError(f"it lies outside {bits} bits")
        return number

    return pack


def _exactly(*types: type) -> Callable[[Any], Any]:
    def pack(value: Any) -> Any:
        if not isinstance(value, types):
            raise TypeError(f"{types[0].__name__} is needed")
        return value

    return pack


def _float(value: Any) -> float:
    if isinstance(value, (str, bytes, bool)):
        raise TypeError("a number is needed")
    return float(value)


def _single(value: Any) -> float:
    """Round to the 32 bits that the type has: what is read does not change when it passes through a savepoint."""
    return float(struct.unpack("<f", struct.pack("<f", _float(value)))[0])


def _many(value: Any) -> Any:
    if isinstance(value, (str, bytes)):
        raise TypeError("a list is needed")
    return value


def _same(value: Any) -> Any:
    return value


def _converters(type: pa.DataType) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    kinds = pa.types
    if kinds.is_integer(type):
        return _integer(type.bit_width), _same
    if kinds.is_floating(type):
        return (_single if type.bit_width == 32 else _float), _same
    if kinds.is_string(type) or kinds.is_large_string(type):
        return _exactly(str), _same
    if kinds.is_boolean(type):
        return _exactly(bool), _same
    if kinds.is_binary(type) or kinds.is_large_binary(type):
        return lambda v: bytes(_exactly(bytes, bytearray)(v)), _same
    if kinds.is_timestamp(type):
        return lambda v: micros_of(_exactly(datetime)(v)), moment_of
    if kinds.is_date(type):
        return lambda v: (_exactly(date)(v) - _DAY).days, lambda days: _DAY + timedelta(days=days)
    if kinds.is_decimal(type):
        return lambda v: str(pa.scalar(Decimal(v), type).as_py()), Decimal
    return _nested(type)


def _nested(type: pa.DataType) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    kinds = pa.types
    if kinds.is_list(type):
        pack, unpack = _nullable(type.value_type)
        return lambda v: [pack(x) for x in _many(v)], lambda v: [unpack(x) for x in v]
    if kinds.is_map(type):
        (pack_key, unpack_key), (pack, unpack) = _converters(type.key_type), _nullable(type.item_type)
        return (
            lambda v: [(pack_key(k), pack(x)) for k, x in dict(v).items()],
            lambda v: {unpack_key(k): unpack(x) for k, x in v},
        )
    if kinds.is_struct(type):
        fields = [(field.name, *_nullable(field.type)) for field in type]

        def pack_struct(value: Any) -> list[Any]:
            if isinstance(value, dict):
                if unknown := value.keys() - {name for name, _, _ in fields}:
                    raise ValueError(f"it has no field {', '.join(map(str, unknown))}")
                return [pack(value.get(name)) for name, pack, _ in fields]
            return [pack(x) for (_, pack, _), x in zip(fields, _many(value), strict=True)]

        return pack_struct, lambda v: {n: unpack(x) for (n, _, unpack), x in zip(fields, v, strict=True)}
    raise StateError(f"state of type {type} is not supported")


def _nullable(type: pa.DataType) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    pack, unpack = _converters(type)
    return lambda v: None if v is None else pack(v), lambda v: None if v is None else unpack(v)
