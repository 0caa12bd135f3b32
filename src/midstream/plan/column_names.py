"""Names of columns that are taken: compared as Spark does, without regard to upper and lower case. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from midstream.errors import PlanError


def clash(names: Iterable[str], taken: Iterable[str]) -> str | None:
    """Return the first of some names that is one of those taken, if there is one.

    >>> clash(["n", "Epoch"], ["epoch"]), clash(["epochs"], ["epoch"])
    ('Epoch', None)
    """
    lower = {name.lower() for name in taken}
    return next((name for name in names if name.lower() in lower), None)


def repeated(names: Iterable[str]) -> str | None:
    """Return the first of some names that another one before it has already, if there is one.

    >>> repeated(["n", "total", "N"]), repeated(["n", "total"]), repeated(["", ""])
    ('N', None, '')
    """
    seen = list[str]()
    for name in names:
        if clash([name], seen) is not None:
            return name
        seen.append(name)
    return None


def refuse_taken(operator: str, names: Iterable[str], taken: Iterable[str]) -> None:
    """Refuse columns with names of Midstream's own columns."""
    if (name := clash(names, taken)) is not None:
        raise PlanError(f"operator {operator!r}: the column name {name!r} is taken by Midstream; rename it")
