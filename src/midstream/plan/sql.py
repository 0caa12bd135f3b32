"""Pieces of SQL."""

from __future__ import annotations


def quote(name: str) -> str:
    """Quote a column name for SQL."""
    return "`" + name.replace("`", "``") + "`"
