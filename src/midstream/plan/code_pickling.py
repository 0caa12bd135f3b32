"""Pickling user code by value: the text that was loaded, with what it reaches, and nothing that an executor imports.

Code of the user's modules is sent whole, functions, classes and those attributes of modules that are used: an
executor may not have the modules, or its workers may have imported an older text. A copy that is loaded is frozen:
it is not an attribute of any module, so Spark too sends it by value, inside UDFs for instance.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
import threading
import types
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import cloudpickle
from cloudpickle import cloudpickle as internals

from midstream.plan import code_text
from midstream.plan.code_owners import CARRIERS, is_by_name, is_of_driver, is_udf, is_users, reduction, udf_of
from midstream.stored_names import named, stored_name

Used = Mapping[int, set[str]]  # id of a module -> the attributes of it that code uses

_PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray, tuple, list, dict, set, frozenset)
_CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.CodeType, types.CellType)
_registering = threading.RLock()  # what cloudpickle sends by value is known to the whole process


def dumps(thing: Any, used: Used) -> bytes:
    """Pickle code by value; raise whatever an object that cannot be pickled raises."""
    file = io.BytesIO()
    with _users_modules_by_value():
        _Pickler(file, used).dump(thing)
    return file.getvalue()


def frozen(thing: Any, used: Used) -> Any:
    """Copy code as it is now; objects that cannot be pickled, such as DataFrames and locks, are shared with it."""
    file = io.BytesIO()
    with _users_modules_by_value():
        pickler = _SharingPickler(file, used)
        pickler.dump(thing)
    return _SharingUnpickler(io.BytesIO(file.getvalue()), pickler.shared).load()


@contextmanager
def _users_modules_by_value() -> Iterator[None]:
    with _registering:
        known = cloudpickle.list_registry_pickle_by_value()
        modules = [m for m in list(sys.modules.values()) if isinstance(m, types.ModuleType) and is_users(m)]
        registered = [m for m in modules if m.__name__ not in known and sys.modules.get(m.__name__) is m]
        for module in registered:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for name in {module.__name__ for module in registered}:
                cloudpickle.unregister_pickle_by_value(sys.modules[name])


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, used: Used) -> None:
        super().__init__(file)
        self._used = used

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.ModuleType) and is_users(obj):
            # Not a module: Spark would send one by its name.
            names = {"__name__", *self._used.get(id(obj), ())}
            return types.SimpleNamespace, (), {name: vars(obj)[name] for name in names if name in vars(obj)}
        if isinstance(obj, types.FunctionType) and (udf := udf_of(obj)) is not None:
            return type(udf)._wrapped, (udf,)
        if isinstance(obj, functools._lru_cache_wrapper) and not is_by_name(obj):
            size = obj.cache_parameters()
            made_of = (obj.__wrapped__, size["maxsize"], size["typed"], functools._CacheInfo)
            return type(obj), made_of, vars(obj)
        if isinstance(obj, functools.cached_property):  # it has a lock
            return type(obj), (obj.func,), {name: value for name, value in vars(obj).items() if name != "lock"}
        if isinstance(
            obj, (weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
        ):  # functools.singledispatch has one
            return type(obj), (dict(obj),)
        if is_udf(obj):
            return reduction(obj)
        if is_of_driver(obj):
            raise pickle.PicklingError(f"a {type(obj).__name__} of Spark lives in the driver only")
        if isinstance(obj, (type, types.FunctionType)) and (name := stored_name(obj)) is not None:
            return named, (name,)
        reduced = super().reducer_override(obj)
        if isinstance(reduced, tuple):
            return _untracked(obj, reduced) if isinstance(obj, type) else _with_all_globals(obj, reduced)
        return reduced


def _untracked(cls: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """A new class: cloudpickle would return, and change, one that it has made from the same class before."""
    known = internals._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(cls)
    made_by, made_of, *rest = reduced
    return made_by, tuple(None if known and part == known else part for part in made_of), *rest


def _with_all_globals(function: types.FunctionType, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """A function with the globals that the bodies of classes inside it use too, which cloudpickle does not see."""
    wanted = {name for name, *_ in code_text.uses(function.__code__).paths} & function.__globals__.keys()
    reduced[2][1]["__globals__"].update({name: function.__globals__[name] for name in sorted(wanted)})
    return reduced


class _SharingPickler(_Pickler):
    """Leaves out what cannot be pickled, and remembers it."""

    def __init__(self, file: io.BytesIO, used: Used) -> None:
        super().__init__(file, used)
        self.shared: list[Any] = []

    def persistent_id(self, obj: Any) -> int | None:
        if type(obj) in _PLAIN or isinstance(obj, (*_CODE, *CARRIERS)) or not self._is_lost(obj):
            return None
        self.shared.append(obj)
        return len(self.shared) - 1

    def _is_lost(self, obj: Any) -> bool:
        """Tell whether an object cannot be pickled: one of a user's class alone, an installed one with its parts."""
        if is_of_driver(obj):
            return True
        try:
            if is_by_name(type(obj)) and not is_udf(obj):
                _Pickler(io.BytesIO(), self._used).dump(obj)
            else:
                reduction(obj)
        except Exception:  # whatever an object's own method raises
            return True
        return False


class _SharingUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: list[Any]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, pid: Any) -> Any:
        return self._shared[pid]
