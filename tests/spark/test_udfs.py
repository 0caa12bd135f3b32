"""UDFs inside of transforms: executors run the code that was captured, whatever became of its module."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.testing import Live

ROWS = [(1,), (2,)]

HELPERS = """
    STEP = 1

    def helper(x):
        return x + STEP
"""

UDFS = """
    from collections.abc import Iterator

    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    import udf_helpers
    from udf_helpers import helper

    def plain(x):
        return helper(x)

    @F.udf("long")
    def decorated(x):
        return udf_helpers.helper(x)

    @F.pandas_udf("long")
    def vectorised(xs: pd.Series) -> pd.Series:
        return xs.map(helper)

    class Adder:
        def __call__(self, x):
            return [helper(y) for y in [x]][0]

        def frames(self, frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                yield frame.assign(x=frame.x.map(self))

    def made_inside(df: DataFrame) -> DataFrame:
        return df.select(F.udf(plain, "long")("x").alias("x"))

    def made_outside(df: DataFrame) -> DataFrame:
        return df.select(decorated("x").alias("x"))

    def in_pandas(df: DataFrame) -> DataFrame:
        return df.select(vectorised("x").alias("x"))

    def of_an_object(df: DataFrame) -> DataFrame:
        return df.select(F.udf(Adder(), "long")("x").alias("x"))

    def over_frames(df: DataFrame) -> DataFrame:
        return df.mapInPandas(Adder().frames, "x long")

    class Job:
        def __init__(self, spark):
            self.spark = spark  # cannot be pickled

        def transform(self, df: DataFrame) -> DataFrame:
            return made_outside(df).where("x is not null")
"""

KINDS: dict[str, Callable[[Any, SparkSession], Any]] = {
    "made inside": lambda udfs, spark: udfs.made_inside,
    "made outside": lambda udfs, spark: udfs.made_outside,
    "in pandas": lambda udfs, spark: udfs.in_pandas,
    "of an object": lambda udfs, spark: udfs.of_an_object,
    "over frames": lambda udfs, spark: udfs.over_frames,
    "beside a session": lambda udfs, spark: udfs.Job(spark).transform,
}


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Give a function that writes the modules, or edits the helpers, and gives the module of UDFs."""
    monkeypatch.syspath_prepend(str(tmp_path))  # of the driver: the workers do not have it
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def written(helpers: str) -> ModuleType:
        (tmp_path / "udf_helpers.py").write_text(textwrap.dedent(helpers))
        (tmp_path / "users_udfs.py").write_text(textwrap.dedent(UDFS))
        importlib.invalidate_caches()
        for name in ("udf_helpers", "users_udfs"):
            if name in sys.modules:
                importlib.reload(sys.modules[name])
        return importlib.import_module("users_udfs")

    yield written
    for name in ("udf_helpers", "users_udfs"):
        sys.modules.pop(name, None)


def test_udfs_of_a_module_that_the_workers_do_not_have_run_and_are_replaced_and_brought_back(
    spark: SparkSession, written: Callable[[str], Any]
) -> None:
    outs = {kind: ms.sinks.memory() for kind in KINDS}

    def id_of(kind: str) -> str:
        return kind.replace(" ", "-")

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        for kind, of in KINDS.items():
            rows.transform(id_of(kind), of(written(HELPERS), spark)).sink(f"{id_of(kind)}.out", outs[kind])

    def others(*wanted: int) -> dict[str, list[int]]:
        """The kinds whose rows are others."""
        found = {kind: sorted(row.x for row in out.rows()) for kind, out in outs.items()}
        return {kind: xs for kind, xs in found.items() if xs != sorted(wanted)}

    with Live(spark, build, rows="x long") as live:
        live.feed("rows", ROWS)
        assert not others(2, 3)
        edited = written(HELPERS.replace("STEP = 1", "STEP = 100"))
        live.feed("rows", ROWS)
        assert not others(2, 2, 3, 3), "a module that is loaded again is no modification"
        change = live.modify(*(ms.replace(id_of(kind), of(edited, spark)) for kind, of in KINDS.items()))
        live.feed("rows", ROWS)
        assert not others(2, 2, 3, 3, 101, 102)
        change.undo().wait(60)
        live.feed("rows", ROWS)
        assert not others(2, 2, 2, 3, 3, 3, 101, 102)


def test_workers_that_have_imported_an_older_text_run_the_newer_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "def helper(x):\n    return x + 1\n\ndef plain(x):\n    return helper(x)\n"
    (tmp_path / "shared_udfs.py").write_text(text)
    spark.sparkContext.addPyFile(str(tmp_path / "shared_udfs.py"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    shared = importlib.import_module("shared_udfs")
    imported = spark.range(8).select(F.udf(shared.plain, "long")("id").alias("x"))
    assert {row.x for row in imported.collect()} == set(range(1, 9)), "Spark sends a name, and workers import it"
    out = ms.sinks.memory()

    def transform() -> Callable[[Any], Any]:
        return lambda df: df.select(F.udf(shared.plain, "long")("x").alias("x"))

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        rows.transform("added", transform()).sink("out", out)

    with Live(spark, build, rows="x long") as live:
        live.feed("rows", ROWS)
        (tmp_path / "shared_udfs.py").write_text(text.replace("x + 1", "x + 100"))
        importlib.reload(shared)
        live.modify(ms.replace("added", transform()))
        live.feed("rows", ROWS)
    assert sorted(row.x for row in out.rows()) == [2, 3, 101, 102]
    sys.modules.pop("shared_udfs")


def test_what_a_transform_captures_of_spark_counts(spark: SparkSession) -> None:
    from midstream.plan.code import capture

    def digest(captured: Any) -> str:
        return capture(lambda df: df.where(captured), what="it", shipped=False).digest

    assert digest(F.col("x") > 1) == digest(F.col("x") > 1) != digest(F.col("x") > 2)
    one, other = spark.range(1), spark.range(1).selectExpr("id as x")
    assert digest(one) == digest(spark.range(1)) != digest(other)
    assert digest(spark) == digest(spark.newSession())
    first, second = spark.sparkContext.broadcast([1]), spark.sparkContext.broadcast([2])
    assert digest(first) != digest(second)
    with pytest.raises(ms.PlanError, match="a Broadcast of Spark lives in the driver only"):
        capture(lambda: first, what="it", shipped=True)


def test_a_helper_inside_of_a_comprehension_is_drift_when_it_is_edited(
    spark: SparkSession, tmp_path: Path, written: Callable[[str], Any]
) -> None:
    def run(helpers: str, epochs: int, **options: Any) -> list[int]:
        flow, out = ms.Flow("drift"), ms.sinks.memory()
        frame = ms.testing.source(spark, str(tmp_path / "input"), "x long", [ROWS] * epochs)
        flow.source("rows", frame).transform("added", written(helpers).of_an_object).sink("out", out)
        options |= {"trigger": ms.available_now(), "cache": tmp_path / "cache"}
        flow.start(tmp_path / "checkpoint", **options).await_termination()
        return sorted(row.x for row in out.rows())

    assert run(HELPERS, 1) == [2, 3]
    edited = HELPERS.replace("STEP = 1", "STEP = 100")
    with pytest.raises(ms.PlanError, match="changed 'added'"):
        run(edited, 2)
    assert run(HELPERS, 2) == [2, 3]
    assert run(edited, 3, on_drift="keep") == [2, 3]
    assert run(edited, 4, on_drift="apply") == [101, 102]


def test_a_checkpoint_with_digests_of_an_older_form_asks_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "input")

    def run(epochs: int, **options: Any) -> list[int]:
        ms.testing.source(spark, path, "x long", [ROWS] * epochs)
        flow, out = ms.Flow("older"), ms.sinks.memory()

        def frame(session: SparkSession) -> Any:
            return session.readStream.schema("x long").parquet(path)

        rows = flow.source("rows", frame).transform("added", lambda df: df.selectExpr("x % 1 as k", "x"))
        rows.key_by("k").aggregate("sums", total=ms.sum("x")).sink("out", out)
        options |= {"trigger": ms.available_now(), "cache": tmp_path / "cache"}
        flow.start(tmp_path / "checkpoint", **options).await_termination()
        return [row.total for row in out.rows()]

    with monkeypatch.context() as older:
        older.setattr("midstream.plan.code._FORMAT", "")
        assert run(1) == [3]
    with pytest.raises(
        ms.PlanError, match=r"changed 'added'.*older Midstream.*if you have changed none, on_drift='apply'"
    ):
        run(2)
    assert run(2, on_drift="keep") == [6]
    assert run(3, on_drift="apply") == [9]
    assert run(4) == [12]
