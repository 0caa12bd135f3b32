"""What a query that updates gives out is true in its epoch: of the auctions that had closed, no more, no fewer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession

from midstream.nexmark import generator
from midstream.nexmark.comparison import compared
from midstream.nexmark.generator import Config
from midstream.nexmark.running import QueryRun

EVENTS, EVERY = 6_000, 500
CONFIG = Config(seed=4, events_per_second=100)
FOR_EVER = 1 << 62

# In which epoch each auction that was won has closed: the first whose watermark has passed its end.
CLOSED = """
    WITH winner AS (
        SELECT auction.id, seller, category, epoch_us(expires) AS expires, max(price) AS price
        FROM read_parquet($auctions) AS auction JOIN read_parquet($bids) AS bid
            ON bid.auction = auction.id AND bid.ts BETWEEN auction.ts AND expires
        GROUP BY ALL),
    passed AS (SELECT unnest($watermarks) AS watermark, generate_subscripts($watermarks, 1) - 1 AS epoch),
    closed AS (SELECT winner.*, min(epoch) AS epoch FROM winner JOIN passed ON expires < watermark GROUP BY ALL)"""
WANTED = {
    "q4": """
        SELECT now.epoch, category, avg(price) AS price
        FROM (SELECT DISTINCT epoch, category FROM closed) AS now JOIN closed USING (category)
        WHERE closed.epoch <= now.epoch GROUP BY ALL""",
    "q6": """
        SELECT epoch, seller, avg(price) AS price FROM (
            SELECT now.epoch, seller, price, row_number() OVER (
                PARTITION BY now.epoch, seller ORDER BY expires DESC, id DESC) AS from_last
            FROM (SELECT DISTINCT epoch, seller FROM closed) AS now JOIN closed USING (seller)
            WHERE closed.epoch <= now.epoch)
        WHERE from_last <= 10 GROUP BY ALL""",
}


def watermarks() -> list[int]:
    """Of each epoch: when the last auction and the last bid before it were, whichever is earlier; then all is over."""
    found = []
    for epoch in range(EVENTS // EVERY):
        before = range(epoch * EVERY)
        auctions, bids = ([n for n in before if n % 50 in kind] for kind in (range(1, 4), range(4, 50)))
        last = min(auctions[-1], bids[-1]) if auctions and bids else None
        found.append(0 if last is None else CONFIG.start + last * 1_000_000 // CONFIG.events_per_second)
    return [*found, FOR_EVER]


@pytest.mark.parametrize("query", WANTED)
def test_every_update_is_true_in_its_epoch(query: str, spark: SparkSession, tmp_path: Path) -> None:
    run = QueryRun(query, EVENTS, CONFIG, tmp_path / "out", tmp_path / "job", EVERY)
    run.start(spark).await_termination()
    generator.generate(spark, tmp_path / "data", EVENTS, CONFIG)
    given: dict[str, Any] = {"watermarks": watermarks()}
    given |= {f"{table}s": str(tmp_path / "data" / table / "*.parquet") for table in ("auction", "bid")}
    wanted = duckdb.sql(CLOSED + WANTED[query], params=given).to_arrow_table()
    found = pyarrow.dataset.dataset(run.out, format="parquet", partitioning="hive").to_table()
    comparison = compared(found, wanted.cast(pa.schema([("epoch", pa.int32()), *list(wanted.schema)[1:]])))
    assert comparison.is_equal, str(comparison)
    assert len(set(found["epoch"].to_pylist())) > 5, "it has updated"
