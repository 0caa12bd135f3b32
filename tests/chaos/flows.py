"""The flow of the chaos run in Midstream, and its changes: what `model` says in plain Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import midstream as ms
from tests.chaos.model import Change, Spec, spec_of

INPUT = "id long, k long, v long"
TAGGED = f"{INPUT}, tag string"


class Totals(ms.KeyedFunction):
    total = ms.value("long", default=0)
    n = ms.value("long", default=0)

    def __init__(self, code: int) -> None:
        self.code = code

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        for row in rows:
            self.n += 1
            self.total += row.v
            yield row.id, key, self.total, row.tag, self.n, self.code


class Seen(ms.KeyedFunction):
    seen = ms.value("long", default=0)

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        for row in rows:
            self.seen += 1
            yield row.id, key, row.v, f"{row.tag}s{self.seen}"


class Few(ms.KeyedFunction):
    few = ms.value("long", default=0)

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        for row in rows:
            self.few += row.v
            yield row.id, key, self.few, row.tag


def tagged(number: int) -> Callable[[DataFrame], DataFrame]:
    return lambda df: df.selectExpr("id", "k", "v", f"'t{number}' as tag")


def plus(number: int) -> Callable[[DataFrame], DataFrame]:
    return lambda df: df.selectExpr("id", "k", f"v + {number} as v", "tag")


def twice(df: DataFrame) -> DataFrame:
    return df.selectExpr("id", "k", "v * 2 as v", "tag")


def reader(directory: str) -> Callable[[SparkSession], DataFrame]:
    """A source of numbered files, one per epoch."""
    os.makedirs(directory, exist_ok=True)
    return lambda spark: spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).parquet(directory)


class Flows:
    """Builds flows, and changes of them, whose rows come from `root` and go to the directory of a life below it."""

    def __init__(self, root: str, life: str) -> None:
        self._root, self._life = root, life

    def flow(self, spec: Spec) -> ms.Flow:
        """The flow that a spec describes."""
        flow = ms.Flow("chaos")
        stream = flow.source("rows", reader(f"{self._root}/input"))
        if spec.extra:
            stream = stream.union("all", flow.source("extra", self._extra(spec.extra)))
        stream = stream.transform("tag", tagged(spec.tag))
        stream.sink("raw", self._sink("raw"))
        if spec.copy:
            stream.sink("copy", self._sink("copy"))
        if spec.branch:
            self._branch(stream)
        for name, number in spec.chain:
            if name == "plus":
                stream = stream.transform("plus", plus(number))
            else:
                stream = stream.key_by("k").process("seen", Seen(), schema=TAGGED, order_by="id")
        schema = "id long, k long, total long, tag string, n long, code long"
        made = stream.key_by("k").process("totals", Totals(spec.code), schema=schema, order_by="id", slots=spec.slots)
        made.sink("out", self._sink("out"))
        return flow

    def steps(self, change: Change) -> list[Any]:
        """What `job.modify` takes for a change."""
        kind, *told = change
        if kind == "several":
            return [step for each in told for step in self.steps(tuple(each))]
        make: dict[str, Callable[..., list[Any]]] = {
            "whole flow": lambda spec: [self.flow(spec_of(spec))],
            "replace stateless": lambda n: [ms.replace("tag", tagged(n))],
            "replace stateful": lambda n: [ms.replace("totals", Totals(n))],
            "insert stateless": lambda n, place: [ms.insert("plus", ms.transform(plus(n)), **_place(place))],
            "insert stateful": lambda place: [
                ms.insert("seen", ms.key_by("k").process(Seen(), schema=TAGGED, order_by="id"), **_place(place))
            ],
            "remove stateless": lambda: [ms.remove("plus")],
            "remove stateful": lambda: [ms.remove("seen")],
            "rescale": lambda n: [ms.rescale("totals", slots=n)],
            "tune": lambda n: [ms.tune(rows_per_arrow_batch=n)],
            "add sink": lambda: [ms.add_sink("copy", self._sink("copy"), after="tag")],
            "remove sink": lambda: [ms.remove_sink("copy")],
            "add branch": lambda: [ms.branch("tag", self._branch)],
            "remove branch": lambda: [ms.remove_sink("few_out"), ms.remove("few"), ms.remove("twice")],
            "add source": lambda birth: [
                ms.add_source("extra", self._extra(birth)),
                ms.insert("all", ms.union("extra"), after="rows"),
            ],
            "remove source": lambda: [ms.remove_source("extra"), ms.remove("all")],
        }
        return make[kind](*told)

    def _branch(self, stream: ms.Stream) -> None:
        few = stream.transform("twice", twice).key_by("k").process("few", Few(), schema=TAGGED, order_by="id")
        few.sink("few_out", self._sink("few"))

    def _extra(self, birth: int) -> Callable[[SparkSession], DataFrame]:
        return reader(f"{self._root}/extra-{birth}")

    def _sink(self, name: str) -> Any:
        return ms.sinks.files(f"{self._root}/{self._life}/{name}", format="json")


def _place(place: str) -> dict[str, Any]:
    return {"before": "totals"} if place == "totals" else {"between": ("tag", place)}
