"""A flow in its frozen, versioned form: plain data that can be compared, kept and shown.

Pure: no pyspark, no files, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard

import msgspec

from midstream.errors import PlanError
from midstream.plan.code import Code
from midstream.plan.node import (
    BROADCAST,
    GROUP,
    KEY,
    KeyedOperator,
    Operator,
    StateField,
    field_signature,
    node_of,
    register_node,
)
from midstream.plan.nodes import (
    Aggregate,
    AggregateSpec,
    AnyOperator,
    Errors,
    Late,
    MapArrow,
    Migration,
    Process,
    Sink,
    Source,
    Spread,
    Transform,
    Union,
    Watermark,
    Window,
)

__all__ = [  # the nodes too: a plan and its nodes are imported together
    "BROADCAST",
    "GROUP",
    "KEY",
    "Aggregate",
    "AggregateSpec",
    "AnyOperator",
    "Errors",
    "KeyedOperator",
    "Late",
    "MapArrow",
    "Migration",
    "Operator",
    "Plan",
    "Process",
    "Sink",
    "Source",
    "Spread",
    "StateField",
    "Transform",
    "Tuning",
    "Union",
    "Watermark",
    "Window",
    "code_keys",
    "codes",
    "field_signature",
    "in_order",
    "is_session",
    "node_of",
    "register_node",
    "windows_late_for",
    "windows_of",
]


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """What was tuned while the job runs; `None`: as it was started."""

    rows_per_arrow_batch: int | None = None
    max_rows_per_epoch: int | None = None
    epoch_interval: int | None = None  # microseconds
    prefetch_budget: int | None = None  # bytes
    prefetch_time: int | None = None  # microseconds
    standbys: int | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All operators of a job, inputs before their consumers."""

    name: str
    operators: tuple[AnyOperator, ...]
    version: int = 1
    tuning: Tuning = Tuning()

    def __getitem__(self, id: str) -> AnyOperator:
        for operator in self.operators:
            if operator.id == id:
                return operator
        known = ", ".join(repr(operator.id) for operator in self.operators)
        raise PlanError(f"no operator {id!r} in flow {self.name!r}; it has {known}")

    def consumers(self, id: str) -> list[AnyOperator]:
        """List the operators that read the output of `id`, as often as they do."""
        return [operator for operator in self.operators for input in operator.inputs if input == id]

    def upstream(self, id: str) -> Iterator[AnyOperator]:
        """Walk everything that `id` depends on, itself first; an operator reached twice is yielded once."""
        seen: set[str] = set()
        todo = [id]
        while todo:
            current = todo.pop()
            if current not in seen:
                seen.add(current)
                yield self[current]
                todo.extend(self[current].inputs)

    def of(self, *kinds: type) -> list[Any]:
        """List the operators of some kinds, in order."""
        return [operator for operator in self.operators if isinstance(operator, kinds)]

    def explain(self) -> str:
        """Show the plan as a tree: each operator below what it reads, or below the first of several inputs."""
        lines = [f"{self.name}, version {self.version}"]
        roots = [operator for operator in self.operators if not operator.inputs]
        for i, root in enumerate(roots):
            lines += self._branch(root, "", i == len(roots) - 1)
        return "\n".join(lines)

    def _branch(self, operator: AnyOperator, indent: str, is_last: bool) -> Iterator[str]:
        others = f", reads {', '.join(operator.inputs[1:])} too" if len(operator.inputs) > 1 else ""
        yield f"{indent}{'└─' if is_last else '├─'} {operator.id} ({operator.described}{others})"
        below = [reader for reader in self.operators if reader.inputs[:1] == (operator.id,)]
        for i, reader in enumerate(below):
            yield from self._branch(reader, indent + ("   " if is_last else "│  "), i == len(below) - 1)


def codes(plan: Plan) -> Iterator[Code]:
    """List all code in a plan."""
    for operator in plan.operators:
        yield from operator.codes


def code_keys(plan: Plan) -> set[str]:
    """List the keys of all code in a plan."""
    return {code.key for code in codes(plan)}


def in_order(wanted: Sequence[AnyOperator]) -> tuple[AnyOperator, ...]:
    """Sort operators after their inputs, otherwise as they are; refuse cycles."""
    found: list[AnyOperator] = []
    rest, waiting = list(wanted), {operator.id for operator in wanted}
    while rest:
        ready = next((operator for operator in rest if not waiting.intersection(operator.inputs)), None)
        if ready is None:
            raise PlanError(f"the operators {', '.join(repr(o.id) for o in rest)} read each other in a cycle")
        found.append(ready)
        rest.remove(ready)
        waiting.discard(ready.id)
    return tuple(found)


def is_session(operator: AnyOperator) -> TypeGuard[Window]:
    """Whether an operator has windows that last as long as rows follow each other."""
    return isinstance(operator, Window) and operator.is_session


def windows_of(plan: Plan, id: str) -> Window | Spread | None:
    """The windows of event time that a keyed operator has; they may be another operator, before it."""
    return next((operator for operator in plan.of(Window, Spread) if operator.of == id), None)


def windows_late_for(plan: Plan, late: Late) -> Window | Spread:
    """Return the windows whose late rows these are; refuse those of an operator without windows."""
    found = windows_of(plan, late.of)
    if found is None:
        raise PlanError(
            f"{late.id!r} are the late rows of {late.of!r}, which has no windows of event time in this plan"
        )
    return found
