"""Owners of code: the user's counts with its text and is sent along, installed code has a name.

PySpark is known here by the names of its classes only, so that deciding needs no Spark.
"""

from __future__ import annotations

import collections
import copyreg
import functools
import sys
import sysconfig
import types
from typing import Any

import cloudpickle

_INSTALLED = {"midstream", "pyspark", "py4j"}  # wherever they are: Spark's may come from its own directory
_UDFS = {"pyspark.sql.udf", "pyspark.sql.udtf"}  # what holds a function of the user's, and a copy of it in the JVM
# What it computes when it is first used, or keeps for the JVM.
_STALE: dict[str, Any] = {
    "_judf_placeholder": None,
    "_judtf_placeholder": None,
    "_returnType_placeholder": None,
    "transpiled": [],
    "_transpiled_param_names": [],
    "_transpiled_input_categories": [],
    "_positional_only_param_names": frozenset(),
}

# Objects of Python that only carry others: what they hold is examined one by one.
CARRIERS = (
    functools.partial,
    functools.partialmethod,
    functools.cached_property,
    functools._lru_cache_wrapper,
    types.MethodType,
    types.MappingProxyType,
    staticmethod,
    classmethod,
    property,
    collections.deque,
    collections.OrderedDict,
    collections.defaultdict,
)


def is_users(module: types.ModuleType) -> bool:
    """Tell whether the user wrote a module: it is neither of Python, nor installed, nor ours."""
    name = str(vars(module).get("__name__"))
    root = name.split(".")[0]
    if root in _INSTALLED or name in sys.builtin_module_names:
        return False
    if name == "__main__":
        return True
    file = _file_of(module) or _file_of(sys.modules.get(root, module))  # a generated one is where its package is
    return not is_installed(file)


@functools.lru_cache(maxsize=4096)
def is_installed(file: str) -> bool:
    """Tell whether a file is one of Python or of an installed package."""
    places = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    known = "site-packages" in file or "dist-packages" in file or file.startswith("<frozen")
    return known or any(place and file.startswith(place) for place in places)


def _file_of(module: types.ModuleType) -> str:
    known = vars(module)  # asking a lazy module for an attribute would load it
    if getattr(known.get("__spec__"), "origin", "") == "frozen":
        return "<frozen>"
    return known.get("__file__") or next(iter(known.get("__path__") or ()), "")


def is_by_name(thing: Any) -> bool:
    """Tell whether a function or class is installed, and can be imported by its name."""
    name = thing.__qualname__
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    if module is None or is_users(module) or "<" in name:
        return False
    if isinstance(thing, type):
        return True
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is thing


def qualified(thing: Any) -> str:
    """Return the name of an installed function or class; of ours without its file, which may change."""
    module = thing.__module__ or ""
    place = "midstream" if module.split(".")[0] == "midstream" else module
    return f"{place}.{thing.__qualname__}"


def is_of_driver(value: Any) -> bool:
    """Tell whether something of PySpark stands for an object of the driver's JVM: a session, a DataFrame, a column."""
    kind = type(value).__module__ or ""
    if kind.split(".")[0] == "py4j":
        return True
    held = getattr(value, "__dict__", {}).values() if kind.split(".")[0] == "pyspark" and kind not in _UDFS else ()
    return any(type(each).__module__.split(".")[0] == "py4j" for each in held)


def udf_of(function: types.FunctionType) -> Any:
    """Return the object behind a function that `udf` or `pandas_udf` returned, or None."""
    if function.__globals__.get("__name__") not in _UDFS:
        return None
    for cell in function.__closure__ or ():
        if type(cell.cell_contents).__module__ in _UDFS:
            return cell.cell_contents
    return None


def is_udf(value: Any) -> bool:
    """Tell whether something is the object behind a UDF or a UDTF."""
    return type(value).__module__ in _UDFS and hasattr(value, "func")


def reduction(value: Any) -> Any:
    """Return what pickle makes of an object; of a UDF without the copy of its function that the JVM has."""
    if is_udf(value):
        state = vars(value)
        fresh = {name: stale for name, stale in _STALE.items() if name in state}
        return copyreg.__newobj__, (type(value),), {**state, **fresh}  # type: ignore[attr-defined]
    reducer = cloudpickle.Pickler.dispatch_table.get(type(value))
    return reducer(value) if reducer is not None else value.__reduce_ex__(4)
