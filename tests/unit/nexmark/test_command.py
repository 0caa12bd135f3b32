"""What `midstream nexmark run` says of the state in the course of a run."""

from __future__ import annotations

from midstream.events import Progress
from midstream.nexmark.command import state_over_time


def after(epoch: int, **sizes: int) -> Progress:
    about = {"version": 1, "clock": "", "rows": {}, "keys": {}, "watermarks": {}, "log_bytes": 0, "snapshots": 0}
    return Progress(epoch, **about, entries=sizes, state_bytes={id: 1000 * size for id, size in sizes.items()})  # type: ignore[arg-type]


def test_some_epochs_are_told_the_first_and_the_last_always() -> None:
    told = state_over_time([after(epoch, counts=epoch * 100, hottest=1) for epoch in range(25)], lines=4)
    assert [line.split(":")[0] for line in told] == [f"after epoch {epoch}" for epoch in (0, 7, 14, 21, 24)]
    assert told[-1] == "after epoch 24: 2,401 entries of state, 2.4 MB"


def test_a_query_without_state_has_nothing_to_tell() -> None:
    assert state_over_time([after(0), after(1)]) == []
    assert state_over_time([]) == []
