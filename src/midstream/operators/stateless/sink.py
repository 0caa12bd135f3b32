"""Sinks in a plan: they have no output; the epoch stages their input."""

from __future__ import annotations

from midstream.operators.kind import Kind, Output, Resolving
from midstream.plan import plan as p


class SinkKind(Kind[p.Sink]):
    """Where rows go."""

    def resolve(self, operator: p.Sink, rows: Resolving) -> Output:
        """Take whatever comes; the sink itself refuses what it cannot write."""
        return Output(rows.inputs[0])
