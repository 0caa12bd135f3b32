"""The kind of store that keeps state in runs: known by name, and without copies."""

from __future__ import annotations

import pytest

from midstream.errors import StateError
from midstream.state.runs.kind import RunsKind
from midstream.state.stores.kinds import store_kind


def test_runs_are_a_store_of_a_format_of_their_own() -> None:
    kind = store_kind("runs")
    assert isinstance(kind, RunsKind)
    assert kind.format == "runs" != store_kind("lmdb").format


def test_there_is_no_copy_to_open_or_to_delete() -> None:
    for use in (RunsKind().open, RunsKind().delete):
        with pytest.raises(StateError, match="read where they are stored"):
            use("/somewhere")
