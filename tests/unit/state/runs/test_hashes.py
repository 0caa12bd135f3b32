"""Hashes of byte strings, compared with a definition of one string at a time."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from midstream.state.runs.hashes import flat, hashes_of

BITS = (1 << 64) - 1


def defined(key: bytes) -> int:
    """Take a key in word by word."""
    found = len(key) * 0x9FB21C651E98DF25 & BITS
    for at in range(0, len(key), 8):
        mixed = (found ^ int.from_bytes(key[at : at + 8], "little")) * 0x9FB21C651E98DF25 & BITS
        found = mixed ^ (mixed >> 32)
    found = (found ^ (found >> 29)) * 0xBF58476D1CE4E5B9 & BITS
    return found ^ (found >> 32)


@given(st.lists(st.binary(max_size=40)), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_a_hash_depends_on_the_key_alone(keys: list[bytes], type: pa.DataType) -> None:
    assert hashes_of(pa.array(keys, type)).tolist() == [defined(key) for key in keys]


@given(st.lists(st.binary(max_size=20), min_size=3))
def test_a_slice_has_the_hashes_of_its_own_keys(keys: list[bytes]) -> None:
    assert hashes_of(pa.array(keys)[1:-1]).tolist() == [defined(key) for key in keys[1:-1]]


def test_keys_that_look_alike_have_different_hashes_that_use_all_bits() -> None:
    keys = [b"user-%d" % i for i in range(200_000)] + [bytes(n) for n in range(100)]
    hashes = hashes_of(pa.array(keys)).tolist()
    assert len(set(hashes)) == len(keys)
    for shift in (0, 24, 56):
        counts = Counter(each >> shift & 0xFF for each in hashes)
        assert max(counts.values()) < 1.3 * len(keys) / 256
        assert min(counts.values()) > 0.7 * len(keys) / 256


def test_the_bytes_of_a_slice_are_those_between_its_offsets() -> None:
    offsets, content = flat(pa.array([b"ab", b"", b"cde", b"f"])[1:3])
    assert (offsets - offsets[0]).tolist() == [0, 0, 3]
    assert content.tobytes() == b"cde"
