"""The oracle: a time means nothing where the result is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from midstream.errors import MidstreamError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ResultError(MidstreamError):
    """A contestant's result differs from the oracle's: its time means nothing."""


def check(name: str, found: DataFrame, expected: DataFrame) -> None:
    """Compare two tables (key, n, total) as multisets; raise `ResultError` with the first differences."""
    columns = ["cast(key as long) key", "cast(n as long) n", "cast(total as long) total"]
    both = found.selectExpr(*columns, "1 side").unionAll(expected.selectExpr(*columns, "-1 side"))
    surplus = both.groupBy("key", "n", "total").sum("side").toDF("key", "n", "total", "surplus")
    wrong = surplus.where("surplus <> 0").orderBy("key", "n", "total").limit(6).collect()
    if wrong:
        lines = [
            f"  key {row.key}: n={row.n}, total={row.total} {'found' if row.surplus > 0 else 'expected'}"
            for row in wrong
        ]
        raise ResultError(
            f"{name} has a wrong result, so no time is printed. The first differences:\n" + "\n".join(lines)
        )


def check_whole(counted: DataFrame, unit: int, what: str) -> None:
    """Check that rows were counted in whole units, which a lost or repeated row breaks; `counted` has a column n."""
    total = counted.selectExpr("sum(n)").collect()[0][0]
    if not total or total % unit:
        raise ResultError(f"{total:,} rows were counted, which is not a whole number of {what} of {unit:,} rows")
