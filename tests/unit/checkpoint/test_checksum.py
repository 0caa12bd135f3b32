"""Checksums: those of XXH3, of bytes, files and copies alike, and any changed bit is seen."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.checkpoint.checksum import (
    _BLOCK,
    Hasher,
    checked_content,
    checksum,
    checksum_of,
    copied,
    digest,
    named_by_content,
)

POSITIVE = (1 << 63) - 1


# published by the authors of XXH3, for 64 bits and the seed 0; the highest bit is left away here
@pytest.mark.parametrize(("data", "known"), [(b"", 0x2D06800538D394C2), (b"a", 0xE6C632B61E964E1F)])
def test_it_is_that_of_xxh3_and_positive_everywhere(data: bytes, known: int):
    assert checksum(data) == known & POSITIVE


@given(st.binary(max_size=300), st.data())
def test_one_bit_makes_another_checksum(data: bytes, draw: st.DataObject):
    assert 0 <= checksum(data) <= POSITIVE
    if data:
        bit = draw.draw(st.integers(0, 8 * len(data) - 1))
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        assert checksum(changed) != checksum(data)
    assert checksum(data + b"\0") != checksum(data)


@given(st.lists(st.binary(max_size=20)))
def test_what_comes_in_parts_has_the_checksum_of_the_whole(parts: list[bytes]):
    hasher = Hasher()
    for part in parts:
        hasher.update(part)
    assert digest(hasher) == checksum(b"".join(parts))


@pytest.mark.parametrize("size", [0, 1, _BLOCK - 1, _BLOCK, _BLOCK + 1, 3 * _BLOCK + 7])
def test_a_file_and_its_copy_have_the_checksum_and_size_of_their_content(tmp_path: Path, size: int):
    content = bytes(i * 7 % 251 for i in range(1000)) * (size // 1000 + 1)
    content = content[:size]
    (tmp_path / "file").write_bytes(content)
    (tmp_path / "copy").write_bytes(b"what was there before, and longer" * (size // 20 + 1))
    expected = (checksum(content), size)
    assert checksum_of(str(tmp_path / "file")) == expected
    assert copied(str(tmp_path / "file"), str(tmp_path / "copy")) == expected
    assert (tmp_path / "copy").read_bytes() == content


def test_a_file_that_is_not_there_is_said(tmp_path: Path):
    for read in (checksum_of, lambda path: copied(path, str(tmp_path / "copy"))):
        with pytest.raises(FileNotFoundError):
            read(str(tmp_path / "gone"))


def test_a_name_says_what_is_in_the_file():
    content = pa.py_buffer(b"rows")
    name = named_by_content("log/0001-27f29667817b", content)
    assert name == f"log/0001-27f29667817b-{checksum(b'rows'):016x}.arrow"
    assert checked_content(name, content) is content
    for other in (b"", b"rowt", b"rows "):
        with pytest.raises(pa.ArrowInvalid, match="its checksum does not match"):
            checked_content(name, pa.py_buffer(other))
