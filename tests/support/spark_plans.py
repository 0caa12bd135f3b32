"""Plans of Spark, played: a tree that answers as one of Java does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Node:
    """A plan as Java shows it: its name, and its children as a sequence of Scala."""

    def __init__(self, name: str, *children: Node) -> None:
        self._name, self._children = name, children

    def nodeName(self) -> str:  # noqa: N802 (Spark's name)
        return self._name

    def children(self) -> Any:
        return self

    def isEmpty(self) -> bool:  # noqa: N802
        return not self._children

    def length(self) -> int:
        return len(self._children)

    def apply(self, i: int) -> Node:
        return self._children[i]

    def __iter__(self) -> Iterator[Node]:
        return iter(self._children)

    def __repr__(self) -> str:
        return f"{self._name}({', '.join(map(repr, self._children))})"
