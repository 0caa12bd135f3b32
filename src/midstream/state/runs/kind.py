"""The kind of store that keeps state in sorted runs."""

from __future__ import annotations

from typing import ClassVar

from midstream.errors import StateError
from midstream.state.stores.contract import GroupStore, StoreKind


class RunsKind(StoreKind):
    """Sorted runs: change logs and what is merged of them, read where they are stored. There are no copies."""

    format: ClassVar[str] = "runs"

    def open(self, path: str) -> GroupStore:  # noqa: D102 - as in the contract
        raise StateError(f"runs are read where they are stored: there is no copy to open at {path}")

    def delete(self, path: str) -> None:  # noqa: D102
        raise StateError(f"runs are read where they are stored: there is no copy to delete at {path}")
