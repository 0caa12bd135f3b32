"""Checksums of what is stored, by XXH3: they cost next to nothing beside reading or writing the bytes."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import xxhash

_BITS = (1 << 63) - 1  # what is left is a positive number everywhere, in SQL too
_BLOCK = 1 << 18  # stays in the cache of the processor

Hasher = xxhash.xxh3_64


def digest(hasher: xxhash.xxh3_64) -> int:
    """Return the checksum of all that a hasher has been given."""
    return hasher.intdigest() & _BITS


def checksum(data: Any) -> int:
    """Return the checksum of bytes, or of a buffer.

    >>> checksum(b"state") == checksum(memoryview(b"state")) != checksum(b"stale")
    True
    """
    return xxhash.xxh3_64_intdigest(data) & _BITS


def named_by_content(stem: str, buffer: pa.Buffer) -> str:
    """Return the name of an Arrow file that ends in the checksum of what is in it."""
    return f"{stem}-{checksum(buffer):016x}.arrow"


def checked_content(path: str, buffer: pa.Buffer) -> pa.Buffer:
    """Return what was read from an Arrow file; raise `pa.ArrowInvalid` if it is not what its name says."""
    if path.rsplit("-", 1)[1].split(".")[0] != f"{checksum(buffer):016x}":
        raise pa.ArrowInvalid("its checksum does not match")
    return buffer


def checksum_of(path: str) -> tuple[int, int]:
    """Return checksum and size of a file."""
    return _read(path, lambda block: None)


def copied(path: str, target: str) -> tuple[int, int]:
    """Copy a file; return checksum and size of what was read, which costs hardly more than the copy."""
    with open(target, "wb", buffering=0) as file:
        return _read(path, lambda block: _write(file, block))


def _read(path: str, use: Callable[[memoryview], None]) -> tuple[int, int]:
    hasher, size, block = Hasher(), 0, memoryview(bytearray(_BLOCK))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(block):
            hasher.update(block[:count])
            use(block[:count])
            size += count
    return digest(hasher), size


def _write(file: io.FileIO, block: memoryview) -> None:
    while block:
        block = block[file.write(block) :]
