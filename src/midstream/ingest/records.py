"""From bytes to rows: lines of JSON or CSV, or an Arrow stream; what does not fit is refused one by one, with a reason.

Lines go through msgspec and not through Arrow's readers: those report neither line nor column of an error, and Arrow's
JSON reader (26.0) crashes the whole process at the line `null`.
"""

from __future__ import annotations

import csv
import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from midstream.errors import SchemaError
from midstream.sources.spools.columns import Column, arrow_schema

MAX_LINES = 1 << 19  # at once: each costs time and memory, however short it is
MAX_REFUSED = 10_000  # likewise, and a dead letter is longer than its record
VALUE = (Column("value", "string"),)  # the columns without a schema: each line as it came


class RefusedRecord(NamedTuple):
    """A record that is not taken."""

    place: int  # among the records of its block, from 0
    reason: str
    content: bytes


class Parsed(NamedTuple):
    """The rows of a block, and the records that were refused."""

    rows: pa.Table
    refused: list[RefusedRecord]


class Format(Protocol):
    """How records are written."""

    def split(self, block: bytes) -> Any:
        """Cut a block into records: a sliceable thing with a length; `SchemaError` if that fails."""

    def parse(self, records: Any) -> Parsed:
        """Turn records into rows."""


def of(name: str, columns: tuple[Column, ...], max_record: int) -> Format:
    """Return the format of a name: json, csv or arrow."""
    if name == "arrow":
        return ArrowRecords(columns)
    if columns == VALUE:
        return Lines(columns, max_record, _texts)
    if name == "json":
        return Lines(columns, max_record, _json(columns))
    csv.field_size_limit(max(max_record, csv.field_size_limit()))
    return Lines(columns, max_record, _csv(columns))


Decode = Callable[[bytes], tuple[Any, ...]]  # a line -> its values; any error means that it is refused


class Lines:
    """Records that end with a newline; blank lines do not count."""

    def __init__(self, columns: tuple[Column, ...], max_record: int, decode: Decode) -> None:
        self._schema = arrow_schema(columns)
        self._max_record = max_record
        self._decode = decode

    def split(self, block: bytes) -> list[bytes]:
        """Cut a block at its newlines, which may have a carriage return before them."""
        if block.count(b"\n") > MAX_LINES:
            raise SchemaError(f"more than {MAX_LINES} lines at once; send fewer")
        lines = [line.removesuffix(b"\r") for line in block.split(b"\n")]
        return [line for line in lines if line.strip() or len(line) > self._max_record]

    def parse(self, records: Sequence[bytes]) -> Parsed:
        """Decode each line; those that cannot be decoded, or are too long, are refused."""
        try:
            if max(map(len, records), default=0) <= self._max_record:
                return Parsed(self._table([self._decode(line) for line in records]), [])
        except Exception:  # the bad line is found one by one
            pass
        return self._one_by_one(records)

    def _one_by_one(self, records: Sequence[bytes]) -> Parsed:
        rows: list[tuple[Any, ...]] = []
        refused: list[RefusedRecord] = []
        for place, line in enumerate(records):
            if len(refused) > MAX_REFUSED:
                raise SchemaError(
                    f"more than {MAX_REFUSED} refused records at once; record {refused[0].place}: {refused[0].reason}"
                )
            if len(line) > self._max_record:
                refused.append(RefusedRecord(place, f"longer than {self._max_record} bytes", line))
                continue
            try:
                row = self._decode(line)
                self._table([row])  # a decimal may have too many digits for its column
                rows.append(row)
            except Exception as error:  # whatever a producer sends must not end the server
                refused.append(RefusedRecord(place, _reason(error), line))
        return Parsed(self._table(rows), refused)

    def _table(self, rows: list[tuple[Any, ...]]) -> pa.Table:
        values = zip(*rows, strict=True) if rows else ([] for _ in self._schema)
        arrays = [_array(column, field.type) for column, field in zip(values, self._schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self._schema)


class ArrowRecords:
    """Records that come as Arrow streams: a block is taken as a whole or not at all."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self._schema = arrow_schema(columns)

    def split(self, block: bytes) -> pa.Table:
        """Read the stream, and check its values: what comes over a network may point anywhere."""
        try:
            rows = pa.ipc.open_stream(block).read_all()
            rows.validate(full=True)
            shown = ", ".join(f"{field.name} {field.type}" for field in rows.schema)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise SchemaError(f"not an Arrow stream: {_reason(error)}") from None
        if not rows.schema.equals(self._schema):
            wanted = ", ".join(f"{field.name} {field.type}" for field in self._schema)
            raise SchemaError(f"an Arrow stream of {shown} instead of {wanted}")
        return rows.replace_schema_metadata(None)

    def parse(self, records: pa.Table) -> Parsed:
        """Return the rows as they are."""
        return Parsed(records, [])


# --- lines to values ------------------------------------------------------------------------------------------------


def _texts(line: bytes) -> tuple[str]:
    return (line.decode(),)


def _json(columns: tuple[Column, ...]) -> Decode:
    """Objects: a missing field is null, a field that no column has is left out."""
    names = {f"c{i}": column.name for i, column in enumerate(columns)}
    fields = [(f"c{i}", _python_type(column), None) for i, column in enumerate(columns)]
    decoder = msgspec.json.Decoder(msgspec.defstruct("Record", fields, rename=names, gc=False))
    astuple = msgspec.structs.astuple
    return lambda line: astuple(decoder.decode(line))


def _csv(columns: tuple[Column, ...]) -> Decode:
    """Values in the order of the columns; an empty one is null, or an empty string in a string column."""
    row: Any = tuple[tuple(_python_type(column) for column in columns)]  # type: ignore[misc]
    texts = [column.type == "string" for column in columns]

    def decode(line: bytes) -> tuple[Any, ...]:
        text = line.decode()
        values = next(csv.reader((text,), strict=True)) if '"' in text else text.split(",")
        if len(values) != len(texts):
            raise ValueError(f"{len(values)} values instead of {len(texts)}")
        cells = [cell if cell or is_text else None for cell, is_text in zip(values, texts, strict=True)]
        found: tuple[Any, ...] = msgspec.convert(cells, row, strict=False)
        return found

    return decode


_PYTHON: dict[str, Any] = {"boolean": bool, "float": float, "double": float, "string": str, "binary": bytes}
_PYTHON |= {"date": dt.date, "timestamp": dt.datetime}
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # microseconds of the years 1 to 9999
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


def _python_type(column: Column) -> Any:
    """What a value must be before Arrow sees it; binary is base64, a time without a zone is UTC."""
    if column.type in _BITS:
        half = 1 << (_BITS[column.type] - 1)
        return Annotated[int, msgspec.Meta(ge=-half, le=half - 1)] | None
    if column.type.startswith("decimal"):
        return Decimal | None
    return _PYTHON[column.type] | None


def _array(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    """Turn values into a column; what Arrow takes, but hardly any reader does, is an error."""
    if pa.types.is_decimal(type) and any(v is not None and abs(v.adjusted()) > type.precision for v in values):
        raise ValueError(f"out of range for {type}")  # Arrow would write out all the zeros of 1e999999999 first
    array = pa.array(values, type)
    if pa.types.is_timestamp(type):
        bounds = pc.min_max(array.cast(pa.int64())).as_py()
        if bounds["min"] is not None and not _FIRST <= bounds["min"] <= bounds["max"] <= _LAST:
            raise ValueError("a timestamp before the year 1 or after 9999, in UTC")
    return array


def _reason(error: BaseException) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: {error.reason} at byte {error.start}"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return " ".join(str(error).split())
