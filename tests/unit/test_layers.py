"""The layer rule of the architecture: imports go down only, and the lower layers decide without acting.

A module is named by the first part of its path below `midstream`: `midstream/state/lmdb.py` is in `state`.
What stands under `if TYPE_CHECKING:` is not imported at run time and is not looked at.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "midstream"

# Highest first. A module may import from its own layer and from those below it.
LAYERS: tuple[frozenset[str], ...] = tuple(
    frozenset(names.split())
    for names in (
        "api cli sink_report __main__ web demo bench nexmark testing live cluster ingest",
        (
            "job starting modifications handle watching query flow additions triggers joins ranking count_windows java "
            "sessions windowed"
        ),
        (
            "engine armed settings publication attempt briefing placement places anchor shadow records reporting "
            "rehearsal validation savepoint restoring manifest saved_files"
        ),
        (
            "dataflow shuffle resolve transforms watermarks window_sql deadline housekeeping failures slot exclusive "
            "calls dead_letters arrow_task aggregate_task window_panes window_task session_task function_task "
            "join_rules join_form join_kept join_task count_rules count_panes count_task"
        ),
        (
            "state place ddl per_epoch garbage sinks sources journal storage metrics aggregation retention lease clock "
            "own_threads arrow_values seals"
        ),
        "coordinator modification feeds",
        (
            "operators changes building relocation tuning planfile plan wiring succession functions aggregates "
            "deduplication code codetext ownership reach shipment"
        ),
        (
            "naming delivery migration windows regimes heat housing seats standbys balance routing events errors "
            "durations stored_names"
        ),
    )
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}  # {module: 0 is the highest}

# From here down: no Spark, no files, no clock.
PURE = LEVEL["coordinator"]
IMPURE_MODULES = ("pyspark", "os", "pathlib", "shutil", "tempfile", "time", "pyarrow.fs")
IMPURE_CALL = re.compile(r"open|(datetime\.)?(datetime|date)\.(now|utcnow|today)")


class Import(NamedTuple):
    line: int
    name: str  # dotted and absolute: `from midstream.plan import Plan` is midstream.plan.Plan


def imports(tree: ast.Module, package: str) -> Iterator[Import]:
    """All that a module of the given package imports at run time, also inside functions."""
    for node in walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:  # relative: one dot is the package itself, each further dot its parent
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *base.split(".")]).rstrip(".")
            yield from (Import(node.lineno, f"{base}.{alias.name}") for alias in node.names)


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING:`."""
    yield node
    only_for_types = isinstance(node, ast.If) and ast.unparse(node.test) in (
        "TYPE_CHECKING",
        "typing.TYPE_CHECKING",
    )
    for child in node.orelse if only_for_types else ast.iter_child_nodes(node):
        yield from walk(child)


def is_or_is_in(name: str, module: str) -> bool:
    return name == module or name.startswith(module + ".")


def violations(path: str, source: str) -> list[str]:
    """What a file, named by its path below `midstream`, does against the rule: one sentence each."""
    parts = path.removesuffix(".py").split("/")
    if parts == ["__init__"]:
        return []  # the public names come from everywhere
    module = parts[0]
    if module not in LEVEL:
        return [f"{path}: `{module}` has no layer yet; place it in LAYERS in tests/unit/test_layers.py"]
    level, tree = LEVEL[module], ast.parse(source)
    package = ".".join(["midstream", *parts[:-1]])
    found: list[str] = []
    for line, name in imports(tree, package):
        if is_or_is_in(name, "midstream"):
            target, *below = name.split(".")[1:] or [""]
            if below and target not in LEVEL:
                continue  # a module without a layer is reported once, for its own file
            if LEVEL.get(target, 0) < level:  # what is no module is a public name: it comes with everything
                what = f"`{target}`" if target in LEVEL else "the public names of `midstream`"
                found.append(f"{path}:{line}: `{module}` imports {what}, which is in a higher layer")
        elif level >= PURE:
            found += [
                f"{path}:{line}: `{module}` imports `{impure}`, but decides without Spark, files or a clock"
                for impure in IMPURE_MODULES
                if is_or_is_in(name, impure)
            ]
    if level >= PURE:
        found += [
            f"{path}:{node.lineno}: `{module}` calls `{call}`, but decides without Spark, files or a clock"
            for node in walk(tree)
            if isinstance(node, ast.Call) and IMPURE_CALL.fullmatch(call := ast.unparse(node.func))
        ]
    return list(dict.fromkeys(found))  # one line may import several names


