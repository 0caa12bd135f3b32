"""The rule of tests: whoever looks at a module finds its tests under the same name.

The namesake of `src/midstream/state/heat.py` is `tests/unit/state/test_heat.py`. Where a module makes sense only with
the real thing, a live Spark, a server or a process, it is `tests/<kind>/<package>/test_<module>.py`, or a file
`tests/<kind>/test_<module>.py` that imports the module. Packages, that is `__init__.py`, are tested with their modules.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.unit.test_layers import imports, is_or_is_in, module_of, sources

TESTS = Path(__file__).parents[1]

# Modules without a namesake: the file that tests them, or why there is nothing to test. One line each.
INSTEAD = {
    "bench.besiegers": "tests/cli/test_ingest.py",
    "bench.contestants": "tests/cli/test_bench.py",
    "bench.endurance": "tests/spark/test_many_modifications.py",
    "bench.epoch": "tests/cli/test_bench.py",
    "bench.idle": "tests/cli/test_bench.py",
    "bench.machine": "tests/cli/test_bench.py",
    "bench.modify": "tests/cli/test_bench.py",
    "bench.rescale": "tests/cli/test_bench.py",
    "bench.running": "tests/cli/test_bench.py",
    "bench.siege": "tests/cli/test_ingest.py",
    "bench.throughput": "tests/cli/test_bench.py",
    "bench.windows": "tests/cli/test_bench.py",
    "bench.workbench": "tests/cli/test_bench.py",
    "epoch.attempt": "tests/spark/test_promises.py",
    "epoch.batch": "tests/spark/test_live_sources.py",
    "epoch.beginning": "tests/unit/epoch/test_history.py",
    "epoch.context": "values, and how Spark is told to cancel",
    "epoch.engine": "tests/spark/test_promises.py",
    "epoch.follower": "a contract: what sees every epoch",
    "epoch.progress": "tests/spark/test_flow.py",
    "epoch.publication": "tests/spark/test_errors.py",
    "epoch.query": "tests/spark/test_live_sources.py",
    "epoch.runner": "tests/spark/test_errors.py",
    "epoch.session_settings": "tests/spark/test_shadow.py",
    "epoch.settings": "options and their defaults",
    "epoch.streams": "tests/spark/test_live_sources.py",
    "flow.count_windows": "tests/spark/test_count_windows.py",
    "job.job": "tests/spark/test_ended_jobs.py",
    "job.savepoint.files": "tests/spark/test_savepoint.py",
    "job.savepoint.manifest": "tests/spark/test_savepoint.py",
    "job.savepoint.restore": "tests/spark/test_savepoint.py",
    "job.sink_report": "tests/spark/test_promises.py",
    "modifications.arming": "tests/spark/test_modify.py",
    "modifications.handle": "tests/spark/test_modify.py",
    "modifications.preparation": "tests/spark/test_modify.py",
    "modifications.queue": "tests/spark/test_modify.py",
    "modifications.recovery": "tests/faults/test_kill_modified.py",
    "modifications.rehearsal": "tests/spark/test_modify.py",
    "modifications.shadow": "tests/spark/test_shadow.py",
    "nexmark.plain": "tests/cli/test_bench.py",
    "operators.keyed_run": "a value: what a keyed operator is told",
    "placement.request": "a value: what a change wants of executors",
    "plan.nodes": "tests/unit/plan/test_node.py",
    "sinks.postgres_table": "tests/contract/sinks/test_postgres.py",
    "spark.logs": "tests/spark/test_spark_logs.py",
    "state.stores.contract": "tests/contract/test_stores.py",
    "state.timers": "a value: when a key is to be called again",
    "testing.live": "tests/spark/test_modify.py",
    "testing.spark_cluster": "tests/cluster/test_cluster.py",
}


def modules() -> set[str]:
    """All modules below `midstream` but packages, by their dotted names."""
    return {module_of(path) for path in sources() if not path.endswith("__init__.py")}


def namesake(module: str, tests: Path = TESTS) -> Path | None:
    """The file of tests that has the name of a module."""
    package, _, name = module.rpartition(".")
    file = f"{package.replace('.', '/')}/test_{name}.py".lstrip("/")
    if (tests / "unit" / file).exists():
        return tests / "unit" / file
    within = sorted(tests.glob(f"*/{file}")) if package else []
    flat = [path for path in sorted(tests.glob(f"*/test_{name}.py")) if path.parent.name != "unit"]
    beside = [path for path in flat if is_imported(module, path)]
    return next(iter(within + beside), None)


def is_imported(module: str, file: Path) -> bool:
    found = imports(ast.parse(file.read_text(encoding="utf-8")), "tests")
    return any(is_or_is_in(each.name, f"midstream.{module}") for each in found)


def test_every_module_has_a_namesake_or_it_is_said_what_tests_it():
    found = {module for module in modules() if namesake(module) is None}
    missing = found - INSTEAD.keys()
    assert not missing, f"write tests/unit/<package>/test_<module>.py for {', '.join(sorted(missing))}"


def test_nothing_is_said_of_modules_that_have_a_namesake_or_are_not_there():
    assert INSTEAD.keys() <= modules()
    needless = {module: str(found) for module in INSTEAD if (found := namesake(module)) is not None}
    assert not needless, f"take them off the list: {needless}"
    assert list(INSTEAD) == sorted(INSTEAD)


def test_every_file_that_is_said_to_test_a_module_is_there():
    files = {text for text in INSTEAD.values() if text.startswith("tests/")}
    assert not [name for name in sorted(files) if not (TESTS.parent / name).is_file()]


# --- the rule itself ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "file", "content", "is_namesake"),
    [
        ("errors", "unit/test_errors.py", "", True),
        ("state.heat", "unit/state/test_heat.py", "", True),
        ("state.heat", "unit/test_heat.py", "import midstream.state.heat", False),
        ("state.heat", "unit/other/test_heat.py", "", False),
        ("state.heat", "unit/state/test_heats.py", "", False),
        ("sinks.delta", "contract/sinks/test_delta.py", "", True),
        ("sinks.delta", "contract/test_delta.py", "", False),
        ("sinks.delta", "contract/test_delta.py", "from midstream.sinks import delta", True),
        ("sinks.delta", "contract/test_delta.py", "from midstream.sinks.delta import Delta", True),
        ("sinks.delta", "contract/test_delta.py", "from midstream.sinks.deltas import Delta", False),
        ("demo", "spark/test_demo.py", "", False),
        ("demo", "spark/test_demo.py", "import midstream.demo", True),
    ],
)
def test_a_namesake_is_where_one_looks_for_it(tmp_path: Path, module: str, file: str, content: str, is_namesake: bool):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(content)
    assert namesake(module, tmp_path) == (tmp_path / file if is_namesake else None)
