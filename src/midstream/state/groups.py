"""How a task reaches the state of an operator's groups, by the kind of store that the job has."""

from __future__ import annotations

from midstream.state.budget import Budget
from midstream.state.cache import Cache
from midstream.state.changelog import LogWriter
from midstream.state.history import Head
from midstream.state.runs.groups import RunGroups
from midstream.state.runs.writer import RunWriter
from midstream.state.stores.kinds import RUNS

Groups = Cache | RunGroups


def groups_of(head: Head, *, lazy: bool = False, budget: Budget | None = None) -> Groups:
    """Return the groups of an operator.

    Args:
        head: where its history stands.
        lazy: groups that are not here are read where they are stored, if that can be.
        budget: for what is copied beside the work.
    """
    kind = RunGroups if head.store == RUNS else Cache
    return kind(head, lazy, budget if budget is not None else Budget(0, 0.0))


def log_of(head: Head) -> LogWriter:
    """Return what the changes of an epoch are written with."""
    return RunWriter() if head.store == RUNS else LogWriter()
