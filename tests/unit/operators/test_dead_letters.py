"""A call that fails has not been: state, timers and output are as before it, and what it was about is put aside."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructField, StructType

import midstream as ms
from midstream.operators.dead_letters import FAILED, beside_failed
from midstream.operators.functions.calls import Output
from midstream.operators.functions.declare import state_fields
from midstream.operators.functions.task import FunctionTask
from midstream.operators.map_arrow import ArrowTask
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


@dataclass
class Model:
    """What the ledger must hold: plain dictionaries, copied before each call and put back if it fails."""

    keys: dict[int, dict[str, Any]] = field(default_factory=dict)
    groups: dict[int, dict[str, Any]] = field(default_factory=dict)

    def epoch(self, rows: list[tuple[int, int]], mark: int) -> tuple[Counter[Any], Counter[Any]]:
        out, failed = Counter[Any](), Counter[Any]()
        for group in range(GROUPS):
            for key in sorted({key for key, _ in rows if key % GROUPS == group}):
                mine = sorted(n for k, n in rows if k == key)
                if not self._call(key, mine, out, sign=1, fails=lambda n: n % 5 == 0 or n == 13):
                    failed.update((key, n, None) for n in mine)
            timers = [(at, key) for key in self.keys if key % GROUPS == group for at in self.keys[key]["timers"]]
            due = sorted((at, key) for at, key in timers if at <= mark)
            for at, key in due:
                self.keys[key]["timers"].discard(at)
            for at, key in due:
                if not self._call(key, [at], out, sign=-1, fails=lambda at: at % 3 == 0):
                    failed[key, None, at] += 1
        return out, failed

    def _call(self, key: int, numbers: list[int], out: Counter[Any], *, sign: int, fails: Any) -> bool:
        state = copy.deepcopy(self.keys.get(key, {"total": 0, "each": [], "last": {}, "timers": set()}))
        shared = copy.deepcopy(self.groups.get(key % GROUPS, {"noted": [], "count": 0}))
        made = []
        for n in numbers:
            state["total"] += n
            state["kept"] = n
            state["each"].append(n)
            if n % 2:
                state["last"][n % 4] = n
            else:
                state["last"], state["each"] = {}, state["each"][-3:]
            shared["noted"].append(n)
            shared["count"] += 1
            state["timers"] = (state["timers"] | {n + 100}) - {n + 101}
            made.append((key, sign * state["total"]))
            if fails(n):
                return False
        self.keys[key], self.groups[key % GROUPS] = state, shared
        out.update(made)
        return True


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


class Look(Ledger):
    """Shows what the state of a key is."""

    def process(self, key: int, rows: list[Any], ctx: ms.Context) -> Iterator[Any]:
        found = {
            "total": self.total, "kept": self.kept, "each": list(self.each), "last": sorted(self.last.items()),
            "noted": list(self.noted), "count": self.count,
        }  # fmt: skip
        yield key, json.dumps(found)


def halves(found: list[dict[str, Any]]) -> tuple[Counter[Any], Counter[Any]]:
    """What came out, and what was put aside: key, number or none, second of the timer or none."""
    out = Counter((row["key"], row["n"]) for row in found if row[FAILED] is None)
    failed = [row[FAILED] for row in found if row[FAILED] is not None]
    return out, Counter((f["row"]["key"], f["row"]["n"], f["timer"] and int(f["timer"].timestamp())) for f in failed)


ROWS = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 30)), max_size=8)


@given(st.lists(ROWS, max_size=5))
def test_a_call_that_fails_leaves_nothing_and_others_are_as_if_it_had_not_been(epochs: list[Any]):
    slot, model = Slot(Ledger()), Model()
    for number, rows in enumerate(epochs):
        mark = 100 + 10 * number
        assert halves(slot.epoch(rows, mark)) == model.epoch(rows, mark)
    slot.function = Look()
    told = arrow_schema(StructType([StructField("key", LongType())])).append(pa.field("n", pa.string()))
    seen = {row["key"]: json.loads(row["n"]) for row in slot.epoch([(key, 0) for key in range(7)], 0, told)}
    for key in range(7):
        mine = model.keys.get(key, {"total": 0, "each": [], "last": {}})
        shared = model.groups.get(key % GROUPS, {"noted": [], "count": 0})
        assert seen[key] == {
            "total": mine["total"], "kept": mine.get("kept"), "each": mine["each"],
            "last": [list(item) for item in sorted(mine["last"].items())], **shared,
        }  # fmt: skip


def test_what_is_put_aside_says_why_and_shows_the_users_code_only():
    slot = Slot(Ledger())
    (failed,) = [row[FAILED] for row in slot.epoch([(1, 5)], 0)]
    assert failed["reason"] == "ValueError: 5 is a multiple of five"
    assert failed["traceback"].startswith("Traceback (most recent call last):\n")
    assert failed["traceback"].rstrip().endswith("ValueError: 5 is a multiple of five")
    assert "in process" in failed["traceback"]
    assert "calls.py" not in failed["traceback"]
    (unfit,) = [row[FAILED] for row in slot.epoch([(1, 13)], 0)]
    assert "yielded 'thirteen' (str) for column 'n'" in unfit["reason"]
    assert slot.succeeded == 0


class Breaks(ms.KeyedFunction):
    """Raises what it is told."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def process(self, key: int, rows: list[Any], ctx: ms.Context) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [ConnectionError("gone"), MemoryError(), KeyboardInterrupt()])
