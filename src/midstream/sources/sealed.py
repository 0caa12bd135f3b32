"""Small files of a spool: a line of JSON, and a line with its checksum."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from midstream.state.checksum import checksum

T = TypeVar("T")


class BrokenSealError(Exception):
    """Content that is not what was written."""


def seal(value: Any) -> bytes:
    """Write a value so that damage to it is noticed.

    >>> print(seal({"p": 4}).decode(), end="")
    {"p":4}
    "6be925a3cf0ee364"
    """
    content: bytes = msgspec.json.encode(value)
    return content + b'\n"%016x"\n' % checksum(content)


def unseal(content: bytes, type: type[T]) -> T:
    """Read a value that was sealed; `BrokenSealError` if it is damaged.

    >>> unseal(seal({"p": 4}), dict[str, int])
    {'p': 4}
    """
    value, _, mark = content.partition(b"\n")
    if mark != b'"%016x"\n' % checksum(value):
        raise BrokenSealError("its checksum is not that of its content")
    try:
        return msgspec.json.decode(value, type=type)
    except msgspec.MsgspecError as error:
        raise BrokenSealError(str(error)) from None