def test_imports_go_down_only_and_the_lower_layers_are_pure():
    files = sorted(SOURCE.rglob("*.py"))
    assert files, f"no source was found in {SOURCE}"
    found = [
        violation
        for file in files
        for violation in violations(file.relative_to(SOURCE).as_posix(), file.read_text(encoding="utf-8"))
    ]
    assert not found, "\n" + "\n".join(found)


def test_a_module_is_in_one_layer():
    assert sum(map(len, LAYERS)) == len(LEVEL)


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("plan.py", "import midstream.engine", "imports `engine`"),
        ("plan.py", "from midstream.job import Job", "imports `job`"),
        ("plan.py", "from midstream import coordinator", "imports `coordinator`"),
        ("plan.py", "from . import journal", "imports `journal`"),
        ("plan.py", "from .state.lmdb import Store", "imports `state`"),
        ("state/lmdb.py", "from ..engine import Engine", "imports `engine`"),
        ("state/lmdb.py", "def later():\n    from midstream.flow import Flow", "state/lmdb.py:2: "),
        ("engine.py", "import midstream as ms", "the public names"),
        ("engine.py", "from midstream import Flow, Job", "the public names"),
        ("sinks/files.py", "from midstream import *", "the public names"),
        ("plan.py", "import pyspark", "imports `pyspark`"),
        ("coordinator.py", "from pyspark.sql import DataFrame", "imports `pyspark`"),
        ("events.py", "import os.path", "imports `os`"),
        ("events.py", "from pathlib import Path", "imports `pathlib`"),
        ("events.py", "import json, shutil", "imports `shutil`"),
        ("routing.py", "from tempfile import mkdtemp", "imports `tempfile`"),
        ("routing.py", "from time import monotonic", "imports `time`"),
        ("routing.py", "from pyarrow import fs", "imports `pyarrow.fs`"),
        ("routing.py", "import pyarrow.fs as fs", "imports `pyarrow.fs`"),
        ("errors.py", "text = open('log').read()", "calls `open`"),
        ("durations.py", "import datetime\nnow = datetime.datetime.now()", "calls `datetime.datetime.now`"),
        ("durations.py", "from datetime import datetime\nnow = datetime.now(UTC)", "calls `datetime.now`"),
        ("plan.py", "if TYPE_CHECKING:\n    pass\nelse:\n    import pyspark", "plan.py:4: "),
        ("helpers.py", "", "`helpers` has no layer yet"),
        ("helpers/text.py", "", "`helpers` has no layer yet"),
    ],
)
def test_an_import_against_the_rule_is_reported(path: str, source: str, complaint: str):
    found = violations(path, source)
    assert len(found) == 1
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("__init__.py", "from midstream.cli import main\nfrom midstream.errors import MidstreamError"),
        ("cli.py", "import midstream as ms\nfrom midstream.job import Job\nimport time"),
        ("testing.py", "from midstream import Flow, nexmark"),
        ("engine.py", "import os, pyspark\nfrom midstream import coordinator, errors, slot"),
        ("state/__init__.py", "from .lmdb import LmdbStore\nfrom ..errors import StateError"),
        ("state/lmdb.py", "from . import memory\nfrom midstream.sinks import files"),
        ("coordinator.py", "from .plan import Plan\nfrom datetime import datetime, timedelta"),
        ("engine.py", "from midstream.no_layer_yet import name"),
        ("code.py", "import cloudpickle, inspect, pyarrow\nimport timeit"),
        ("plan.py", "if TYPE_CHECKING:\n    from pyspark.sql import DataFrame\n    from .job import Job"),
        ("plan.py", "import typing\nif typing.TYPE_CHECKING:\n    import pyspark"),
        ("plan.py", "store.open('name')\nself.clock.now()"),
    ],
)
def test_an_import_that_keeps_the_rule_is_not_reported(path: str, source: str):
    assert violations(path, source) == []
