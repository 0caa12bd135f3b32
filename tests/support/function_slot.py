"""One slot of a keyed function in memory, epoch by epoch, whose failures are put aside; without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

import midstream as ms
from midstream.operators.dead_letters import FAILED, beside_failed
from midstream.operators.functions.declare import state_fields
from midstream.operators.functions.task import FunctionTask
from midstream.operators.schemas import arrow_schema
from midstream.operators.task import Epoch, Work
from midstream.plan.code import capture
from midstream.plan.routing import Routing
from midstream.state.cache import Head
from midstream.state.entries import SHARED, Stage
from midstream.state.stores.contract import Version
from midstream.state.stores.memory import MemoryStore
from tests.support.edits import Edits
from tests.support.window_slot import GROUPS, Stores

SECOND = 1_000_000
LONGS = StructType([StructField(name, LongType()) for name in ("key", "n")])
BOTH = arrow_schema(beside_failed(LONGS, LONGS))


def moment(second: int) -> datetime:
    return datetime.fromtimestamp(second, timezone.utc)


class Ledger(ms.KeyedFunction):
    """Writes every kind of state, and then fails where a number, or the second of a timer, says so."""

    total = ms.value("long", default=0)
    kept = ms.value("long", ttl="1 hour")
    each = ms.list("long")
    last = ms.map("long", "long")
    noted = ms.list("long", scope="group")
    count = ms.value("long", default=0, scope="group")

    def process(self, key: int, rows: list[Any], ctx: ms.Context) -> Iterator[Any]:
        for row in rows:
            self._note(row.n, ctx)
            yield key, self.total if row.n != 13 else "thirteen"  # which the schema does not take
            if row.n % 5 == 0:
                raise ValueError(f"{row.n} is a multiple of five")

    def on_timer(self, key: int, timer: ms.Timer, ctx: ms.Context) -> Iterator[Any]:
        second = int(timer.at.timestamp())
        self._note(second, ctx)
        yield key, -self.total
        if second % 3 == 0:
            raise KeyError(second)

    def _note(self, n: int, ctx: ms.Context) -> None:
        self.total += n
        self.kept = n
        self.each.append(n)
        if n % 2:
            self.last[n % 4] = n
        else:
            self.last.clear()
            self.each = list(self.each)[-3:]
        self.noted.append(n)
        self.count += 1
        ctx.set_event_timer(moment(n + 100))
        ctx.clear_event_timer(moment(n + 101))


class Breaks(ms.KeyedFunction):
    """Raises what it is told."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def process(self, key: int, rows: list[Any], ctx: ms.Context) -> Any:
        raise self.error


class Slot:
    """One slot that owns all groups; a key is in the group of its remainder."""

    def __init__(self, function: ms.KeyedFunction) -> None:
        self.function = function
        self.stores = {group: MemoryStore() for group in range(GROUPS)}
        self.deadlines: dict[int, int | None] = {}
        self.succeeded = 0

    def epoch(self, rows: Iterable[tuple[int, int]], mark: int, schema: pa.Schema = BOTH) -> list[dict[str, Any]]:
        keys, numbers = zip(*rows, strict=True) if rows else ((), ())
        columns = [pa.array(column, pa.int64()) for column in (keys, numbers, numbers)]
        due = frozenset(g for g, at in self.deadlines.items() if at is not None and at <= mark * SECOND)
        head = Head("job", "ledger", "", "", -1, (None,) * GROUPS, throw_away=True)
        fields = state_fields(self.function)
        task = FunctionTask(
            operator="ledger", head=head, epoch=Epoch(0, 0, "", mark * SECOND, due=due), directory="", aside="",
            schema=bytes(schema.serialize()), keys=("key",), routing=Routing.even(GROUPS, 1),
            code=capture(self.function, what="the function", shipped=True), order_by=(),
            stages=(stage("key", fields, 0),), shared=stage("group", fields, SHARED),
            key_schema=bytes(pa.schema([("key", pa.int64())]).serialize()), dead_letters=FAILED in schema.names,
        )  # fmt: skip
        work = Work(0, Stores(head, stores=self.stores))
        batch = pa.record_batch(columns, names=["key", "n", "_tie"])
        output = task.work(work, batch, np.array([k % GROUPS for k in keys], np.int32), frozenset(range(GROUPS)))
        for group, changes in work.log.take().items():
            self.stores[group].apply([Edits(changes)], Version("job", 0, ""))
        self.deadlines.update({group: at for group, (at, _) in work.report.deadlines.items()})
        self.succeeded += work.report.succeeded
        found = [row for part in output for row in part.to_pylist()]
        assert work.report.errors == sum(row.get(FAILED) is not None for row in found)
        return found


def stage(scope: str, fields: tuple[Any, ...], base: int) -> Stage:
    mine = tuple(field for field in fields if field.scope == scope)
    types = [(name, pa.int64()) for f in mine for name in (f.name, *([f"{f.name} key"] if f.key_type else []))]
    return Stage(mine, bytes(pa.schema(types).serialize()), base, None)
