"""Merging of what runs have of a group, compared with dictionaries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.state.runs.keys import Wanted
from midstream.state.runs.part import merged
from tests.support.run_parts import ENTRIES, Entries, entries_of, latest, part_of


@pytest.mark.parametrize("whole", [True, False])
@given(runs=st.lists(ENTRIES, min_size=1, max_size=4))
def test_of_each_key_the_newest_is_kept_and_deletions_only_where_they_hide_something(
    runs: list[Entries], whole: bool
) -> None:
    part = merged([part_of(entries) for entries in runs], whole=whole)
    assert entries_of(part) == sorted((k, v) for k, v in latest(runs).items() if not whole or v is not None)


@given(st.lists(ENTRIES, min_size=2, max_size=3))
def test_what_was_merged_is_found(runs: list[Entries]) -> None:
    part = merged([part_of(entries) for entries in runs], whole=False)
    keys = sorted(latest(runs))
    assert part.keys.find(Wanted(keys)).tolist() == list(range(len(keys)))
