"""Checksums of what is stored, by XXH3: they cost next to nothing beside reading or writing the bytes."""

from __future__ import annotations

from typing import Any

import xxhash

_BITS = (1 << 63) - 1  # what is left is a positive number everywhere, in SQL too
_BLOCK = 1 << 16  # stays in the cache of the processor

Hasher = xxhash.xxh3_64


def digest(hasher: xxhash.xxh3_64) -> int:
    """Give the checksum of all that a hasher has been given."""
    return hasher.intdigest() & _BITS


def checksum(data: Any) -> int:
    """Give the checksum of bytes, or of a buffer.

    >>> checksum(b"state") == checksum(memoryview(b"state")) != checksum(b"stale")
    True
    """
    return xxhash.xxh3_64_intdigest(data) & _BITS


def checksum_of(path: str) -> tuple[int, int]:
    """Give checksum and size of a file."""
    hasher, size, block = Hasher(), 0, memoryview(bytearray(_BLOCK))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(block):
            hasher.update(block[:count])
            size += count
    return digest(hasher), size
