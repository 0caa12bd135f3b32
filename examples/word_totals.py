"""Count words: a `KeyedFunction` with one value of state per key.

It prints, epoch by epoch, the words that came and how often each has been seen so far:

    epoch 0: be 2, not 1, or 1, to 2
    epoch 1: be 3, let 1
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import midstream as ms
from midstream import testing
from midstream.spark.session import local_session

LINES = [[("to be or not to be",)], [("let be",)]]  # one list is one epoch


class Totals(ms.KeyedFunction):
    """Remembers how often a word was seen."""

    seen = ms.value("long", default=0)

    def process(self, word: str, rows: list[Any], ctx: ms.Context) -> Iterator[tuple[str, int]]:
        """Take in this epoch's rows of a word."""
        self.seen += len(rows)
        yield word, self.seen


def words(lines: DataFrame) -> DataFrame:
    """Split lines into words, in the JVM."""
    return lines.selectExpr("explode(split(line, ' ')) as word")


def main(spark: SparkSession) -> None:
    """Run the flow over two epochs and print what it emitted."""
    with tempfile.TemporaryDirectory() as here:
        out = ms.sinks.memory()
        flow = ms.Flow("word-totals")
        lines = flow.source("lines", testing.source(spark, f"{here}/lines", "line string", LINES))
        keyed = lines.transform("words", words).key_by("word")
        keyed.process("totals", Totals(), schema="word string, seen long").sink("out", out)
        job = flow.start(f"{here}/checkpoint", trigger=ms.available_now(), cache=f"{here}/cache")
        job.await_termination()
        for epoch in out.epochs():
            print(f"epoch {epoch}: {', '.join(f'{row.word} {row.seen}' for row in sorted(out.rows(epoch)))}")


if __name__ == "__main__":
    main(local_session())
