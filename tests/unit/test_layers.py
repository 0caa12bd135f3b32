"""The rule of the house: imports go down only, nothing goes in circles, and what decides does so without acting.

A package is the first part of a path below `midstream`; a module that lies there by itself counts as one. Imports for
type checkers and inside functions count like any other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "midstream"

# Highest first. A package may import from those below it; those on one line do not know each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("api", "cli", "demo", "bench", "nexmark", "ingest", "testing"),
    ("job",),
    ("modifications",),
    ("epoch",),
    ("placement",),
    ("flow",),
    ("operators",),
    ("sinks",),
    ("sources",),
    ("state",),
    ("checkpoint",),
    ("plan",),
    ("spark",),
    ("events", "durations", "stored_names"),
    ("errors",),
)
LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}  # {package: 0 is the highest}

# Imports against the rule: who imports what, and why. Each must exist.
EXCEPTIONS = {
    ("flow.flow", "job.start"): "flow.start() is what users write; it is imported when it is called",
    ("flow.flow", "job.job"): "the type of what flow.start() gives",
}
# No Spark, no files, no clock.
PURE = [
    "plan", "errors", "events", "durations", "checkpoint.delivery", "checkpoint.offsets", "epoch.decision",
    "flow.builders", "modifications.changes", "modifications.composites", "modifications.phases",
    "modifications.relocations", "modifications.successors", "modifications.tuning", "operators.aggregates.declare",
    "operators.functions.declare", "operators.functions.deduplicate", "placement.balance", "placement.housing",
    "placement.move", "placement.request", "placement.standbys", "placement.strategies",
    "state.heat", "state.runs.tiers",
]  # fmt: skip
IMPURE_MODULES = ("pyspark", "os", "pathlib", "shutil", "tempfile", "time", "pyarrow.fs")
IMPURE_CALL = re.compile(r"open|(datetime\.)?(datetime|date)\.(now|utcnow|today)")


class Import(NamedTuple):
    line: int
    name: str  # dotted and absolute: `from midstream.plan.plan import Plan` is midstream.plan.plan.Plan
    is_for_types: bool


def imports(tree: ast.Module, package: str) -> Iterator[Import]:
    """All that a module of the given package imports, also inside functions."""
    for node, is_for_types in walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name, is_for_types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:  # relative: one dot is the package itself, each further dot its parent
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *base.split(".")]).rstrip(".")
            yield from (Import(node.lineno, f"{base}.{alias.name}", is_for_types) for alias in node.names)


def walk(node: ast.AST, is_for_types: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes, and whether they stand under `if TYPE_CHECKING:`."""
    yield node, is_for_types
    is_check = isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
    for child in ast.iter_child_nodes(node):
        otherwise = isinstance(node, ast.If) and child in node.orelse
        yield from walk(child, is_for_types or (is_check and not otherwise))


def is_or_is_in(name: str, module: str) -> bool:
    return name == module or name.startswith(module + ".")


def module_of(path: str) -> str:
    """The dotted name, below `midstream`, of a file; a package has the name of its folder."""
    return path.removesuffix(".py").removesuffix("__init__").rstrip("/").replace("/", ".")


def imported_module(name: str, known: set[str]) -> str:
    """The module that an import is of, below `midstream`: the longest part of its name that is one."""
    parts = name.split(".")[1:]
    return next((".".join(parts[:n]) for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in known), "")


def violations(path: str, source: str, known: set[str]) -> list[str]:
    """What a file, named by its path below `midstream`, does against the rule: one sentence each."""
    module = module_of(path)
    if not module:
        return []  # the public names come from everywhere
    package = module.split(".")[0]
    if package not in LEVEL:
        return [f"{path}: `{package}` has no layer yet; place it in LAYERS in tests/unit/test_layers.py"]
    is_pure = any(is_or_is_in(module, pure) for pure in PURE)
    tree, found = ast.parse(source), list[str]()
    inside = f"midstream.{module}" if path.endswith("__init__.py") else f"midstream.{module}".rpartition(".")[0]
    for line, name, is_for_types in imports(tree, inside):
        if is_or_is_in(name, "midstream"):
            target = imported_module(name, known)
            to = target.split(".")[0] if target else ""
            if to == package or (module, target) in EXCEPTIONS:
                continue
            if not to and LEVEL[package]:  # what is no module is a public name: it comes with everything
                found.append(f"{path}:{line}: `{module}` imports the public names of `midstream`")
            elif to in LEVEL and LEVEL[package] and LEVEL[to] <= LEVEL[package]:
                found.append(f"{path}:{line}: `{module}` imports `{target}`, which is not below it")
        elif is_pure and not is_for_types:
            found += [
                f"{path}:{line}: `{module}` imports `{impure}`, but decides without Spark, files or a clock"
                for impure in IMPURE_MODULES
                if is_or_is_in(name, impure)
            ]
    if is_pure:
        found += [
            f"{path}:{node.lineno}: `{module}` calls `{call}`, but decides without Spark, files or a clock"
            for node, _ in walk(tree)
            if isinstance(node, ast.Call) and IMPURE_CALL.fullmatch(call := ast.unparse(node.func))
        ]
    return list(dict.fromkeys(found))  # one line may import several names


