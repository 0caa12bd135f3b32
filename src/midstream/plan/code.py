"""User code as a value: its digest, its source text, and a pickled form that executors can load.

Code is captured once: what runs, on the driver too, is a copy of what was digested then, whatever becomes of its
module. So a journal can restore a plan whose script is gone, and `undo` can restore code whose module was edited since.
"""

from __future__ import annotations

import inspect
import secrets
import sys
import textwrap
import types
from typing import Any

import cloudpickle
import msgspec

from midstream.errors import PlanError
from midstream.plan import code_pickling, code_text
from midstream.plan.code_reach import Reach

_FORMAT = "2:"  # of a digest; those without it, of older checkpoints, say nothing about the same code


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of user code, as kept in a plan."""

    digest: str  # equal for code that does the same
    key: str  # of this one object
    name: str
    source: str = ""
    python: str = ""
    pickled: bytes | None = None  # None: it cannot be pickled, and lives only in the process that wrote it


_here: set[str] = set()  # keys of what this process has captured
_live: dict[str, Any] = {}  # key -> the object, of these; it stays until it is forgotten
_loaded: dict[str, Any] = {}  # key -> the object, of others; the oldest are dropped
_LOADED = 256


def capture(thing: Any, *, what: str, shipped: bool) -> Code:
    """Turn a function or object into `Code`, frozen as it is now.

    Shipped code must be picklable; other code may hold what cannot be pickled, which the frozen copy shares with it.
    """
    reach = Reach(thing)
    if reach.imports:
        raise PlanError(
            f"{what} imports your module {min(reach.imports)!r} inside a function: executors would import "
            "whatever they find, an older text or none. Import it at the top of your file instead"
        )
    pickled: bytes | None
    try:
        pickled = code_pickling.dumps(thing, reach.used)
    except Exception as error:
        if shipped:
            raise PlanError(
                f"{what} cannot be sent to the executors: {_reason(error)}. Keep what cannot be pickled (sessions, "
                "connections, locks, open files) out of the function and its closure, and create it inside the function"
            ) from error
        pickled = None
    code = _code(thing, reach, pickled)
    _here.add(code.key)
    if pickled is None:
        try:
            _live[code.key] = code_pickling.frozen(thing, reach.used)
        except Exception as error:
            raise PlanError(
                f"{what} cannot be copied, so it could change later: {_reason(error)}. Create what its closure or its "
                "object holds inside the function"
            ) from error
    return code


def capture_live(thing: Any) -> Code:
    """Turn an object of the driver, such as a sink, into `Code` that holds the object itself in this process."""
    reach = Reach(thing)
    try:
        pickled = code_pickling.dumps(thing, reach.used)
    except Exception:  # whatever an object's own method raises: it lives in this process only
        pickled = None
    code = _code(thing, reach, pickled)
    _live[code.key] = thing
    return code


def _code(thing: Any, reach: Reach, pickled: bytes | None) -> Code:
    return Code(
        digest=_FORMAT + reach.digest(),
        key=secrets.token_hex(8),
        name=_name_of(thing),
        source=_source_of(thing),
        python=_python(),
        pickled=pickled,
    )


def is_comparable(code: Code) -> bool:
    """Tell whether a digest is of the current format: older ones differ for equal code."""
    return code.digest.startswith(_FORMAT)


def is_same(one: Code, other: Code) -> bool:
    """Tell whether two pieces of code do the same; where one has a digest of an older format, by their text."""
    if is_comparable(one) == is_comparable(other):
        return one.digest == other.digest
    return one.source == other.source != ""


def load(code: Code) -> Any:
    """Return the frozen copy, unpickled once per process, or the object itself where it was captured live."""
    if code.key in _live:
        return _live[code.key]
    if code.key not in _loaded:
        if code.pickled is None:
            raise PlanError(
                f"the code of {code.name!r} could not be kept in the checkpoint and is not in this script; "
                "start with a script that defines it"
            )
        try:
            loaded = cloudpickle.loads(code.pickled)
        except Exception as error:
            raise PlanError(
                f"the code of {code.name!r}, kept by Python {code.python}, cannot be loaded by Python {_python()}: "
                f"{_reason(error)}. Start with the script that defines it and on_drift='apply'"
            ) from error
        if code.key in _here:
            return _live.setdefault(code.key, loaded)
        if len(_loaded) >= _LOADED:
            _loaded.pop(next(iter(_loaded)), None)
        _loaded[code.key] = loaded
    return _loaded[code.key]


def forget(keys: set[str]) -> None:
    """Release objects whose code no plan holds any more."""
    for key in keys:
        _here.discard(key)
        _live.pop(key, None)
        _loaded.pop(key, None)


def _python() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _name_of(thing: Any) -> str:
    owner = thing if inspect.isroutine(thing) or inspect.isclass(thing) else type(thing)
    return f"{getattr(owner, '__module__', '?')}.{getattr(owner, '__qualname__', repr(owner))}"


def _source_of(thing: Any) -> str:
    owner = thing if inspect.isroutine(thing) or inspect.isclass(thing) else type(thing)
    function = owner.__func__ if inspect.ismethod(owner) else owner
    if isinstance(function, types.FunctionType) and not code_text.is_current(function.__code__):
        return ""  # the file was edited since: other lines are there now
    try:
        return textwrap.dedent(inspect.getsource(owner))
    except (OSError, TypeError):
        return ""
