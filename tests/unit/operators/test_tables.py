"""State as tables, and back: what a savepoint keeps is what was there, under the user's names."""

from __future__ import annotations

import datetime as dt
import io
import math
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream.operators.aggregates import declare as ms
from midstream.operators.aggregates.declare import compile_aggregates
from midstream.operators.aggregates.merge import Merger
from midstream.operators.tables import Portable, PortableAggregate, PortableFunction, PortableWindows
from midstream.plan.plan import StateField
from midstream.state import entries as forms
from midstream.state.entries import Form
from midstream.state.keyed import GroupState
from midstream.state.keys import KeyCodec
from midstream.state.stores.contract import FIRST, LAST, Version
from midstream.state.stores.memory import MemoryStore
from midstream.state.timers import Timer
from midstream.state.values import moment_of
from tests.support.edits import Edits

UTC = dt.timezone.utc
VERSION = Version("job", 1, "c")
POINT = pa.struct([("x", pa.float32()), ("at", pa.timestamp("us", tz="UTC"))])

# name -> kind, Arrow type, Arrow type of a map's key, time to live, values that are written
STATE: dict[str, tuple[str, pa.DataType, pa.DataType | None, int, Any]] = {
    "total": ("value", pa.float64(), None, 0, math.inf),
    "single": ("value", pa.float32(), None, 0, 0.1),
    "price": ("value", pa.decimal128(10, 2), None, 0, Decimal("1.5")),
    "seen_at": ("value", pa.timestamp("us", tz="UTC"), None, 0, dt.datetime(2020, 1, 1, tzinfo=UTC)),
    "local": ("value", pa.timestamp("us"), None, 0, dt.datetime(2020, 1, 1)),
    "day": ("value", pa.date32(), None, 0, dt.date(1969, 1, 1)),
    "raw": ("value", pa.binary(), None, 0, b"\xff\x00"),
    "point": ("value", POINT, None, 0, {"x": 0.5, "at": dt.datetime(2020, 1, 1, tzinfo=UTC)}),
    "brief": ("value", pa.string(), None, 100, "x"),
    "moment": ("value", pa.timestamp("us", tz="UTC"), None, 100, dt.datetime(2021, 1, 1, tzinfo=UTC)),
    "items": ("list", pa.string(), None, 0, ["b", None, "a"]),
    "times": ("list", pa.timestamp("us", tz="UTC"), None, 50, [None, dt.datetime(2022, 1, 1, tzinfo=UTC)]),
    "counts": ("map", pa.int64(), pa.string(), 0, {"b": 1, "": None}),
    "days": ("map", pa.list_(pa.int32()), pa.date32(), 0, {dt.date(2020, 1, 1): [1, None]}),
    "floats": ("map", pa.int64(), pa.float32(), 80, {0.1: 1, -0.0: 2}),
}
FIELDS = tuple(StateField(name=name, kind=kind, type="", ttl=ttl) for name, (kind, _, _, ttl, _) in STATE.items())
TYPES = {name: type for name, (_, type, _, _, _) in STATE.items()}
TYPES |= {f"{name} key": key for name, (_, _, key, _, _) in STATE.items() if key is not None}


