"""Second copies of groups on other executors, kept up to date epoch by epoch: which exist, and which should. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Copy = tuple[int, str]  # group, executor


def wanted(homes: Sequence[str], executors: Iterable[str], standbys: int) -> list[Copy]:
    """Return which executors should have second copies: the groups of one home are spread over all others.

    >>> wanted(["a", "a", "b"], ["a", "b", "c"], standbys=1)
    [(0, 'b'), (1, 'c'), (2, 'a')]
    >>> wanted(["a", "b"], ["a", "b"], standbys=2)
    [(0, 'b'), (1, 'a')]
    """
    known, found = sorted(set(executors)), list[Copy]()
    for group, home in enumerate(homes):
        others = [executor for executor in known if executor != home]
        found += [(group, others[(group + i) % len(others)]) for i in range(min(standbys, len(others)))]
    return found


@dataclass(slots=True)
class Standbys:
    """The second copies of one operator's groups."""

    standing: frozenset[Copy] = frozenset()  # that lack one epoch at most
    asked: tuple[Copy, ...] = field(default=())  # of the tasks of the current epoch

    def ask(self, homes: Sequence[str], executors: Iterable[str], standbys: int) -> tuple[Copy, ...]:
        """Return which copies the next epoch makes, or keeps up to date."""
        self.asked = tuple(wanted(homes, executors, standbys)) if standbys else ()
        return self.asked

    def left(self, homes: Sequence[str]) -> list[Copy]:
        """The copies that are no longer needed."""
        return sorted(c for c in self.standing if c not in self.asked and homes[c[0]] != c[1])

    def after(self, fetched: Iterable[Copy]) -> None:
        """Note which copies the tasks have made."""
        self.standing = frozenset(fetched) & frozenset(self.asked)

    def home(self, group: int, executors: Iterable[str]) -> str | None:
        """The executor that can serve a group at once where its home is lost; `None` if there is none."""
        there = set(executors)
        return min((executor for g, executor in self.standing if g == group and executor in there), default=None)
