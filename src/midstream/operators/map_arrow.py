"""The task of `map_arrow`, on an executor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from midstream.errors import SchemaError
from midstream.operators.dead_letters import DeadLetters
from midstream.operators.task import OF_THE_HOST
from midstream.operators.worker_gc import seldom_looked_for
from midstream.plan import code
from midstream.plan.code import Code

_Function = Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]]


@dataclass(frozen=True)
class ArrowTask:
    """The task of `map_arrow`: the user's function, its output cast to the declared schema."""

    operator: str
    code: Code
    schema: bytes
    dead_letters: bool = False  # what it fails on is emitted beside the rest; the schema has a column for it

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the user's function over the batches of a partition."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        with seldom_looked_for():
            function: _Function = code.load(self.code)
            if not self.dead_letters:
                yield from self._fitting(function(batches), schema)
                return
            letters = DeadLetters(schema)
            for batch in batches:
                yield from self._guarded(function, batch, letters)

    def _guarded(self, function: _Function, batch: pa.RecordBatch, letters: DeadLetters) -> Iterator[pa.RecordBatch]:
        """Run the function over a batch, and where it fails over each half, until the rows to blame are found.

        So the rows that are put aside do not depend on how Spark cuts its batches.
        """
        try:
            made = list(self._fitting(function(iter([batch])), letters.output))
        except OF_THE_HOST:
            raise
        except Exception as error:
            if not batch.num_rows:
                raise
            if batch.num_rows == 1:
                letters.add(error, batch)
                yield from letters.taken()
                return
        else:
            yield from map(letters.beside, made)
            return
        half = batch.num_rows // 2
        yield from self._guarded(function, batch.slice(0, half), letters)
        yield from self._guarded(function, batch.slice(half), letters)

    def _fitting(self, made: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for batch in made:
            try:
                yield batch.select(schema.names).cast(schema)
            except (pa.ArrowException, KeyError, AttributeError) as error:
                shown = getattr(batch, "schema", type(batch).__name__)
                raise SchemaError(
                    f"map_arrow {self.operator!r} returned {shown}, which does not fit its schema {schema}: {error}"
                ) from None