def written(keys: pa.Schema, users: list[tuple[Any, ...]], now: int = 1_000) -> MemoryStore:
    """A group where each user has written to some of the state: the first to none but a timer, the last to all."""
    store, form = MemoryStore(), Form("sums", FIELDS, TYPES)
    encoded = KeyCodec(keys).encode(
        [pa.array(column, f.type) for column, f in zip(zip(*users, strict=True), keys, strict=True)]
    )
    with store.reader() as reader:
        state = GroupState(form, reader, now)
        for number, key in enumerate(encoded.to_pylist()):
            state.bind(key)
            state.set(Timer("event_time", moment_of(number)))
            state.set(Timer("processing_time", moment_of(-number)))
            for name, (*_, value) in list(STATE.items())[: number * len(STATE) // max(len(users) - 1, 1)]:
                state.write(name, value)
            state.release()
    store.apply([Edits(state.changes)], VERSION)
    return store


def entries(store: MemoryStore) -> dict[bytes, bytes]:
    with store.reader() as reader:
        return dict(reader.scan(FIRST, LAST))


def through_parquet(portable: Portable, store: MemoryStore) -> tuple[dict[str, pa.Table], dict[bytes, bytes]]:
    """Dump a group to files, and load it again."""
    tables, loaded = {}, {}
    with store.reader() as reader:
        dumped = portable.dump(reader)
    for name, table in dumped.items():
        assert table.schema == portable.schemas()[name]
        file = io.BytesIO()
        pq.write_table(table, file)
        tables[name] = pq.read_table(file)
        for batch in tables[name].to_batches():
            loaded.update(portable.load(name, batch))
    return tables, loaded


def without_notes(found: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return {entry: value for entry, value in found.items() if entry[0] != forms.EXPIRY}


USER = pa.schema([("user", pa.string())])


def function(keys: pa.Schema) -> PortableFunction:
    return PortableFunction(Form("sums", FIELDS, TYPES), keys, pa.schema(list(TYPES.items())))


def test_the_state_of_a_function_comes_back_as_it_was():
    store = written(USER, [(f"user {i}",) for i in range(20)])
    _, loaded = through_parquet(function(USER), store)
    assert without_notes(loaded) == without_notes(entries(store))


def test_what_expires_is_looked_at_when_it_does():
    store = written(USER, [("none",), ("all",)])
    _, loaded = through_parquet(function(USER), store)
    deadlines = {entry[9:]: forms.deadline_of(entry) for entry in loaded if entry[0] == forms.EXPIRY}
    noted = {entry[9:] for entry in entries(store) if entry[0] == forms.EXPIRY}
    assert deadlines.keys() == noted
    assert sorted(set(deadlines.values())) == [1_050, 1_080, 1_100]


def test_tables_have_the_columns_of_the_user():
    tables, _ = through_parquet(function(USER), written(USER, [("ann",), ("bob",)]))
    assert list(tables) == ["record", "list-items", "list-times", "map-counts", "map-days", "map-floats", "timers"]
    record = tables["record"].to_pylist()
    assert [row["user"] for row in record] == ["bob"]
    assert (record[0]["total"], record[0]["price"], record[0]["brief"]) == (math.inf, Decimal("1.50"), "x")
    assert record[0]["brief__expires"] == dt.datetime(1970, 1, 1, 0, 0, 0, 1_100, tzinfo=UTC)
    assert tables["list-items"].select(["user", "position", "value"]).to_pylist() == [
        {"user": "bob", "position": i, "value": value} for i, value in enumerate(["b", None, "a"])
    ]
    assert {row["map_key"]: row["value"] for row in tables["map-counts"].to_pylist()} == {"b": 1, "": None}
    timers = {(row["user"], row["timer"], row["at"]) for row in tables["timers"].to_pylist()}
    assert timers == {
        ("ann", "event_time", moment_of(0)),
        ("ann", "processing_time", moment_of(0)),
        ("bob", "event_time", moment_of(1)),
        ("bob", "processing_time", moment_of(-1)),
    }


@pytest.mark.parametrize("name", ["value", "at", "position", "map_key", "timer", "total", "Value", "brief__expires"])
def test_a_key_may_have_the_name_of_any_other_column(name: str):
    keys = pa.schema([(name, pa.int64()), ("user", pa.string())])
    store = written(keys, [(1, "ann"), (2, "bob"), (None, "cid")])
    tables, loaded = through_parquet(function(keys), store)
    assert without_notes(loaded) == without_notes(entries(store))
    for table in tables.values():
        names = [column.lower() for column in table.column_names]
        assert len(names) == len(set(names))


def test_an_empty_group_is_empty_tables():
    for portable in (function(USER), aggregate()[0]):
        tables, loaded = through_parquet(portable, MemoryStore())
        assert [table.num_rows for table in tables.values()] == [0] * len(tables)
        assert loaded == {}


# --- aggregates -----------------------------------------------------------------------------------------------------


def aggregate() -> tuple[PortableAggregate, Merger]:
    types = {"x": "bigint", "y": "double", "s": "string", "d": "decimal(10,2)", "t": "timestamp"}
    specs = {
        "n": ms.count(),
        "total": ms.sum("x"),
        "average": ms.mean("y"),
        "least": ms.min("s"),
        "money": ms.sum("d"),
        "newest": ms.last("t"),
    }
    named = tuple(msgspec.structs.replace(spec, name=name) for name, spec in specs.items())
    compiled = compile_aggregates("sums", named, types, "t")
    results = [pa.int64(), pa.int64(), pa.float64(), pa.string(), pa.decimal128(38, 2), pa.timestamp("us", tz="UTC")]
    schema = pa.schema(list(zip(specs, results, strict=True)))
    return PortableAggregate(USER, compiled, schema), Merger(compiled)


def test_the_state_of_an_aggregate_comes_back_as_it_was():
    portable, merger = aggregate()
    columns: dict[str, Any] = {
        a.name: np.array([3, 0], a.dtype) if a.dtype != "object" else [None, None] for a in merger.accumulators
    }
    columns["sum y"] = np.array([0.1, math.nan])
    columns["min s"], columns["sum d"] = ["a", None], [Decimal("1.50"), None]
    keys = KeyCodec(USER).encode([pa.array(["ann", None])]).to_pylist()
    pairs = zip(keys, merger.encode(columns), strict=True)
    store = MemoryStore({forms.record_key(key): value for key, value in pairs}, VERSION)
    tables, loaded = through_parquet(portable, store)
    assert loaded == entries(store)
    rows = {row["user"]: row for row in tables["record"].to_pylist()}
    assert {name: rows["ann"][name] for name in ("n", "total", "average", "least", "money", "newest")} == {
        "n": 3,
        "total": 3,
        "average": 0.1 / 3,
        "least": "a",
        "money": Decimal("1.50"),
        "newest": moment_of(3),
    }
    assert [rows[None][name] for name in ("n", "total", "average", "money", "newest")] == [0, None, None, None, None]


def test_the_state_of_an_aggregate_of_fixed_width_comes_back_as_it_was():
    specs = (msgspec.structs.replace(ms.sum("x"), name="total"),)
    compiled = compile_aggregates("sums", specs, {"x": "double"}, None)
    merger, portable = Merger(compiled), PortableAggregate(USER, compiled, pa.schema([("total", pa.float64())]))
    values = merger.encode_fixed({"sum x": np.array([0.1, -0.0, math.inf]), "count x": np.array([1, 2, 0])})
    keys = KeyCodec(USER).encode([pa.array(["a", "b", "c"])]).to_pylist()
    pairs = zip(keys, [value.tobytes() for value in values], strict=True)
    store = MemoryStore({forms.record_key(key): value for key, value in pairs}, VERSION)
    tables, loaded = through_parquet(portable, store)
    assert loaded == entries(store)
    assert tables["record"].column("total").to_pylist() == [0.1, 0.0, None]


@pytest.mark.parametrize("name", ["n", "_after", "_UNTIL", "_Count"])
def test_panes_and_their_parts_come_back_whatever_results_are_called(name: str):
    specs = (msgspec.structs.replace(ms.count(), name=name),)
    compiled = compile_aggregates("counts", specs, {"user": "string"}, "ts")
    panes = pa.schema([("_pane", pa.int64()), *USER])
    portable = PortableWindows(panes, compiled, pa.schema([(name, pa.int64())]))
    one, other = KeyCodec(panes).encode([pa.array([-5, 7]), pa.array(["ann", None])]).to_pylist()
    two, three = Merger(compiled).encode({"count": np.array([2, 3])})
    store = MemoryStore(
        {
            forms.record_key(one): two,
            forms.part_entry(one, -8, 9): three,
            forms.part_entry(other, 3, 1 << 62): two,
        },
        VERSION,
    )
    tables, loaded = through_parquet(portable, store)
    assert loaded == entries(store)
    assert tables["parts"].select(["_pane", "user", name]).to_pylist() == [
        {"_pane": -5, "user": "ann", name: 3},
        {"_pane": 7, "user": None, name: 2},
    ]
    for table in tables.values():
        names = [column.lower() for column in table.column_names]
        assert len(names) == len(set(names))
