"""State of a group that is not of one key: what keys share, what all groups are told, and what may be written when."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import midstream as ms
from midstream.errors import SchemaError, StateError
from midstream.operators.functions.declare import state_fields
from midstream.operators.functions.task import BroadcastForm, FunctionTask
from midstream.operators.task import Epoch, Work
from midstream.plan.code import capture
from midstream.plan.plan import StateField
from midstream.plan.routing import Routing
from midstream.state.entries import SHARED, Stage
from midstream.state.history import Head
from midstream.state.shared import PortableShared, SharedForms, SharedState
from midstream.state.stores.contract import FIRST, LAST, Version
from midstream.state.stores.memory import MemoryStore
from tests.support.edits import Edits
from tests.support.window_slot import GROUPS, Stores

VERSION = Version("job", 1, "c")
MOMENT = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
FIELDS = tuple(
    StateField(name=f"{scope}_{kind}", kind=kind, type=type, key_type=key_type, scope=scope)
    for scope in ("group", "broadcast")
    for kind, type, key_type in (("value", "timestamp", ""), ("list", "bigint", ""), ("map", "double", "string"))
)
_ARROW = {
    "timestamp": pa.timestamp("us", tz="UTC"),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
}


def stage(*fields: StateField) -> Stage:
    types = [(f.name, _ARROW[f.type]) for f in fields] + [
        (f"{f.name} key", _ARROW[f.key_type]) for f in fields if f.key_type
    ]
    return Stage(fields, bytes(pa.schema(types).serialize()), SHARED, None)


FORMS = SharedForms("sums", stage(*FIELDS))


READERS = ExitStack()  # that stay open


def opened(store: MemoryStore, *, receiving: bool = False, forms: SharedForms = FORMS) -> SharedState:
    state = SharedState(forms, READERS.enter_context(store.reader()), 1_000)
    state.receiving = receiving
    return state


def kept(store: MemoryStore, state: SharedState) -> MemoryStore:
    store.apply([Edits(state.changes())], VERSION)
    return store


def written() -> MemoryStore:
    store = MemoryStore()
    for scope in ("group", "broadcast"):
        state = opened(store, receiving=scope == "broadcast")
        state.write(f"{scope}_value", MOMENT)
        state.read(f"{scope}_list").extend([3, None, 1])
        state.read(f"{scope}_map").update(a=0.5, b=1.5)
        kept(store, state)
    return store


def test_what_is_written_is_there_in_the_next_epoch():
    state = opened(written())
    assert (state.read("group_value"), list(state.read("group_list"))) == (MOMENT, [3, None, 1])
    assert dict(state.read("group_map")) == {"a": 0.5, "b": 1.5}
    assert (state.read("broadcast_value"), state.read("broadcast_list")) == (MOMENT, (3, None, 1))
    assert state.read("broadcast_map") == {"a": 0.5, "b": 1.5}
    assert state.changes() == {}


def test_what_is_taken_back_leaves_no_entry():
    store = written()
    for receiving in (False, True):
        state = opened(store, receiving=receiving)
        for field in FIELDS:
            if (field.scope == "broadcast") == receiving:
                state.write(field.name, None)
        kept(store, state)
    with store.reader() as reader:
        assert list(reader.scan(FIRST, LAST)) == []


def test_broadcast_state_is_written_while_rows_are_received_and_not_else():
    state = opened(written())
    with pytest.raises(StateError, match="'broadcast_value' of operator 'sums' is broadcast"):
        state.write("broadcast_value", MOMENT)
    with pytest.raises(TypeError):
        state.read("broadcast_map")["c"] = 1.0
    with pytest.raises(AttributeError):
        state.read("broadcast_list").append(1)
    receiving = opened(written(), receiving=True)
    for act in (lambda: receiving.read("group_value"), lambda: receiving.write("group_list", [1])):
        with pytest.raises(StateError, match="must do the same in all"):
            act()


def test_state_that_is_declared_otherwise_is_another_and_the_first_is_found_again():
    store = written()
    other = SharedForms("sums", stage(StateField(name="group_value", kind="value", type="bigint", scope="group")))
    state = opened(store, forms=other)
    assert state.read("group_value") is None
    state.write("group_value", 7)
    kept(store, state)
    assert opened(store, forms=other).read("group_value") == 7
    assert opened(store).read("group_value") == MOMENT


def test_shared_state_comes_back_from_tables_as_it_was():
    portable, store = PortableShared(FORMS), written()
    with store.reader() as reader:
        tables, of_another = portable.dump(reader, 0), portable.dump(reader, 3)
        entries = dict(reader.scan(FIRST, LAST))
    assert {name: table.schema for name, table in tables.items()} == portable.schemas()
    loaded: dict[bytes, bytes] = {}
    for name, table in tables.items():
        for batch in table.to_batches():
            for at in range(batch.num_rows):  # each row may be loaded in a task of its own
                loaded.update(portable.load(name, batch.slice(at, 1)))
    assert loaded == entries
    assert tables["group-group_map"].to_pylist() == [
        {"group": 0, "map_key": "a", "value": 0.5},
        {"group": 0, "map_key": "b", "value": 1.5},
    ]
    assert tables["broadcast-broadcast_list"].to_pylist() == [{"value": [3, None, 1]}]
    sizes = {name: table.num_rows for name, table in of_another.items()}
    assert {name for name, size in sizes.items() if size} == {
        f"group-group_{kind}" for kind in ("value", "list", "map")
    }
    with MemoryStore().reader() as reader:
        assert not any(table.num_rows for table in portable.dump(reader, 0).values())


# --- a slot ---


class Numbered(ms.KeyedFunction):
    """Numbers rows within a group, and adds what all were told last."""

    count = ms.value("bigint", default=0, scope="group")
    bonus = ms.value("bigint", default=0, scope="broadcast")

    def on_broadcast(self, rows: list[Any], ctx: ms.Context) -> None:
        self.bonus = rows[-1].bonus

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        for row in rows:
            self.count += 1
            yield key, row.n, self.count + self.bonus


class Speaks(Numbered):
    def on_broadcast(self, rows: list[Any], ctx: ms.Context) -> Any:  # type: ignore[override]
        yield 1, 1, 1


class Waits(Numbered):
    def on_broadcast(self, rows: list[Any], ctx: ms.Context) -> None:
        ctx.set_processing_timer(ctx.now)


class Meddles(Numbered):
    total = ms.value("bigint", default=0)

    def on_broadcast(self, rows: list[Any], ctx: ms.Context) -> None:
        self.total += 1


class Slot:
    """One slot that owns all groups; a key is in the group of its remainder."""

    def __init__(self, function: ms.KeyedFunction) -> None:
        self.function = function
        self.stores = {group: MemoryStore() for group in range(GROUPS)}

    def epoch(self, keyed: Iterable[tuple[int, int]], bonuses: Iterable[int] = ()) -> Counter[Any]:
        told = pa.struct([("bonus", pa.int64()), ("_tie", pa.int64())])
        rows = [(key, n, n, None, key % GROUPS) for key, n in keyed]
        rows += [
            (None, None, None, {"bonus": bonus, "_tie": bonus}, group) for group in range(GROUPS) for bonus in bonuses
        ]
        columns = list(zip(*rows, strict=True)) or [()] * 5
        types = (pa.int64(), pa.int64(), pa.int64(), told)
        arrays = [pa.array(column, type) for column, type in zip(columns, types, strict=False)]
        batch = pa.record_batch(arrays, names=["key", "n", "_tie", "_broadcast"])
        head = Head("job", "numbered", "", "", -1, (None,) * GROUPS, throw_away=True)
        fields = state_fields(self.function)
        of_keys = tuple(field for field in fields if field.scope == "key")
        task = FunctionTask(
            operator="numbered", head=head, epoch=Epoch(0, 0, "", None), directory="", aside="",
            schema=bytes(pa.schema([(name, pa.int64()) for name in ("key", "n", "number")]).serialize()),
            keys=("key",), routing=Routing.even(GROUPS, 1),
            code=capture(self.function, what="the function", shipped=True),
            stages=(Stage(of_keys, stage(*of_keys).types, 0, None),), order_by=(),
            key_schema=bytes(pa.schema([("key", pa.int64())]).serialize()),
            shared=stage(*(field for field in fields if field.scope != "key")), broadcast=BroadcastForm((), None),
        )  # fmt: skip
        work = Work(0, Stores(head, stores=self.stores))
        output = task.work(work, batch, np.array(columns[4], np.int32), frozenset(range(GROUPS)))
        for group, changes in work.log.take().items():
            self.stores[group].apply([Edits(changes)], Version("job", 0, ""))
        assert work.report.rows == len(list(keyed))
        return Counter(tuple(row.values()) for part in output for row in part.to_pylist())


def test_keys_of_a_group_share_state_in_the_order_of_keys_and_hear_what_all_are_told_before_their_rows():
    slot = Slot(Numbered())
    assert slot.epoch([(4, 1), (0, 2), (0, 1), (1, 5)]) == Counter(
        {(0, 1, 1): 1, (0, 2, 2): 1, (4, 1, 3): 1, (1, 5, 1): 1}
    )
    assert slot.epoch([], bonuses=[1]) == Counter()
    assert slot.epoch([(3, 7)]) == Counter({(3, 7, 2): 1})
    assert slot.epoch([(8, 9)], bonuses=[300, 100, 200]) == Counter({(8, 9, 304): 1})  # the order is that of `_tie`
    assert slot.epoch([(1, 6)]) == Counter({(1, 6, 302): 1})


@pytest.mark.parametrize(
    ("function", "error", "complaint"),
    [
        (Speaks, SchemaError, "emits nothing"),
        (Waits, StateError, "a timer is set for a key"),
        (Meddles, StateError, "only while it is being processed"),
    ],
)
def test_what_no_group_can_do_for_all_is_refused(
    function: Callable[[], ms.KeyedFunction], error: type[Exception], complaint: str
):
    with pytest.raises(error, match=complaint):
        Slot(function()).epoch([], bonuses=[1])
