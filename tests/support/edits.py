"""Changes of one epoch, written down as a dictionary: what the tests of stores apply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Edits:
    """`Changes` for a store: a value is put, `None` deletes."""

    entries: Mapping[bytes, bytes | None]

    def puts(self) -> Iterable[tuple[bytes, bytes]]:
        return [(key, value) for key, value in self.entries.items() if value is not None]

    def deletes(self) -> Iterable[bytes]:
        return [key for key, value in self.entries.items() if value is None]

    def applied_to(self, model: dict[bytes, bytes]) -> dict[bytes, bytes]:
        """What a dictionary holds afterwards."""
        after = {**model, **dict(self.puts())}
        return {key: value for key, value in after.items() if self.entries.get(key, value) is not None}