def test_what_no_row_is_to_blame_for_is_raised(error: BaseException):
    with pytest.raises(type(error)):
        Slot(Breaks(error)).epoch([(1, 1)], 0)


class UnspeakableError(Exception):
    """Has a message that is no text."""

    def __str__(self) -> str:
        return "\ud800"


def test_a_message_that_is_no_text_is_escaped():
    (failed,) = [row[FAILED] for row in Slot(Breaks(UnspeakableError())).epoch([(1, 1)], 0)]
    assert failed["reason"].endswith(r"UnspeakableError: \ud800")


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 64), 1 << 64), st.floats(), st.text(st.characters(), max_size=3),
    st.binary(max_size=3), st.datetimes(), st.decimals(), st.lists(st.integers(0, 9), max_size=2),
)  # fmt: skip
TYPES = (pa.int64(), pa.int32(), pa.float64(), pa.float32(), pa.string(), pa.bool_(), pa.timestamp("us", tz="UTC"))


@given(st.lists(st.tuples(VALUES, VALUES), max_size=3), st.sampled_from(TYPES), st.sampled_from(TYPES))
def test_what_is_found_to_fit_when_it_is_yielded_fits_in_the_end(rows: list[Any], first: Any, second: Any):
    output = Output("fits", pa.schema([("a", first), ("b", second)]))
    try:
        output.check(rows)
    except ms.SchemaError:
        output.add(rows)
        with pytest.raises(ms.SchemaError):
            output.batches()
    else:
        output.add(rows)
        assert sum(batch.num_rows for batch in output.batches()) == len(rows)


# --- map_arrow ---


def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fails in the middle of its output."""
    for batch in batches:
        yield pa.record_batch([pa.array([2 * n for n in column.to_pylist()]) for column in batch], names=["key", "n"])
        for n in batch.column("n").to_pylist():
            if n % 5 == 0:
                raise ValueError(f"{n} is a multiple of five")


@given(st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=20), max_size=4))
def test_just_the_rows_that_fail_are_put_aside_however_batches_are_cut(cut: list[list[int]]):
    task = ArrowTask("doubled", capture(doubled, what="it", shipped=True), bytes(BOTH.serialize()), dead_letters=True)
    batches = (pa.record_batch([pa.array(some), pa.array(some)], names=["key", "n"]) for some in cut)
    found = [row for batch in task(batches) for row in batch.to_pylist()]
    numbers = [n for some in cut for n in some]
    assert [row["n"] for row in found if row[FAILED] is None] == [2 * n for n in numbers if n % 5]
    aside = [row[FAILED] for row in found if row[FAILED] is not None]
    assert [(f["row"]["n"], f["reason"]) for f in aside] == [
        (n, f"ValueError: {n} is a multiple of five") for n in numbers if n % 5 == 0
    ]
    assert all("in doubled" in f["traceback"] for f in aside)


def test_a_batch_of_another_schema_is_put_aside_and_a_lost_connection_is_raised():
    def other(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (batch.rename_columns(["key", "m"]) for batch in batches)

    def away(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise ConnectionError("gone")

    def run(function: Any) -> list[dict[str, Any]]:
        code = capture(function, what="it", shipped=True)
        batch = pa.record_batch([pa.array([1, 2]), pa.array([1, 2])], names=["key", "n"])
        task = ArrowTask("other", code, bytes(BOTH.serialize()), dead_letters=True)
        return [row for made in task(iter([batch])) for row in made.to_pylist()]

    assert [row[FAILED]["row"]["n"] for row in run(other)] == [1, 2]
    with pytest.raises(ConnectionError):
        run(away)