def sources() -> dict[str, str]:
    """Every file below `midstream`, by its path."""
    found = {file.relative_to(SOURCE).as_posix(): file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py")}
    assert found, f"no source was found in {SOURCE}"
    return found


def graph(files: dict[str, str]) -> dict[str, set[str]]:
    """Which module imports which."""
    known = {module_of(path) for path in files}
    edges: dict[str, set[str]] = {}
    for path, source in files.items():
        module = module_of(path)
        inside = f"midstream.{module}" if path.endswith("__init__.py") else f"midstream.{module}".rpartition(".")[0]
        names = {imported_module(each.name, known) for each in imports(ast.parse(source), inside)}
        edges[module] = {name for name in names if name and name != module}
    return edges


def circles(edges: dict[str, set[str]]) -> set[frozenset[str]]:
    """The sets of modules each of which reaches all others of its set."""
    reached: dict[str, set[str]] = {}
    for start in edges:
        seen, todo = set[str](), [start]
        while todo:
            for target in edges.get(todo.pop(), set()) - seen:
                seen.add(target)
                todo.append(target)
        reached[start] = seen
    return {
        frozenset({one, *(other for other in reached[one] if one in reached[other])})
        for one in edges
        if one in reached[one]
    }


def test_imports_go_down_only_and_what_decides_is_pure():
    files = sources()
    known = {module_of(path) for path in files}
    found = [violation for path, source in sorted(files.items()) for violation in violations(path, source, known)]
    assert not found, "\n" + "\n".join(found)


def test_no_imports_go_in_circles_but_through_the_exceptions():
    edges = graph(sources())
    edges.pop("")  # whoever loads the package loads what it gives
    for one, other in EXCEPTIONS:
        assert other in edges[one], f"{one} does not import {other}: take it off the list"
        edges[one].discard(other)
    assert circles(edges) == set()


def test_every_package_has_a_layer_and_every_layer_is_there():
    names = {module_of(path).split(".")[0] for path in sources()} - {""}
    assert names == LEVEL.keys()
    known = {module_of(path) for path in sources()}
    assert not [name for name in PURE if name not in known]


KNOWN = {"plan", "plan.plan", "epoch.engine", "job.job", "epoch.decision", "checkpoint.journal", "state", "state.lmdb"}
KNOWN |= {"flow.flow", "sinks.files", "errors", "state.memory", "nexmark"}


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("plan/plan.py", "import midstream.epoch.engine", "imports `epoch.engine`"),
        ("plan/plan.py", "from midstream.job.job import Job", "imports `job.job`"),
        ("plan/plan.py", "from midstream.epoch import decision", "imports `epoch.decision`"),
        ("plan/plan.py", "from ..checkpoint import journal", "imports `checkpoint.journal`"),
        ("plan/plan.py", "from ..state.lmdb import Store", "imports `state.lmdb`"),
        ("state/lmdb.py", "from ..epoch.engine import Engine", "imports `epoch.engine`"),
        ("state/lmdb.py", "def later():\n    from midstream.flow.flow import Flow", "state/lmdb.py:2: "),
        ("plan/plan.py", "if TYPE_CHECKING:\n    from midstream.job.job import Job", "imports `job.job`"),
        ("epoch/engine.py", "import midstream as ms", "the public names"),
        ("epoch/engine.py", "from midstream import Flow, Job", "the public names"),
        ("sinks/files.py", "from midstream import *", "the public names"),
        ("plan/plan.py", "import pyspark", "imports `pyspark`"),
        ("epoch/decision.py", "from pyspark.sql import DataFrame", "imports `pyspark`"),
        ("events.py", "import os.path", "imports `os`"),
        ("events.py", "from pathlib import Path", "imports `pathlib`"),
        ("events.py", "import json, shutil", "imports `shutil`"),
        ("plan/routing.py", "from tempfile import mkdtemp", "imports `tempfile`"),
        ("plan/routing.py", "from time import monotonic", "imports `time`"),
        ("plan/routing.py", "from pyarrow import fs", "imports `pyarrow.fs`"),
        ("plan/routing.py", "import pyarrow.fs as fs", "imports `pyarrow.fs`"),
        ("errors.py", "text = open('log').read()", "calls `open`"),
        ("durations.py", "import datetime\nnow = datetime.datetime.now()", "calls `datetime.datetime.now`"),
        ("durations.py", "from datetime import datetime\nnow = datetime.now(UTC)", "calls `datetime.now`"),
        ("plan/plan.py", "if TYPE_CHECKING:\n    pass\nelse:\n    import pyspark", "plan/plan.py:4: "),
        ("helpers.py", "", "`helpers` has no layer yet"),
        ("helpers/text.py", "", "`helpers` has no layer yet"),
    ],
)
def test_an_import_against_the_rule_is_reported(path: str, source: str, complaint: str):
    found = violations(path, source, KNOWN)
    assert len(found) == 1
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("__init__.py", "from midstream.cli import main\nfrom midstream.errors import MidstreamError"),
        ("cli.py", "import midstream as ms\nfrom midstream.job.job import Job\nimport time"),
        ("testing/kit.py", "from midstream import Flow, nexmark"),
        ("epoch/engine.py", "import os, pyspark\nfrom midstream.epoch import decision\nfrom midstream import errors"),
        ("state/__init__.py", "from .lmdb import LmdbStore\nfrom ..errors import StateError"),
        ("sinks/files.py", "from midstream.state import memory"),
        ("epoch/decision.py", "from ..plan.plan import Plan\nfrom datetime import datetime, timedelta"),
        ("plan/code.py", "import cloudpickle, inspect, pyarrow\nimport timeit"),
        ("plan/plan.py", "if TYPE_CHECKING:\n    from pyspark.sql import DataFrame"),
        ("plan/plan.py", "import typing\nif typing.TYPE_CHECKING:\n    import pyspark"),
        ("plan/plan.py", "store.open('name')\nself.clock.now()"),
    ],
)
def test_an_import_that_keeps_the_rule_is_not_reported(path: str, source: str):
    assert violations(path, source, KNOWN) == []


def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == {frozenset("abc")}
    assert circles({"a": {"b"}, "b": set(), "c": {"a"}}) == set()
