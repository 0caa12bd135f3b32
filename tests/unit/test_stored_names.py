"""Names that checkpoints hold: each is found, and found again from what it names."""

from __future__ import annotations

import pytest

import midstream as ms
from midstream.stored_names import PLACES, named, stored_name

# What has been written into checkpoints. Names may be added here; none may go.
EVER_WRITTEN = {
    "BoundedJoin", "Code", "Console", "CountPart", "CountResult", "CountWindows", "Deduplicate", "Delta", "Files",
    "ForeachBatch", "Leading", "ListState", "MapState", "Marked", "Memory", "Noop", "Postgres", "Secret", "SharedState",
    "SideForm", "Sink", "SpooledSink", "StateDeclaration", "Top", "UnboundedJoin", "ValueState",
}  # fmt: skip


def test_a_name_that_was_ever_written_is_known():
    assert PLACES.keys() == EVER_WRITTEN


@pytest.mark.parametrize("name", [*PLACES, "ms.KeyedFunction", "ms.Aggregator", "Deduplicate.process"])
def test_a_name_leads_to_what_has_it(name: str):
    assert stored_name(named(name)) == name


def test_what_is_not_ours_or_has_no_name_has_none():
    assert stored_name(int) is None
    assert stored_name(stored_name) is None
    assert stored_name(lambda: 0) is None
    assert stored_name(ms) is None
