"""Numbers at a constant rate: each once, in the epoch of its time, however epochs are cut."""

from __future__ import annotations

import time
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from midstream.bench.steady import Numbers, SteadyReader, SteadySource


def numbers(reader: SteadyReader, start: int, end: int) -> list[int]:
    parts = reader.partitions({"milliseconds": start}, {"milliseconds": end})
    return [n for part in parts for batch in reader.read(part) for n in batch.column("value").to_pylist()]


@given(st.sampled_from([1, 3, 999, 2_000]), st.lists(st.integers(0, 3_000), max_size=5))
def test_every_number_comes_once_and_in_order(rate: int, cuts: list[int]):
    reader, edges = SteadyReader(rate, 0.0), [0, *sorted(cuts), 3_000]
    found = [n for start, end in pairwise(edges) for n in numbers(reader, start, end)]
    assert found == list(range(3 * rate))


@given(st.integers(1, 5_000), st.integers(0, 500), st.integers(0, 500))
def test_an_epoch_is_shared_among_tasks_that_are_never_empty(rate: int, start: int, length: int):
    parts = SteadyReader(rate, 0.0).partitions({"milliseconds": start}, {"milliseconds": start + length})
    assert len(parts) <= 2
    assert all(part.first < part.end for part in parts)


def test_the_offset_is_the_time_since_the_first_row_and_never_goes_back():
    reader = SteadyReader(1_000, time.time() - 5)
    assert reader.initialOffset() == {"milliseconds": 0}
    assert 5_000 <= reader.latestOffset({"milliseconds": 0}, None)["milliseconds"] < 65_000
    assert reader.latestOffset({"milliseconds": 10**12}, None) == {"milliseconds": 10**12}, "the clock was set back"


def test_what_is_read_again_is_the_same():
    reader = SteadyReader(700, 0.0)
    assert numbers(reader, 10, 35) == numbers(reader, 10, 35) == list(range(7, 24))


def test_the_source_makes_a_reader_of_its_options():
    source = SteadySource({"rate": "2000", "since": "0.5"})
    assert (source.name(), source.schema()) == ("midstream-steady", "value long")
    (one, other) = source.streamReader(None).partitions({"milliseconds": 0}, {"milliseconds": 2})  # type: ignore[arg-type]
    assert isinstance(one, Numbers)
    assert [(one.first, one.end), (other.first, other.end)] == [(0, 2), (2, 4)]
