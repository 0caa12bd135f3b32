"""The rows that benchmarks run on: generated in the JVM from a counter, so that they are the same in every run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PRICE = "1 + value % 1000"
SUMS = ("count(1) as n", "sum(price) as total")


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows (key, price), the i-th one a function of i only.

    Promised: `stream` and `sums` agree on every row. Keys are in [0, keys). With `skew` 0 they are uniform:

        key = pmod(xxhash64(i), keys)

    With `skew` s > 0 they follow a Zipf law of exponent s, bounded and in its continuous form: the key of
    rank r (0 is the hottest) has a share proportional to the integral of x^-s over [r + 1, r + 2]. The inverse
    of its distribution, for a uniform u in [0, 1) made of the upper 53 bits of xxhash64(i), is

        x = (1 + u ((keys + 1)^(1 - s) - 1))^(1 / (1 - s)),   for s = 1: x = (keys + 1)^u
        key = floor(x) - 1

    Not promised: that all keys occur.

    >>> Rows(keys=1000).key
    'pmod(xxhash64(value), 1000L)'
    """

    keys: int
    skew: float = 0.0

    @property
    def key(self) -> str:
        """The SQL of a row's key, over the column `value`."""
        if self.skew == 0:
            return f"pmod(xxhash64(value), {self.keys}L)"
        uniform = "shiftrightunsigned(xxhash64(value), 11) / 9007199254740992D"
        if self.skew == 1:
            x = f"power({self.keys + 1}D, {uniform})"
        else:
            power = 1 - self.skew
            x = f"power(1D + {uniform} * {(self.keys + 1) ** power - 1!r}D, {1 / power!r}D)"
        return f"least(floor({x}) - 1L, {self.keys - 1}L)"  # rounding may reach x = keys + 1

    def stream(self, spark: SparkSession, per_epoch: int) -> DataFrame:
        """Return them as a stream: `per_epoch` rows in every epoch, without end."""
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", per_epoch)
        source = source.option("numPartitions", spark.sparkContext.defaultParallelism)
        return source.load().selectExpr(f"{self.key} as key", f"{PRICE} as price")

    def sums(self, spark: SparkSession, first: int, end: int) -> DataFrame:
        """Compute count and sum per key of rows `first` to `end`, with a plain batch query: the oracle."""
        rows = spark.range(first, end).selectExpr("id as value")
        return sums(rows.selectExpr(f"{self.key} as key", f"{PRICE} as price"))


def sums(rows: DataFrame) -> DataFrame:
    """Count and sum per key of batch rows (key, price)."""
    from pyspark.sql import functions as F

    return rows.groupBy("key").agg(*map(F.expr, SUMS))
