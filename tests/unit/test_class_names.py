"""One name, one idea: no two modules of the library define a class of the same name, but for a listed few."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "midstream"
TWICE = {
    "History",  # of a job, in `epoch`; of an operator, in `state`
    "Live",  # public: the strategy `ms.strategies.live`, and the job of `midstream.testing` that is fed by hand
    "Republish",  # an event, which is public; a decision
    "Rows",  # of a benchmark, by which `tools/compare.py` runs older checkouts; of a change log; arranged by key
    "Sink",  # public; the node of a plan that stands for one
    "Staged",  # public: an event, and what a sink has staged
    "Step",  # public: of an epoch, in events; of a move, for strategies
}


def test_a_class_name_is_defined_once():
    trees = [ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")]
    names = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert {name for name, count in names.items() if count > 1} == TWICE
