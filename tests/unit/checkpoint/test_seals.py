"""Sealed files: read back as written, or refused; and what they say of their format, whatever else is wrong."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.checkpoint.seals import BrokenSealError, format_of, opened, seal, unseal, with_seal

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=6,
)


class Named(msgspec.Struct):
    name: str
    number: int = 7


@given(VALUES)
def test_a_value_is_read_back_as_it_was_sealed_and_anybody_can_read_it(value: Any):
    assert unseal(seal(value), Any) == value
    assert json.loads(seal(value))["record"] == value
    assert json.loads(opened(seal(value))) == value


@given(st.text(), st.data())
def test_no_bit_of_it_can_change_unnoticed(name: str, draw: st.DataObject):
    content = seal(Named(name))
    bit = draw.draw(st.integers(0, 8 * len(content) - 1))
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BrokenSealError):
        unseal(bytes(changed), Named)


@pytest.mark.parametrize("cut", [0, 1, 12, -2, -1])
def test_what_is_cut_off_is_refused(cut: int):
    with pytest.raises(BrokenSealError):
        unseal(seal(Named("x"))[:cut], Named)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"name":"x"}',
        b'{"checksum":"0","record":{"name":"x"}}',
        b'{"checksum":5,"record":{"name":"x"}}',
        b'{"record":{"name":"x"}}',
    ],
)
def test_what_has_no_seal_or_a_wrong_one_is_refused(content: bytes):
    with pytest.raises(BrokenSealError):
        opened(content)


def test_a_whole_record_of_another_kind_is_refused():
    with pytest.raises(BrokenSealError, match="number"):
        unseal(seal({"name": "x", "number": "y"}), Named)
    assert unseal(seal({"name": "x", "of the future": 1}), Named) == Named("x")


def test_a_seal_is_put_around_the_text_as_it_is():
    text = b'{ "name" : "x",\n "number":1 }'
    assert opened(with_seal(text)) == text
    assert unseal(with_seal(text), Named) == Named("x", 1)


@pytest.mark.parametrize(
    ("content", "format"),
    [
        (seal({"format": 4, "more": 1}), 4),
        (seal({"format": "x"}), "x"),
        (seal({"more": 1}), None),
        (seal([1]), None),
        (b'{"checksum": "damaged", "record": {"format": 9}}', 9),
        (b'{"format": 3}', 3),
        (b'{"other": 3}', "unsaid"),
        (b"{}", "unsaid"),
        (b"{", None),
        (b"[3]", None),
        (b"", None),
        (b"\xff", None),
    ],
)
def test_a_file_says_its_format_also_where_the_rest_cannot_be_read(content: bytes, format: Any):
    assert format_of(content, unsaid=77) == (77 if format == "unsaid" else format)
    assert format_of(content) == (None if format == "unsaid" else format)
