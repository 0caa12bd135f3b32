"""Options of a job besides its flow, as the engine knows them."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.state.stores.kinds import DEFAULT


@dataclass(slots=True)
class Settings:
    """Options of a job besides its flow."""

    cache: str
    keep_epochs: int = 10
    snapshot_budget: int = 1 << 20
    rows_per_arrow_batch: int = 100_000
    in_place: bool = False
    store: str = DEFAULT  # the kind of store that groups are kept in
    apart: bool = False  # executors have caches of their own
    defers: bool = False  # rows of groups whose state cannot arrive soon are put aside
    prefetch_budget: int = 64 << 20
    prefetch_time: int = 50_000  # microseconds
    standbys: int = 0  # second copies of every group, on other executors
    store_bytes_per_second: int = 0  # 0: no limit
    cut_deadline: float = 60.0  # seconds for the first epoch under a new plan
    publish_tries: int = 5  # before a sink that cannot publish stops the job
    accept_lost_output: bool = False  # go on where sinks have lost rows that were published
