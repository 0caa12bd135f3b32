"""What a run has of a group, made of a dictionary, and keys to fill it with."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from midstream.state.runs.keys import key_column
from midstream.state.runs.part import Part
from midstream.state.runs.values import ByteValues

Entries = dict[bytes, bytes | None]  # None: deleted

INTEGERS = st.one_of(st.integers(0, 20), st.integers(0, (1 << 64) - 1)).map(lambda n: b"\1\1" + n.to_bytes(8, "big"))
FIXED = st.binary(min_size=3, max_size=3).map(lambda rest: b"\1" + rest)
VARIED = st.one_of(
    st.text("ab\0", max_size=12).map(lambda rest: b"\2" + rest.encode()),  # the same beginnings, and zeros at the end
    st.binary(min_size=1, max_size=40).map(lambda rest: b"\3" + rest),
)
VALUES = st.one_of(st.none(), st.binary(max_size=12))

SOME: st.SearchStrategy[st.SearchStrategy[bytes]] = st.sampled_from(
    [INTEGERS, FIXED, VARIED, INTEGERS | FIXED | VARIED]
)
ENTRIES: st.SearchStrategy[Entries] = SOME.flatmap(lambda keys: st.dictionaries(keys, VALUES, min_size=1, max_size=40))


def part_of(entries: Mapping[bytes, bytes | None]) -> Part:
    """Make what a run has of a group."""
    keys = sorted(entries)
    return Part(key_column(keys), ByteValues.of([entries[key] for key in keys]))


def entries_of(part: Part) -> list[tuple[bytes, bytes | None]]:
    """Return key and value of every entry, in order."""
    return list(zip(part.keys.to_list(0, len(part)), part.values.to_list(), strict=True))


def latest(runs: list[Entries]) -> Entries:
    """Say what runs, the newest first, have together."""
    found: Entries = {}
    for entries in reversed(runs):
        found.update(entries)
    return found
