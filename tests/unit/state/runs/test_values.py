"""Columns of values: numbers, bytes, and what is deleted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from midstream.state.runs.values import ByteValues, NumberValues, joined

SUMS = np.dtype([("total", "<f8"), ("n", "<i8")])


def numbers(*records: tuple[float, int]) -> NumberValues:
    return NumberValues.of_rows(SUMS, np.array(list(records), SUMS).view(np.uint8).reshape(len(records), -1))


def test_a_record_of_numbers_is_its_bytes_in_a_row() -> None:
    values = numbers((1.5, 2), (-0.5, 3))
    assert [column.tolist() for column in values.columns] == [[1.5, -0.5], [2, 3]]
    assert values.to_list() == [np.array(record, SUMS).tobytes() for record in ((1.5, 2), (-0.5, 3))]
    assert np.frombuffer(b"".join(values.take(np.array([1, 0])).to_list()), SUMS)["n"].tolist() == [3, 2]  # type: ignore[arg-type]


def test_a_deleted_key_has_no_value() -> None:
    values = ByteValues.of([b"a", None, b""])
    assert values.to_list() == [b"a", None, b""]
    assert values.take(np.array([1, 0])).to_list() == [None, b"a"]
    assert ByteValues.of([b"a"]).gone is None


def test_the_same_numbers_stay_numbers_and_others_become_bytes() -> None:
    one, other = numbers((1.5, 2)), numbers((2.5, 4), (0.0, 1))
    both = joined([one, other])
    assert isinstance(both, NumberValues)
    assert both.columns[1].tolist() == [2, 4, 1]
    mixed = joined([one, ByteValues.of([None, b"x"])])
    assert isinstance(mixed, ByteValues)
    assert mixed.to_list() == [*one.to_list(), None, b"x"]


def test_numbers_that_are_deleted_stay_so_beside_others() -> None:
    gone = NumberValues(SUMS, (np.zeros(2), np.zeros(2, np.int64)), np.array([0, 1], np.uint8))
    assert joined([numbers((1.0, 1)), gone]).to_list() == [*numbers((1.0, 1), (0.0, 0)).to_list(), None]


def test_bytes_of_both_sizes_of_arrow_are_joined() -> None:
    large = ByteValues(pa.array([b"a"], pa.large_binary()))
    assert joined([ByteValues.of([b"b"]), large]).to_list() == [b"b", b"a"]
