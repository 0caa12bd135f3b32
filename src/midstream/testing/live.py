"""A job that is fed by hand, for tests and examples of live changes: feed rows, look, change, continue."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from midstream.checkpoint.offsets import tags
from midstream.events import Event, Progress
from midstream.flow.flow import Flow
from midstream.flow.triggers import Trigger, every
from midstream.testing.kit import source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from midstream.job.job import Job
    from midstream.modifications.handle import Modification

_SECONDS = 120.0


class Live:
    """Runs a flow over sources that `feed` fills; a context manager that stops the job and deletes its files.

    >>> def build(flow, bids):
    ...     bids.sink("out", out)
    >>> with Live(spark, build, bids="auction long, price long") as live:  # doctest: +SKIP
    ...     live.feed("bids", [(1, 10)])
    ...     live.modify(ms.replace("big", lambda df: df.where("price > 50")))
    """

    def __init__(
        self,
        spark: SparkSession,
        build: Callable[..., object],
        trigger: Trigger | None = None,
        options: Mapping[str, Any] | None = None,
        **schemas: str,
    ) -> None:
        self._spark, self._build, self._schemas, self._options = spark, build, schemas, dict(options or {})
        self._trigger = trigger or every(0)
        self._directory = tempfile.mkdtemp(prefix="midstream-live-")
        self._fed: dict[str, list[Sequence[tuple[Any, ...]]]] = {id: [] for id in schemas}
        self._committed = threading.Condition()
        self.progress: list[Progress] = []
        self.job = self._start()

    def feed(self, id: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Feed rows to a source, wait until they are committed, and return the epoch."""
        self._fed[id].append(rows)
        self._source(id)
        wanted = len(self._fed[id]) - 1
        self._wait_for(lambda: self._offset(id) >= wanted, f"rows for {id!r} were not committed")
        return self.progress[-1].epoch

    def next_epoch(self) -> Progress:
        """Wait until one more epoch is done: with rows that came from elsewhere, or with none."""
        known = len(self.progress)
        self._wait_for(lambda: len(self.progress) > known, "no epoch was done")
        return self.progress[-1]

    def modify(self, *steps: Any) -> Modification:
        """Change the job and wait for the cut."""
        return self.job.modify(*steps).wait(_SECONDS)

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        self.job.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _start(self) -> Job:
        flow = Flow("live")
        self._build(flow, **{id: flow.source(id, self._source(id)) for id in self._schemas})
        return flow.start(
            self._options.pop("checkpoint", os.path.join(self._directory, "checkpoint")),
            trigger=self._trigger,
            cache=os.path.join(self._directory, "cache"),
            listener=self._listen,
            **self._options,
        )

    def _wait_for(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Wait for the effect of an epoch; raise the job's error if that ends it."""
        end = time.monotonic() + _SECONDS
        with self._committed:
            while not condition() and self.job.is_active:
                if time.monotonic() > end:
                    raise TimeoutError(f"{otherwise} within {_SECONDS:g} seconds")
                self._committed.wait(0.5)  # a job that ends does not notify
        if not self.job.is_active:
            self.job.await_termination()

    def _source(self, id: str) -> Any:
        return source(self._spark, os.path.join(self._directory, id), self._schemas[id], self._fed[id])

    def _offset(self, id: str) -> int:
        """The newest file of a source that an epoch has processed, -1 for none."""
        last, at = self.job._engine.history.last, tags(self.job._query.feeds).get(id, -1)
        if last is None or not self.progress or self.progress[-1].epoch < last.epoch:
            return -1
        offset = last.offsets[at] if 0 <= at < len(last.offsets) else ""
        return int(json.loads(offset).get("logOffset", -1)) if offset.startswith("{") else -1

    def _listen(self, event: Event) -> None:
        if isinstance(event, Progress):
            with self._committed:
                self.progress.append(event)
                self._committed.notify_all()
