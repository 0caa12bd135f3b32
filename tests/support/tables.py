"""The frames of a run as names of tables: for what an operator writes as a query, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from midstream.operators.resolved import Resolved
from midstream.operators.shuffle import KeyedRun
from midstream.plan import plan as p


@dataclass
class Tables:
    """Every operator's output is a table that is called as the operator; there are no frames."""

    resolved: Resolved
    keyed: dict[str, KeyedRun] = field(default_factory=dict)
    clock: int = 0

    @property
    def spark(self) -> Any:
        raise AssertionError("nobody needs a session for a text")

    def table(self, id: str) -> str:
        return id

    def frame(self, id: str) -> Any:
        raise AssertionError(f"a text of {id!r} is wanted, not a frame")

    def everything(self, id: str) -> Any:
        raise AssertionError(f"a text of {id!r} is wanted, not a frame")

    def source(self, operator: p.Source) -> tuple[Any, Sequence[str], str]:
        raise AssertionError("a batch has frames")

    def observe(self, what: str, id: str, rows: Any, expression: str) -> Any:
        raise AssertionError("frames are observed, and not texts")

    def directories(self, home: str) -> tuple[str, str]:
        return f"{home}/logs", f"{home}/aside"
