"""What the sink that keeps nothing promises: all rows are computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from midstream import sinks

if TYPE_CHECKING:
    from tests.contract.conftest import Engine

Start = Callable[..., "Engine"]


def test_all_rows_are_computed(start: Start, spark: SparkSession) -> None:
    engine = start(sinks.noop())
    df = spark.range(100).selectExpr("if(id = 99, raise_error('row 99'), id) AS id")
    with pytest.raises(PySparkException, match="row 99"):
        engine.sink.stage(df, engine.staging(0))
