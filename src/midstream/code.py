"""User code as a value: its digest, its source text, and a pickled form that executors can load.

Code is pickled by value, so that a function of a module which was edited since is really the new one on the
executors, and so that a journal can bring back a plan whose script is gone. The digest is taken from source text
and captured plain values, not from bytes of the interpreter: a Python upgrade must not look like a change.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import secrets
import sys
import sysconfig
import textwrap
import types
from collections.abc import Iterator
from typing import Any

import cloudpickle
import msgspec

from midstream.errors import PlanError


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of user code, as kept in a plan."""

    digest: str  # equal for code that does the same
    key: str  # of this one object
    name: str
    source: str = ""
    python: str = ""
    pickled: bytes | None = None  # None: it cannot be pickled, and lives only in the process that wrote it


_live: dict[str, Any] = {}  # key -> the object itself, where this process wrote or loaded it


def capture(thing: Any, *, what: str, shipped: bool) -> Code:
    """Turn a function or object into `Code`; `shipped` code must be picklable, other code may stay local."""
    pickled: bytes | None
    try:
        with _modules_by_value(thing):
            pickled = cloudpickle.dumps(thing)
    except Exception as error:
        if shipped:
            raise PlanError(
                f"{what} cannot be sent to the executors: {_reason(error)}. Keep what cannot be pickled (sessions, "
                "connections, locks, open files) out of the function and its closure, and make it inside the function"
            ) from error
        pickled = None
    source = _source_of(thing)
    digest = _digest(thing, source, pickled)
    key = secrets.token_hex(8)
    _live[key] = thing
    return Code(digest=digest, key=key, name=_name_of(thing), source=source, python=_python(), pickled=pickled)


def load(code: Code) -> Any:
    """Give back the object: the live one where this process has it, else unpickled (once per process)."""
    if code.key not in _live:
        if code.pickled is None:
            raise PlanError(
                f"the code of {code.name!r} could not be kept in the checkpoint and is not in this script; "
                "start with a script that defines it"
            )
        try:
            _live[code.key] = cloudpickle.loads(code.pickled)
        except Exception as error:
            raise PlanError(
                f"the code of {code.name!r}, kept by Python {code.python}, cannot be loaded by Python {_python()}: "
                f"{_reason(error)}. Start with the script that defines it and on_drift='apply'"
            ) from error
    return _live[code.key]


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
    try:
        return textwrap.dedent(inspect.getsource(owner))
    except (OSError, TypeError):
        return ""


def _digest(thing: Any, source: str, pickled: bytes | None) -> str:
    sha = hashlib.sha256()
    sha.update(source.encode() if source else pickled or _name_of(thing).encode())
    for name, captured in sorted(_captured(thing)):
        sha.update(f"\0{name}={captured!r}".encode())
    return sha.hexdigest()[:32]


def _captured(thing: Any) -> Iterator[tuple[str, Any]]:
    """Plain values that change what the code does without changing its text: closures, globals, attributes."""
    if inspect.isfunction(thing):
        variables = inspect.getclosurevars(thing)
        found = {**variables.globals, **variables.nonlocals}
        found.update((f"default {i}", v) for i, v in enumerate(thing.__defaults__ or ()))
    elif inspect.isclass(thing) or inspect.isroutine(thing):
        found = {}
    else:
        found = {str(k): v for k, v in getattr(thing, "__dict__", {}).items()}
    for name, captured in found.items():
        if _plain(captured):
            yield name, captured


def _plain(captured: Any) -> bool:
    if isinstance(captured, (tuple, list)):
        return all(map(_plain, captured))
    return captured is None or isinstance(captured, (bool, int, float, str, bytes))


@contextlib.contextmanager
def _modules_by_value(thing: Any) -> Iterator[None]:
    """Pickle the user's own modules by value: an executor may not have them, or may have an older text."""
    modules = [m for m in _modules_of(thing) if _is_users_own(m)]
    registered = []
    for module in modules:
        if module.__name__ not in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.register_pickle_by_value(module)
            registered.append(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def _modules_of(thing: Any) -> list[types.ModuleType]:
    owner = thing if inspect.isroutine(thing) or inspect.isclass(thing) else type(thing)
    owners = list(getattr(owner, "__mro__", (owner,)))
    names = {getattr(each, "__module__", None) for each in owners}
    globals_ = getattr(owner, "__globals__", {})
    names |= {getattr(each, "__module__", None) for each in globals_.values() if inspect.isroutine(each)}
    return [sys.modules[name] for name in names if isinstance(name, str) and name in sys.modules]


def _is_users_own(module: types.ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None or module.__name__ in {"__main__", "builtins"} or module.__name__.split(".")[0] == "midstream":
        return False
    installed = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    return "site-packages" not in file and not any(path and file.startswith(path) for path in installed)
