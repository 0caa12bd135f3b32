"""A view of the runs of a group, compared with a dictionary."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from midstream.state.runs.keys import IntegerKeys
from midstream.state.runs.part import Part
from midstream.state.runs.reader import RunsReader
from midstream.state.runs.values import ByteValues, NumberValues
from midstream.state.stores.contract import FIRST, LAST
from tests.support.run_parts import ENTRIES, Entries, latest, part_of

RUNS = st.lists(ENTRIES, max_size=4)
SUMS = np.dtype([("total", "<i8"), ("n", "<i8")])


def reader(runs: list[Entries]) -> RunsReader:
    return RunsReader([part_of(entries) for entries in runs])


@given(RUNS, ENTRIES)
def test_a_key_has_what_the_newest_run_says_of_it(runs: list[Entries], others: Entries) -> None:
    wanted = latest(runs)
    keys = [*others, *wanted]
    assert reader(runs).get_many(keys) == [wanted.get(key) for key in keys]
    assert [reader(runs).get_many([key])[0] for key in keys] == [wanted.get(key) for key in keys]


@given(RUNS, st.binary(max_size=3), st.binary(max_size=3))
def test_a_scan_has_what_lies_between_its_bounds_in_order(runs: list[Entries], start: bytes, stop: bytes) -> None:
    wanted = [(key, value) for key, value in sorted(latest(runs).items()) if value is not None]
    assert list(reader(runs).scan(FIRST, LAST)) == wanted
    start, stop = b"\1" + start, b"\2" + stop
    assert list(reader(runs).scan(start, stop)) == [entry for entry in wanted if start <= entry[0] < stop]


def test_a_long_scan_reads_run_after_run_piece_by_piece() -> None:
    runs: list[Entries] = [
        {b"\1%05d" % i: b"new" if i % 3 else None for i in range(0, 1_000, 2)},
        {b"\1%05d" % i: b"old" for i in range(700)},
        {b"\1%05d-%s" % (i, b"x" * (i % 5)): b"long" for i in range(300)},
    ]
    wanted = [(key, value) for key, value in sorted(latest(runs).items()) if value is not None]
    assert list(reader(runs).scan(FIRST, LAST)) == wanted
    assert next(reader(runs).scan(b"\1", b"\2")) == wanted[0]


def summed(keys: list[int], totals: list[int], gone: list[int] | None = None) -> Part:
    flags = np.array(gone, np.uint8) if gone is not None else None
    return Part(IntegerKeys(b"\1\1", np.array(keys)), NumberValues(SUMS, (np.array(totals), np.array(totals)), flags))


def test_numbers_are_looked_up_as_columns() -> None:
    key = IntegerKeys(b"\1\1", np.array([1, 2, 3, 4, 5])).matrix()
    as_bytes = np.array([(50, 5)], SUMS).tobytes()
    runs = [
        summed([2], [20]),
        summed([1, 2, 3], [1, 2, 3], gone=[0, 0, 1]),
        Part(IntegerKeys(b"\1\1", np.array([3, 5])), ByteValues.of([b"hidden", as_bytes])),
    ]
    (totals, counts), known = RunsReader(runs).get_numbers(key, SUMS)
    assert totals.tolist() == [1, 20, 0, 0, 50]
    assert counts.tolist() == [1, 20, 0, 0, 5]
    assert known.tolist() == [True, True, False, False, True]
