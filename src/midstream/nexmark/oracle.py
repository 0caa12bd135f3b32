"""The true results of the nine queries, computed by DuckDB from the generated files.

Nothing here is shared with the operators that are tested: each query is one statement of SQL over whole tables. Times
are whole microseconds since 1970 in all of them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset

from midstream.errors import MidstreamError, PlanError
from midstream.nexmark.comparison import Comparison, compared

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["QUERIES", "Comparison", "compared", "expected"]

_LONG, _DOUBLE, _TEXT, _TIME = pa.int64(), pa.float64(), pa.string(), pa.timestamp("us", "UTC")

# `since(t, step)` is the time since the last multiple of step, also before 1970.
_SINCE = "CREATE MACRO since(t, step) AS (t % step + step) % step"

# The best bid in the time of each auction that had one.
_WINNER = """
    SELECT auction.id, auction.seller, auction.category, auction.expires, max(bid.price) AS price
    FROM auction JOIN bid ON bid.auction = auction.id AND bid.ts BETWEEN auction.ts AND auction.expires
    GROUP BY ALL"""


@dataclass(frozen=True, slots=True)
class _Query:
    """SQL over `person`, `auction` and `bid`, with $size and $slide in microseconds; and the columns of its result."""

    sql: str
    columns: tuple[tuple[str, pa.DataType], ...]


_QUERIES = {
    "q0": _Query(
        "SELECT auction, bidder, price, ts FROM bid",
        (("auction", _LONG), ("bidder", _LONG), ("price", _LONG), ("ts", _TIME)),
    ),
    "q1": _Query(
        "SELECT auction, bidder, price::DOUBLE * 0.908e0, ts FROM bid",
        (("auction", _LONG), ("bidder", _LONG), ("price", _DOUBLE), ("ts", _TIME)),
    ),
    "q2": _Query(
        "SELECT auction, price FROM bid WHERE auction % 123 = 0",
        (("auction", _LONG), ("price", _LONG)),
    ),
    "q3": _Query(
        """
        SELECT name, city, state, auction.id
        FROM auction JOIN person ON person.id = auction.seller
        WHERE category = 10 AND state IN ('OR', 'ID', 'CA')""",
        (("name", _TEXT), ("city", _TEXT), ("state", _TEXT), ("auction", _LONG)),
    ),
    "q4": _Query(
        f"SELECT category, avg(price) FROM ({_WINNER}) GROUP BY category",
        (("category", _LONG), ("price", _DOUBLE)),
    ),
    "q5": _Query(
        """
        WITH
            -- The starts of all windows that hold a bid: multiples of the slide in (ts - size, ts].
            falls AS (SELECT auction, unnest(range(ts - since(ts, $slide), ts - $size, -$slide)) AS start FROM bid),
            counted AS (SELECT auction, start, count(*) AS bids FROM falls GROUP BY auction, start)
        SELECT auction, bids, start, start + $size
        FROM counted JOIN (SELECT start, max(bids) AS most FROM counted GROUP BY start) USING (start)
        WHERE bids = most""",
        (("auction", _LONG), ("bids", _LONG), ("window_start", _TIME), ("window_end", _TIME)),
    ),
    "q6": _Query(
        f"""
        WITH closed AS (
            SELECT seller, price, row_number() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) AS from_last
            FROM ({_WINNER}))
        SELECT seller, avg(price) FROM closed WHERE from_last <= 10 GROUP BY seller""",
        (("seller", _LONG), ("price", _DOUBLE)),
    ),
    "q7": _Query(
        """
        WITH placed AS (SELECT auction, bidder, price, ts, ts - since(ts, $size) AS start FROM bid)
        SELECT auction, bidder, price, ts, start
        FROM placed JOIN (SELECT start, max(price) AS price FROM placed GROUP BY start) USING (start, price)""",
        (("auction", _LONG), ("bidder", _LONG), ("price", _LONG), ("ts", _TIME), ("window_start", _TIME)),
    ),
    "q8": _Query(
        """
        SELECT DISTINCT person.id, person.name, person.ts - since(person.ts, $size)
        FROM person JOIN auction ON auction.seller = person.id
            AND auction.ts - since(auction.ts, $size) = person.ts - since(person.ts, $size)""",
        (("id", _LONG), ("name", _TEXT), ("window_start", _TIME)),
    ),
}
QUERIES = tuple(_QUERIES)


def expected(query: str, data: str | os.PathLike[str], size_seconds: float = 10, slide_seconds: float = 2) -> pa.Table:
    """Compute the final result that a query must have, over the folders `person`, `auction` and `bid` in `data`.

    Queries 4 and 6, which update, have one row per key: its final value. Query 5 has windows of the given size and
    slide, 7 and 8 of the size only; all start at multiples of the slide, or else of the size, since 1970.

    Not promised: an order of rows.
    """
    if query not in _QUERIES:
        raise PlanError(f"{query!r} is not a query of Nexmark; they are {', '.join(QUERIES)}")
    windows = {"size": _microseconds("size", size_seconds), "slide": _microseconds("slide", slide_seconds)}
    asked = _QUERIES[query]
    sql = asked.sql
    for name, width in windows.items():
        sql = sql.replace(f"${name}", f"{width}::BIGINT")
    duckdb = _duckdb()
    with duckdb.connect(":memory:") as connection:
        try:
            connection.execute(_SINCE)
            for name, times in (("person", ("ts",)), ("auction", ("ts", "expires")), ("bid", ("ts",))):
                connection.register(f"{name}_files", _files(Path(data) / name))
                replaced = ", ".join(f"epoch_us({time}) AS {time}" for time in times)
                connection.execute(f"CREATE VIEW {name} AS SELECT * REPLACE ({replaced}) FROM {name}_files")
            found: pa.Table = connection.sql(sql).to_arrow_table()
        except duckdb.BinderException as error:  # a column is not there, or of another type
            raise PlanError(f"{data} does not hold the events of Nexmark: {error}") from None
    return found.rename_columns([name for name, _ in asked.columns]).cast(pa.schema(asked.columns))


def _microseconds(name: str, seconds: float) -> int:
    microseconds = round(seconds * 1_000_000)
    if microseconds < 1:
        raise PlanError(f"the {name} of a window is {seconds} s, but must be a microsecond or more")
    return microseconds


def _duckdb() -> ModuleType:
    try:
        import duckdb
    except ImportError:
        raise MidstreamError("the true results need DuckDB: pip install 'midstream[nexmark]'") from None
    return duckdb


def _files(folder: Path) -> pa.dataset.Dataset:
    files = pyarrow.dataset.dataset(os.fspath(folder), format="parquet") if folder.is_dir() else None
    if files is None or not files.schema.names:
        raise PlanError(
            f"there are no Parquet files in {folder}; `midstream nexmark generate` makes person, auction and bid"
        )
    return files
