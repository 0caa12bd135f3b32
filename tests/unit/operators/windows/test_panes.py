"""Panes of a group against a dictionary: what is read, put together to windows, deleted, and left of ended windows."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from midstream.operators.aggregates.merge import Merger
from midstream.operators.aggregates.task import TAG
from midstream.operators.task import Work
from midstream.operators.windows.panes import Panes, first_pane, pane_starts
from midstream.plan.window_regimes import Regime
from midstream.plan.windows import LONG_AGO, TimeWindow
from midstream.state.history import Head
from midstream.state.keys import KeyCodec
from midstream.state.stores.contract import FIRST, LAST, Version
from midstream.state.stores.memory import MemoryStore
from tests.support.edits import Edits
from tests.support.window_slot import COMPILED, Stores

Model = dict[tuple[int, str], int]  # the start of a pane, user -> the sum of prices
CODEC = KeyCodec(pa.schema([("_pane", pa.int64()), ("user", pa.string())]))
MERGER = Merger(COMPILED)
PANES = st.dictionaries(
    st.tuples(st.integers(-8, 8).map(lambda n: 5 * n), st.sampled_from(["a", "b", "bb"])), st.integers(0, 99)
)


def keys_of(panes: list[tuple[int, str]]) -> list[bytes]:
    columns = [pa.array([start for start, _ in panes], pa.int64()), pa.array([user for _, user in panes], pa.string())]
    return [TAG + key for key in CODEC.encode(columns).to_pylist()]


def columns_of(sums: list[int]) -> dict[str, Any]:
    values = {"count": [1] * len(sums), "sum price": sums, "count price": [1] * len(sums), "max price": sums}
    return {a.name: np.array(values[a.name], a.dtype) for a in MERGER.accumulators}


def stored_in(model: Model) -> Work:
    """A group that holds some panes."""
    store, head = MemoryStore(), Head("job", "sums", "", "", -1, (None,), throw_away=True)
    entries = dict(zip(keys_of(list(model)), MERGER.encode(columns_of(list(model.values()))), strict=True))
    store.apply([Edits(entries)], Version("job", 0, ""))
    return Work(0, Stores(head, stores={0: store}))


def shown(panes: Panes) -> list[tuple[int, str, int]]:
    users = CODEC.decode([key[len(TAG) :] for key in panes.keys])[1].to_pylist() if panes.keys else []
    return list(zip(panes.starts.tolist(), users, panes.columns["sum price"].tolist(), strict=True))


def merged(panes: Panes, begins: list[int], ends: list[int], wanted: list[bytes] | None = None) -> Counter[Any]:
    panes.rank()
    flags = None if wanted is None else np.array([key in wanted for key in panes.keys], bool)
    found = panes.windows(MERGER, np.array(begins), np.array(ends), flags)
    if found is None:
        return Counter()
    keys, numbers, columns = found
    users = CODEC.decode([key[len(TAG) :] for key in keys])[1].to_pylist()
    return Counter(zip(numbers.tolist(), users, columns["sum price"].tolist(), strict=True))


def windows_of(model: Model, begins: list[int], ends: list[int]) -> Counter[Any]:
    found = defaultdict[tuple[int, str], int](int)
    for (start, user), total in model.items():
        for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            if begin <= start < end:
                found[number, user] += total
    return Counter((number, user, total) for (number, user), total in found.items())


@given(PANES, st.sampled_from([LONG_AGO, -15, 0, 12]))
def test_panes_are_read_from_a_moment_on_in_the_order_of_time(model: Model, low: int):
    panes = Panes.stored(stored_in(model), MERGER, 0, low)
    expected = sorted((start, user, total) for (start, user), total in model.items() if start >= low)
    assert sorted(shown(panes)) == expected
    assert panes.starts.tolist() == sorted(panes.starts.tolist())


@given(PANES, PANES)
def test_what_has_changed_replaces_what_was_stored(model: Model, changes: Model):
    touched = sorted(keys_of(list(changes)))
    by_key = dict(zip(keys_of(list(changes)), changes.values(), strict=True))
    panes = Panes.stored(stored_in(model), MERGER, 0, LONG_AGO)
    after = panes.updated(touched, columns_of([by_key[key] for key in touched]))
    assert sorted(shown(after)) == sorted((start, user, total) for (start, user), total in {**model, **changes}.items())
    assert after.keys == sorted(after.keys)


@given(PANES, st.integers(-50, 50))
def test_panes_before_a_moment_are_deleted_and_the_first_after_it_is_still_needed(model: Model, moment: int):
    panes = Panes.stored(stored_in(model), MERGER, 0, LONG_AGO)
    assert sorted(panes.before(moment)) == sorted(keys_of([pane for pane in model if pane[0] < moment]))
    assert panes.first_after(moment) == min((start for start, _ in model if start >= moment), default=None)


@given(PANES, st.lists(st.sampled_from([(-40, -20), (-20, 0), (-10, 10), (-5, 15), (0, 20), (5, 25)]), unique=True))
def test_a_window_is_all_panes_of_a_key_that_start_in_it(model: Model, bounds: list[tuple[int, int]]):
    panes = Panes.stored(stored_in(model), MERGER, 0, LONG_AGO)
    begins, ends = ([bound[i] for bound in sorted(bounds)] for i in (0, 1))
    if bounds:
        assert merged(panes, begins, ends) == windows_of(model, begins, ends)


@given(PANES, st.lists(st.integers(-8, 8), min_size=2, max_size=5, unique=True), st.data())
def test_only_windows_with_a_pane_that_is_wanted_are_put_together(model: Model, firsts: list[int], data: st.DataObject):
    begins = sorted(5 * first for first in firsts)
    ends = [begin + 30 for begin in begins]
    wanted = data.draw(st.lists(st.sampled_from(sorted(model)), unique=True)) if model else []
    panes = Panes.stored(stored_in(model), MERGER, 0, LONG_AGO)
    near = {(n, user) for n, (b, e) in enumerate(zip(begins, ends, strict=True)) for at, user in wanted if b <= at < e}
    every = windows_of(model, begins, ends)
    assert merged(panes, begins, ends, keys_of(wanted)) == Counter({w: n for w, n in every.items() if w[:2] in near})


@given(PANES, st.lists(st.tuples(st.integers(-8, 8).map(lambda n: 5 * n), st.sampled_from(["a", "bb"]))))
def test_the_first_pane_of_a_group_is_a_stored_one_or_one_with_new_rows(model: Model, touched: list[tuple[int, str]]):
    found = first_pane(stored_in(model), 0, sorted(keys_of(touched)))
    assert found == min((start for start, _ in [*model, *touched]), default=None)


def test_the_start_of_a_pane_is_read_from_its_key_whatever_the_length_of_the_key():
    same, others = [(-5, "a"), (0, "b"), (2**62, "c")], [(-(2**62), ""), (7, "long"), (7, "longer")]
    assert pane_starts(keys_of(same)).tolist() == [-5, 0, 2**62]
    assert pane_starts(keys_of(others)).tolist() == [-(2**62), 7, 7]
    assert pane_starts([]).tolist() == []


@given(PANES, st.sampled_from([(10, 10), (10, 5), (20, 5)]), st.data())
def test_windows_that_a_row_has_ended_are_empty_and_all_others_as_they_were(
    model: Model, shape: tuple[int, int], data: st.DataObject
):
    """Of the keys whose windows are ended: each window over the pane of the ending row has nothing afterwards."""
    size, slide = shape
    over = data.draw(st.lists(st.sampled_from(sorted(model)), max_size=3, unique=True)) if model else []
    work = stored_in(model)
    near = Panes.stored(work, MERGER, 0, LONG_AGO).of_same_keys(set(keys_of(over)))
    assert {user for _, user, _ in shown(near)} == {user for _, user in over}
    changes = near.without_windows(set(keys_of(over)), MERGER, [Regime(TimeWindow(size, slide))], LONG_AGO)
    store = work.cache.view(0)
    store.apply([Edits(changes)], Version("job", 1, ""))
    begins = list(range(-60, 60, slide))
    ends = [begin + size for begin in begins]
    ended = {
        (number, user)
        for number, (begin, end) in enumerate(zip(begins, ends, strict=True))
        for start, user in over
        if begin <= start < end
    }
    expected = Counter({w: n for w, n in windows_of(model, begins, ends).items() if w[:2] not in ended})
    assert merged(Panes.stored(work, MERGER, 0, LONG_AGO), begins, ends) == expected
    with store.reader() as reader:
        left = [entry for entry, _ in reader.scan(FIRST, LAST)]
    assert all(entry in left for entry in keys_of([pane for pane in model if pane[1] not in {u for _, u in over}]))
