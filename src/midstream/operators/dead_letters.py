"""Rows that a function fails on, put aside: how they leave the task beside its output, and what is shown.

A task emits both in one: its own columns and one more, `_failed`, which is null in its output. The operator and its
`.errors` are then the two halves of that, and neither can be there without the other.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from midstream.plan.sql import quote

FAILED = "_failed"
ERRORS = StructType(
    [
        *(StructField(name, StringType()) for name in ("operator", "reason", "traceback", "key", "row")),
        StructField("timer", TimestampType()),
    ]
)
_AS_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def beside_failed(output: StructType, input: StructType) -> StructType:
    """The columns of an operator's output and of what it fails on together: those of the other are null."""
    row = StructType([StructField(field.name, field.dataType) for field in input])
    failed = StructType(
        [
            StructField("reason", StringType()),
            StructField("traceback", StringType()),
            StructField("timer", TimestampType()),
            StructField("row", row),
        ]
    )
    return StructType([*(StructField(f.name, f.dataType) for f in output), StructField(FAILED, failed)])


def without_failed(both: DataFrame, names: Iterable[str]) -> DataFrame:
    """What an operator emits."""
    return both.where(f"{FAILED} is null").selectExpr(*map(quote, names))


def shown(both: DataFrame, operator: str, keys: Sequence[str]) -> DataFrame:
    """What an operator has failed on, as `ERRORS`; a timer has the key, and no row."""
    row = F.col(f"{FAILED}.row")
    key = F.to_json(F.struct(*(row[name].alias(name) for name in keys)), _AS_JSON) if keys else F.lit(None)
    columns = {
        "operator": F.lit(operator),
        "reason": F.col(f"{FAILED}.reason"),
        "traceback": F.col(f"{FAILED}.traceback"),
        "key": key.cast("string"),
        "row": F.when(F.col(f"{FAILED}.timer").isNull(), F.to_json(row, _AS_JSON)),
        "timer": F.col(f"{FAILED}.timer"),
    }
    return both.where(f"{FAILED} is not null").select(*(columns[name].alias(name) for name in ERRORS.names))


class DeadLetters:
    """What a task has failed on so far; `schema` is that of `beside_failed`."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str] = ()) -> None:
        self._schema, self._keys = schema, keys
        self._type = schema.field(FAILED).type
        self._found: list[pa.Array] = []

    @property
    def output(self) -> pa.Schema:
        """The columns of the task's output."""
        return self._schema.remove(len(self._schema) - 1)

    def __len__(self) -> int:
        return sum(map(len, self._found))

    def add(self, error: Exception, rows: pa.RecordBatch) -> None:
        """Put the rows of a call aside; columns that are not of the input are left out."""
        self._add(error, rows.num_rows, {name: rows.column(name) for name in rows.schema.names}, None)

    def add_timer(self, error: Exception, key: Any, at: int) -> None:
        """Put a timer of a key aside, with its time in microseconds."""
        values = (key,) if len(self._keys) == 1 else key
        row = self._type.field("row").type
        columns = {
            name: pa.array([value], row.field(name).type) for name, value in zip(self._keys, values, strict=True)
        }
        self._add(error, 1, columns, at)

    def beside(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of the output, beside none that failed."""
        return pa.record_batch([*batch.columns, pa.nulls(batch.num_rows, self._type)], schema=self._schema)

    def taken(self) -> list[pa.RecordBatch]:
        """Return what was put aside, beside no rows of the output, and start again."""
        if not self._found:
            return []
        failed, self._found = pa.concat_arrays(self._found), []
        others = [pa.nulls(len(failed), type) for type in self.output.types]
        return [pa.record_batch([*others, failed], schema=self._schema)]

    def _add(self, error: Exception, count: int, columns: dict[str, pa.Array], timer: int | None) -> None:
        type = self._type.field("row").type
        row = pa.StructArray.from_arrays(
            [columns[f.name].cast(f.type) if f.name in columns else pa.nulls(count, f.type) for f in type],
            fields=list(type),
        )
        told = [pa.array([text] * count, pa.string()) for text in _told(error)]
        at = pa.array([timer] * count, pa.int64()).cast(self._type.field("timer").type)
        self._found.append(pa.StructArray.from_arrays([*told, at, row], fields=list(self._type)))


def _told(error: Exception) -> tuple[str, str]:
    """The reason, and the traceback without the frame that caught it; invalid text is escaped."""
    trace = error.__traceback__
    lines = traceback.format_exception(type(error), error, trace.tb_next if trace is not None else None)
    reason = "".join(traceback.format_exception_only(type(error), error)).strip()
    return tuple(text.encode("utf-8", "backslashreplace").decode() for text in (reason, "".join(lines)))  # type: ignore[return-value]
