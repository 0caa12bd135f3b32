"""The task of `map_arrow`, on an executor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from midstream import code
from midstream.code import Code
from midstream.errors import SchemaError
from midstream.garbage import seldom_looked_for


@dataclass(frozen=True)
class ArrowTask:
    """The task of `map_arrow`: the user's function, its output cast to the declared schema."""

    operator: str
    code: Code
    schema: bytes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the user's function over the batches of a partition."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        with seldom_looked_for():
            for batch in code.load(self.code)(batches):
                try:
                    yield batch.select(schema.names).cast(schema)
                except (pa.ArrowException, KeyError, AttributeError) as error:
                    shown = getattr(batch, "schema", type(batch).__name__)
                    raise SchemaError(
                        f"map_arrow {self.operator!r} gave {shown}, which does not fit its schema {schema}: {error}"
                    ) from None
