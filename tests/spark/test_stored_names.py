"""What a checkpoint holds of Midstream's own classes is found again after modules have moved."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import midstream as ms
from midstream.checkpoint.journal import Journal
from midstream.checkpoint.storage import Storage
from midstream.operators.functions.deduplicate import Deduplicate
from midstream.plan import plan as p
from midstream.plan.code_reach import Reach

SOURCE = Path(ms.__file__).parent


class Longest(ms.Aggregator):
    def zero(self) -> Any:
        return 0

    def add(self, state: Any, values: list[Any]) -> Any:
        return max(state, *values)


class Sum(ms.KeyedFunction):
    total = ms.value("long", default=0)
    seen = ms.list("long")
    by_day = ms.map("date", "long")

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        yield key, self.total


def flow(spark: SparkSession, root: Path) -> ms.Flow:
    """One operator of every kind that has code, and every sink."""
    built = ms.Flow("everything")
    one = built.source("one", spark.readStream.schema("k long, v long, at timestamp").parquet(str(root / "one")))
    two = built.source("two", spark.readStream.schema("k long, w long, then timestamp").parquet(str(root / "two")))
    one, two = one.with_watermark("at", "1 minute"), two.with_watermark("then", "1 minute")
    keyed = one.key_by("k")
    keyed.deduplicate("once", within="1 hour").sink("files", ms.sinks.files(root / "files"))
    keyed.process("sum", Sum(), schema="k long, total long").sink("noop", ms.sinks.noop())
    within = ms.between("-1 minute", "1 minute")
    keyed.join("near", two.key_by("k"), within=within).sink("memory", ms.sinks.memory())
    keyed.join("all", two.key_by("k")).sink("delta", ms.sinks.delta(root / "delta"))
    counts = keyed.window(ms.count_window(10)).aggregate("by_count", n=ms.count())
    counts.sink("postgres", ms.sinks.postgres("host=127.0.0.1 password=secret", "counts"))
    ended = one.window(ms.count_window(10)).with_punctuation("v < 0").aggregate("of_all", n=ms.count())
    ended.sink("unkeyed", ms.sinks.noop())
    keyed.window(ms.tumbling("1 minute")).top("best", n=3, by="v").sink("console", ms.sinks.console())
    keyed.aggregate("longest", v=ms.aggregated("v", Longest())).sink("batch", ms.sinks.foreach_batch(print))
    return built


class References(pickle.Unpickler):
    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content))
        self.found: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "midstream":
            self.found.add(f"{module}.{name}")
        return super().find_class(module, name)


def test_stored_code_names_nothing_of_ours_by_its_module(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    kept = [each for each in p.codes(flow(spark, tmp_path).plan()) if each.pickled is not None]
    assert len(kept) > 12
    for each in kept:
        reader = References(each.pickled or b"")
        reader.load()
        assert reader.found <= {"midstream.stored_names.named"}, each.name


MOVED = {
    "operators/joins/rules": "operators/joins/matching",
    "operators/functions/deduplicate": "operators/functions/first_of_many",
    "sinks/files": "sinks/folders",
}
LOADS = """
import sys
from midstream.checkpoint.journal import Journal
from midstream.checkpoint.storage import Storage
from midstream.operators.functions.deduplicate import Deduplicate
from midstream.plan import code, plan
from midstream.plan.code_reach import Reach

for each in plan.codes(Journal(Storage.at(sys.argv[1])).running_plan()):
    if each.pickled is not None:
        print(each.name.rsplit(".", 1)[1], type(code.load(each)).__module__)
print("digest", Reach(Deduplicate("1 hour")).digest())
"""


def test_a_module_that_is_renamed_breaks_no_stored_plan_and_changes_no_digest(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    plan = flow(spark, tmp_path).plan()
    Journal(Storage.at(tmp_path / "checkpoint")).write_plan(plan)
    shutil.copytree(SOURCE, tmp_path / "moved" / "midstream", ignore=shutil.ignore_patterns("__pycache__"))
    loads = LOADS
    for old, new in MOVED.items():
        (tmp_path / "moved" / "midstream" / f"{old}.py").rename(tmp_path / "moved" / "midstream" / f"{new}.py")
        loads = loads.replace(_dotted(old), _dotted(new))
    for path in (tmp_path / "moved").rglob("*.py"):
        text = path.read_text()
        for old, new in MOVED.items():
            text = text.replace(_dotted(old), _dotted(new))
            text = text.replace(f'"{_dotted(old)[10:]}"', f'"{_dotted(new)[10:]}"')
        path.write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "moved")}
    command = [sys.executable, "-c", loads, str(tmp_path / "checkpoint")]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert told.returncode == 0, told.stderr
    assert "Deduplicate midstream.operators.functions.first_of_many" in told.stdout
    assert "BoundedJoin midstream.operators.joins.matching" in told.stdout
    assert "Files midstream.sinks.folders" in told.stdout
    assert f"digest {Reach(Deduplicate('1 hour')).digest()}" in told.stdout


def _dotted(path: str) -> str:
    return "midstream." + path.replace("/", ".")
