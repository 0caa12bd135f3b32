"""A stream and a table: read as it is in each epoch, and exchanged while the job runs."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

import midstream as ms
from midstream.testing import Live


def test_rows_meet_the_table_as_it_is_in_their_epoch(spark: SparkSession, tmp_path: Path) -> None:
    out = ms.sinks.memory()
    old, new = str(tmp_path / "old"), str(tmp_path / "new")

    def write(path: str, *rows: tuple[int, str]) -> None:
        spark.createDataFrame(list(rows), "id long, name string").coalesce(1).write.mode("append").parquet(path)

    def named(path: str) -> object:
        return lambda df: df.join(df.sparkSession.read.parquet(path), "id", "left").select("id", "name")

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        rows.transform("named", named(old)).sink("out", out)  # type: ignore[arg-type]

    write(old, (1, "one"))
    write(new, (1, "eins"), (2, "zwei"))
    with Live(spark, build, rows="id long") as live:
        live.feed("rows", [(1,), (2,)])
        write(old, (2, "two"))
        live.feed("rows", [(1,), (2,)])
        live.modify(ms.replace("named", named(new)))
        live.feed("rows", [(1,), (2,)])
    found = [sorted(map(tuple, out.rows(epoch))) for epoch in out.epochs()]
    assert found == [[(1, "one"), (2, None)], [(1, "one"), (2, "two")], [(1, "eins"), (2, "zwei")]]
