"""Rows of an epoch staged as Parquet inside the checkpoint, from which a sink publishes them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from midstream.checkpoint.records import Staged
from midstream.errors import SinkError
from midstream.sinks import directories
from midstream.sinks.contract import Sink, Staging

_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"  # Spark's own types, in each Parquet footer
_BATCH_ROWS = 32_768

_ARROW: dict[type[T.DataType], pa.DataType] = {
    T.NullType: pa.null(),
    T.BooleanType: pa.bool_(),
    T.ByteType: pa.int8(),
    T.ShortType: pa.int16(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.FloatType: pa.float32(),
    T.DoubleType: pa.float64(),
    T.StringType: pa.string(),
    T.CharType: pa.string(),
    T.VarcharType: pa.string(),
    T.BinaryType: pa.binary(),
    T.DateType: pa.date32(),
    T.TimestampType: pa.timestamp("us", tz="UTC"),
    T.TimestampNTZType: pa.timestamp("us"),
    T.DayTimeIntervalType: pa.duration("us"),
}


class SpooledSink(Sink):
    """A sink whose rows are staged in the checkpoint by the executors; `publish` reads them on the driver.

    A subclass writes `publish` and `describe`, and may refuse or reshape rows in `prepare`.
    """

    def stage(self, df: DataFrame, staging: Staging) -> Staged:
        """Write the rows as Parquet, with one Spark job and no other."""
        df = self.prepare(df, staging)
        files = directories.write(df, staging.spool, "parquet", {"compression": "snappy"})
        empty = [name for name in files if _metadata(staging.spool, name).num_rows == 0]
        directories.drop(staging.spool, empty)
        files = [name for name in files if name not in empty]
        directories.make_durable(staging.spool, files)
        return Staged(staging.sink, staging.job, staging.epoch, staging.spool, tuple(files))

    def prepare(self, df: DataFrame, staging: Staging) -> DataFrame:
        """Refuse rows that could not be published; here: those whose types the driver cannot read."""
        arrow_schema(df.schema, staging.sink)
        return df

    def clean(self, what: Staging | Staged) -> None:
        """Remove the staged files."""
        directories.remove(what.spool if isinstance(what, Staging) else what.location)


def refuse_lost(staged: Staged) -> None:
    """Refuse to publish where staged files are gone."""
    directories.refuse_lost(staged.location, staged.files, staged.sink, staged.epoch)


def schema(staged: Staged) -> T.StructType:
    """Return the rows' Spark schema, as kept in the files."""
    text = _metadata(staged.location, staged.files[0]).metadata[_SPARK_SCHEMA]
    return T.StructType.fromJson(json.loads(text))


def count(staged: Staged) -> int:
    """Count the rows, from the files' footers."""
    return sum(int(_metadata(staged.location, name).num_rows) for name in staged.files)


def read(staged: Staged) -> pa.RecordBatchReader:
    """Stream the rows in the order in which they were written, one batch in memory at a time."""
    target = arrow_schema(schema(staged), staged.sink)
    return pa.RecordBatchReader.from_batches(target, _batches(staged, target))


def arrow_schema(spark_schema: T.StructType, sink: str) -> pa.Schema:
    """Return the Arrow form of a Spark schema; all may be null, so that one epoch's plan does not bind another."""
    fields = []
    for field in spark_schema:
        try:
            fields.append(pa.field(field.name, _arrow_type(field.dataType)))
        except TypeError as error:
            raise SinkError(
                f"sink {sink!r} cannot take column {field.name!r}: its type holds {error}. "
                "Cast it in a transform before the sink, to string for example"
            ) from None
    return pa.schema(fields)


def _arrow_type(spark_type: T.DataType) -> pa.DataType:
    if isinstance(spark_type, T.UserDefinedType):
        return _arrow_type(spark_type.sqlType())
    if isinstance(spark_type, T.DecimalType):
        return pa.decimal128(spark_type.precision, spark_type.scale)
    if isinstance(spark_type, T.ArrayType):
        return pa.list_(_arrow_type(spark_type.elementType))
    if isinstance(spark_type, T.MapType):
        return pa.map_(_arrow_type(spark_type.keyType), _arrow_type(spark_type.valueType))
    if isinstance(spark_type, T.StructType):
        return pa.struct([(field.name, _arrow_type(field.dataType)) for field in spark_type])
    if type(spark_type) not in _ARROW:
        raise TypeError(spark_type.simpleString())
    return _ARROW[type(spark_type)]


def _batches(staged: Staged, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    filesystem, path = directories.resolve(staged.location)
    for name in staged.files:
        try:
            with filesystem.open_input_file(f"{path}/{name}") as source:
                for batch in pq.ParquetFile(source).iter_batches(_BATCH_ROWS):
                    yield batch.cast(target)
        except (OSError, pa.ArrowInvalid) as error:
            raise _unreadable(f"{path}/{name}", error) from error


def _metadata(location: str, name: str) -> pq.FileMetaData:
    filesystem, path = directories.resolve(location)
    try:
        return pq.read_metadata(f"{path}/{name}", filesystem=filesystem)
    except (OSError, pa.ArrowInvalid) as error:
        raise _unreadable(f"{path}/{name}", error) from error


def _unreadable(path: str, error: Exception) -> SinkError:
    return SinkError(
        f"{path} cannot be read: {error}. It holds rows of a committed epoch that are not published yet: "
        "restore the file and start the job again"
    )
