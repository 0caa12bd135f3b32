"""Which store a task reads, and what it writes its changes with."""

from __future__ import annotations

from midstream.state.budget import Budget
from midstream.state.cache import Cache
from midstream.state.changelog import LogWriter
from midstream.state.groups import groups_of, log_of
from midstream.state.history import Head
from midstream.state.runs.groups import RunGroups
from midstream.state.runs.writer import RunWriter


def head(store: str) -> Head:
    return Head("job", "sums", "/checkpoint", "/cache", -1, (None,), store=store)


def test_a_job_reads_and_writes_the_store_that_it_has() -> None:
    budget = Budget(1, 2.0)
    for store, groups, log in (("runs", RunGroups, RunWriter), ("lmdb", Cache, LogWriter)):
        found = groups_of(head(store), lazy=True, budget=budget)
        assert type(found) is groups
        assert (found.lazy, found.budget) == (True, budget)
        assert type(log_of(head(store))) is log
