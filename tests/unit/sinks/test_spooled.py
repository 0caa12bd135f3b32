"""The spool of a sink: types of Spark as Arrow has them, and rows read back as they were staged, file by file."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

from midstream.checkpoint.records import Staged
from midstream.errors import SinkError
from midstream.sinks import spooled
from midstream.sinks.contract import LostRowsError, Staging
from midstream.sinks.memory import Memory

SCHEMA = (
    T.StructType()
    .add("id", T.LongType(), nullable=False)
    .add("text", T.StringType())
    .add("at", T.TimestampType())
    .add("tags", T.ArrayType(T.StringType()))
)
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.timezone.utc)
PARTS = [
    [{"id": 1, "text": "a", "at": NOON, "tags": ["x", None]}, {"id": 2, "text": None, "at": None, "tags": []}],
    [{"id": 3, "text": "ä", "at": NOON, "tags": None}],
]


def stage(directory: Path, *parts: list[dict[str, Any]], schema: T.StructType = SCHEMA) -> Staged:
    """Write rows as Spark does: Parquet with its own schema in the footer."""
    directory.mkdir(parents=True)
    arrow = spooled.arrow_schema(schema, "out").with_metadata({spooled._SPARK_SCHEMA: schema.json().encode()})
    names = [f"part-{number}.parquet" for number in range(len(parts))]
    for name, rows in zip(names, parts, strict=True):
        pq.write_table(pa.Table.from_pylist(rows, arrow), directory / name)
    return Staged("out", "job", 7, str(directory), tuple(names))


# --- types ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spark", "arrow"),
    [
        (T.NullType(), pa.null()),
        (T.BooleanType(), pa.bool_()),
        (T.ByteType(), pa.int8()),
        (T.ShortType(), pa.int16()),
        (T.IntegerType(), pa.int32()),
        (T.LongType(), pa.int64()),
        (T.FloatType(), pa.float32()),
        (T.DoubleType(), pa.float64()),
        (T.StringType(), pa.string()),
        (T.VarcharType(5), pa.string()),
        (T.CharType(5), pa.string()),
        (T.BinaryType(), pa.binary()),
        (T.DateType(), pa.date32()),
        (T.TimestampType(), pa.timestamp("us", tz="UTC")),
        (T.TimestampNTZType(), pa.timestamp("us")),
        (T.DayTimeIntervalType(), pa.duration("us")),
        (T.DecimalType(38, 18), pa.decimal128(38, 18)),
        (T.ArrayType(T.LongType()), pa.list_(pa.int64())),
        (T.MapType(T.StringType(), T.ArrayType(T.DateType())), pa.map_(pa.string(), pa.list_(pa.date32()))),
        (T.StructType().add("a b", "long").add("c", "string"), pa.struct([("a b", pa.int64()), ("c", pa.string())])),
    ],
    ids=lambda type: str(type),
)
def test_a_type_of_spark_has_one_of_arrow_and_may_be_null(spark: T.DataType, arrow: pa.DataType):
    (field,) = spooled.arrow_schema(T.StructType().add("x", spark, nullable=False), "out")
    assert (field.name, field.type, field.nullable) == ("x", arrow, True)


@pytest.mark.parametrize(
    ("type", "held"),
    [
        (T.VariantType(), "variant"),
        (T.ArrayType(T.VariantType()), "variant"),
        (T.StructType().add("y", T.CalendarIntervalType()), "interval"),
        (T.YearMonthIntervalType(), "interval year to month"),
    ],
)
def test_a_type_that_the_driver_cannot_read_is_refused_with_its_column(type: T.DataType, held: str):
    schema = T.StructType().add("fine", "long").add("odd", type)
    with pytest.raises(SinkError, match=f"sink 'out' cannot take column 'odd': its type holds {held}. Cast it"):
        spooled.arrow_schema(schema, "out")


# --- rows -----------------------------------------------------------------------------------------------------------


def test_rows_are_read_back_in_the_order_in_which_they_were_written(tmp_path: Path):
    staged = stage(tmp_path / "spool", *PARTS)
    assert spooled.read(staged).read_all().to_pylist() == [row for part in PARTS for row in part]
    assert spooled.schema(staged) == SCHEMA
    assert spooled.count(staged) == 3


def test_files_whose_arrow_types_differ_are_read_as_what_spark_said(tmp_path: Path):
    schema = T.StructType().add("price", T.DecimalType(10, 2)).add("n", T.LongType())
    staged = stage(tmp_path / "spool", [{"price": Decimal("1.50"), "n": 1}], schema=schema)
    narrow = pa.table({"price": pa.array([Decimal("2.5")], pa.decimal128(5, 1)), "n": pa.array([2], pa.int32())})
    pq.write_table(narrow, tmp_path / "spool" / "part-1.parquet")
    both = Staged("out", "job", 7, staged.location, (*staged.files, "part-1.parquet"))
    found = spooled.read(both).read_all()
    assert found.schema == spooled.arrow_schema(schema, "out")
    assert found.to_pylist() == [{"price": Decimal("1.50"), "n": 1}, {"price": Decimal("2.50"), "n": 2}]


def test_many_rows_are_read_a_batch_at_a_time(tmp_path: Path):
    schema = T.StructType().add("n", "long")
    staged = stage(tmp_path / "spool", [{"n": n} for n in range(70_000)], schema=schema)
    sizes = [batch.num_rows for batch in spooled.read(staged)]
    assert sum(sizes) == spooled.count(staged) == 70_000
    assert max(sizes) < 40_000


@pytest.mark.parametrize("harm", ["gone", "empty", "cut off", "other"])
def test_a_file_that_cannot_be_read_is_said_with_what_to_do(tmp_path: Path, harm: str):
    staged = stage(tmp_path / "spool", *PARTS)
    file = tmp_path / "spool" / "part-1.parquet"
    content = file.read_bytes()
    file.unlink()
    if harm != "gone":
        file.write_bytes({"empty": b"", "cut off": content[:-9], "other": b"not Parquet at all"}[harm])
    for read in (lambda: spooled.read(staged).read_all(), lambda: spooled.count(staged)):
        with pytest.raises(SinkError, match=rf"{file} cannot be read: .*restore the file and start the job again"):
            read()


def test_what_is_lost_is_missed_before_anything_is_published(tmp_path: Path):
    staged = stage(tmp_path / "spool", *PARTS)
    spooled.refuse_lost(staged)
    (tmp_path / "spool" / "part-1.parquet").unlink()
    with pytest.raises(LostRowsError, match=r"rows of epoch 7 .* part-1\.parquet is gone"):
        spooled.refuse_lost(staged)


def test_what_is_staged_is_cleaned_by_either_name(tmp_path: Path):
    for name in ("staged", "staging"):
        staged = stage(tmp_path / name, *PARTS)
        staging = Staging("out", "job", 7, "run", staged.location)
        for _ in range(2):
            Memory().clean(staged if name == "staged" else staging)
        assert not (tmp_path / name).exists()
