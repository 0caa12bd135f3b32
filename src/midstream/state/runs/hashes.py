"""Hashes of byte strings of any width, of all of them at once; the same in every process and on every host."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]

_WORD = 8  # bytes that are taken in at a time
_STEP, _END = np.uint64(0x9FB21C651E98DF25), np.uint64(0xBF58476D1CE4E5B9)  # odd, with bits in no pattern
_HALF, _THIRD = np.uint64(32), np.uint64(29)
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(_WORD)], np.uint64)  # keep the first n bytes of a word


def hashes_of(keys: pa.Array) -> Hashes:
    """Return a hash of each of some byte strings.

    Not promised: that different strings have different hashes, nor that nobody finds some that have the same.

    >>> hashes_of(pa.array([b"a", b"b", b"a"])).tolist() == hashes_of(pa.array([b"a", b"b", b"a"])).tolist()
    True

    Args:
        keys: an array of (large) binary without nulls.
    """
    offsets, content = flat(keys)
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    padded = np.concatenate([content, np.zeros(_WORD, np.uint8)])
    words: Any = np.ndarray(len(content) + 1, "<u8", padded, strides=(1,))  # the word that begins at each byte
    found = lengths.astype(np.uint64) * _STEP
    here, at = np.flatnonzero(lengths), 0
    while len(here):
        left = lengths[here] - at
        word = words[starts[here] + at]
        ends = np.flatnonzero(left < _WORD)
        word[ends] &= _MASKS[left[ends]]
        mixed = (found[here] ^ word) * _STEP
        found[here] = mixed ^ (mixed >> _HALF)
        here, at = here[left > _WORD], at + _WORD
    found = (found ^ (found >> _THIRD)) * _END
    return found ^ (found >> _HALF)


def flat(array: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return where the byte strings of an array begin and end, and the bytes from the first to the last of them."""
    width = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    _, places, data = array.buffers()
    if not len(array):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    offsets = np.frombuffer(places, width)[array.offset : array.offset + len(array) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return offsets.astype(np.int64), content[offsets[0] : offsets[-1]]
