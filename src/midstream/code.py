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
from typing import Any, TypeGuard

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


_live: dict[str, Any] = {}  # key -> the object itself, where this process wrote it
_loaded: dict[str, Any] = {}  # key -> the object, unpickled; the oldest go
_LOADED = 256


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
        if len(_loaded) >= _LOADED:
            _loaded.pop(next(iter(_loaded)), None)
        _loaded[code.key] = loaded
    return _loaded[code.key]


def forget(keys: set[str]) -> None:
    """Let go of objects whose code no plan holds any more."""
    for key in keys:
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
    try:
        return textwrap.dedent(inspect.getsource(owner))
    except (OSError, TypeError):
        return ""


def _digest(thing: Any, source: str, pickled: bytes | None) -> str:
    if _is_ours(thing):
        source = _name_of(thing)  # a newer Midstream must not look like a change; what sets it apart is in attributes
    return _digests({}, thing, source.encode() if source else pickled or _name_of(thing).encode())


def _digests(known: dict[int, str], thing: Any, text: bytes) -> str:
    """The digest of a thing and of what it uses; `known` has those worked out, or begun, already."""
    if id(thing) not in known:
        known[id(thing)] = ""
        sha = hashlib.sha256(text)
        for name, captured in sorted(_captured(known, thing)):
            sha.update(f"\0{name}={captured}".encode())
        known[id(thing)] = sha.hexdigest()[:32]
    return known[id(thing)]


def _captured(known: dict[int, str], thing: Any) -> Iterator[tuple[str, str]]:
    """What changes the meaning of code without changing its text: closures, globals, attributes, other code it uses."""
    found: list[tuple[str, Any]] = []
    if not inspect.isroutine(thing):
        found += [] if inspect.isclass(thing) else getattr(thing, "__dict__", {}).items()
        found += [("base", base) for base in _class_of(thing).__bases__]
    for function in _functions_of(thing):
        found += _used_by(function)
        found += [(f"default {i}", value) for i, value in enumerate(function.__defaults__ or ())]
    for name, captured in found:
        if _plain(captured):
            yield str(name), repr(captured)
        elif (inspect.isfunction(captured) or inspect.isclass(captured)) and _is_users(_module_of(captured)):
            yield str(name), _digests(known, captured, _source_of(captured).encode())


def _functions_of(thing: Any) -> list[types.FunctionType]:
    """The function itself, or the methods of a class that the user wrote."""
    if inspect.isfunction(thing) or inspect.ismethod(thing):
        return [inspect.unwrap(thing.__func__ if inspect.ismethod(thing) else thing)]
    members = vars(_class_of(thing)).values() if _is_users(_module_of(_class_of(thing))) else ()
    plain = [getattr(member, "__func__", getattr(member, "fget", member)) for member in members]
    return [function for function in plain if inspect.isfunction(function)]


def _class_of(thing: Any) -> type:
    return thing if inspect.isclass(thing) else type(thing)


def _used_by(function: types.FunctionType) -> list[tuple[str, Any]]:
    """The names from outside that a function uses, with what they stand for."""
    try:
        variables = inspect.getclosurevars(function)
    except ValueError:  # a name that is not bound yet
        return []
    return [*variables.globals.items(), *variables.nonlocals.items()]


def _plain(captured: Any) -> bool:
    if isinstance(captured, (tuple, list)):
        return all(map(_plain, captured))
    if isinstance(captured, dict):
        return all(_plain(key) and _plain(value) for key, value in captured.items())
    return captured is None or isinstance(captured, (bool, int, float, str, bytes))


@contextlib.contextmanager
def _modules_by_value(thing: Any) -> Iterator[None]:
    """Pickle the user's own modules by value: an executor may not have them, or may have an older text."""
    registered = []
    for module in _modules_of(thing):
        if module.__name__ not in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.register_pickle_by_value(module)
            registered.append(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def _modules_of(thing: Any) -> list[types.ModuleType]:
    """The user's modules that hold the code of a function or class, and the code which that uses."""
    found: dict[str, types.ModuleType] = {}
    todo = [thing if inspect.isroutine(thing) or inspect.isclass(thing) else type(thing)]
    seen: set[int] = set()
    while todo:
        each = todo.pop()
        module = _module_of(each)
        if id(each) in seen or not _is_users(module):
            continue
        seen.add(id(each))
        found[module.__name__] = module
        todo += getattr(each, "__bases__", ())
        for function in _functions_of(each):
            todo += [used for _, used in _used_by(function) if inspect.isroutine(used) or inspect.isclass(used)]
    return [module for name, module in found.items() if name != "__main__"]  # that is always pickled by value


def _module_of(thing: Any) -> types.ModuleType | None:
    return sys.modules.get(getattr(thing, "__module__", None) or "")


def _is_ours(thing: Any) -> bool:
    """Whether a thing is an object of a class of Midstream, such as the function of a join."""
    is_object = not inspect.isroutine(thing) and not inspect.isclass(thing)
    return is_object and type(thing).__module__.split(".")[0] == "midstream"


def _is_users(module: types.ModuleType | None) -> TypeGuard[types.ModuleType]:
    """Whether the user wrote a module: it is neither of Python, nor installed, nor ours."""
    if module is None or module.__name__.split(".")[0] in ("midstream", "builtins"):
        return False
    if module.__name__ == "__main__":
        return True
    file = getattr(module, "__file__", None) or ""
    installed = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    return file != "" and "site-packages" not in file and not any(p and file.startswith(p) for p in installed)
