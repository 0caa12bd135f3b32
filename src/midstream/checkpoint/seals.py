"""Small files with a checksum in them: records of a checkpoint, of a savepoint and of a spool.

One that is damaged is refused and never acted on.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from midstream.checkpoint.checksum import checksum

T = TypeVar("T")


class BrokenSealError(Exception):
    """Content that is not what was written."""


class _Sealed(msgspec.Struct, frozen=True):
    checksum: str
    record: msgspec.Raw


def seal(value: Any) -> bytes:
    """Write a value as JSON so that damage to it is noticed.

    >>> seal({"epoch": 7})
    b'{"checksum":"44587f7acdf62b8a","record":{"epoch":7}}'
    """
    return with_seal(msgspec.json.encode(value))


def with_seal(text: bytes) -> bytes:
    """Put a checksum around what is JSON already."""
    return b'{"checksum":"%016x","record":%b}' % (checksum(text), text)


def unseal(content: bytes, type: type[T]) -> T:
    """Read a value that was sealed.

    >>> unseal(seal({"epoch": 7}), dict[str, int])
    {'epoch': 7}

    Raises:
        BrokenSealError: it is damaged.
    """
    try:
        return msgspec.json.decode(opened(content), type=type)
    except msgspec.MsgspecError as error:
        raise BrokenSealError(str(error)) from None


def opened(content: bytes) -> bytes:
    """Return what was sealed, as JSON; raise `BrokenSealError` if it is damaged."""
    try:
        found = msgspec.json.decode(content, type=_Sealed)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BrokenSealError(str(error)) from None
    if found.checksum != f"{checksum(found.record):016x}":
        raise BrokenSealError("its checksum does not match")
    return bytes(found.record)


def format_of(content: bytes, unsaid: int | None = None) -> Any:
    """Return the format that a file says it has, sealed or, in older ones, not; `None` if it cannot be read.

    Args:
        content: of the file.
        unsaid: the format of a file that is not sealed and says nothing.

    >>> format_of(seal({"format": 4})), format_of(b'{"format": 3}'), format_of(b"{")
    (4, 3, None)
    """
    try:
        known = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if "record" not in known:
        return known.get("format", unsaid)
    return known["record"].get("format") if isinstance(known["record"], dict) else None
