"""Names under which stored code refers to Midstream's own: they stay, whatever becomes of files and modules.

A plan in a checkpoint holds pickled code, and that names classes and functions of Midstream. Pickle would name them by
module, so that moving a module would break every checkpoint. It uses these names instead: those of
`import midstream as ms`, and the ones below, of classes that users meet only through what they call. A name that was
ever written stays for good; where it points to may change. This module itself must not move.
"""

from __future__ import annotations

import importlib
import sys
from functools import lru_cache, reduce
from typing import Any

PLACES = {
    "BoundedJoin": "operators.joins.rules",
    "Code": "plan.code",
    "Console": "sinks.console",
    "CountPart": "operators.windows.by_count.rules",
    "CountResult": "operators.windows.by_count.rules",
    "CountWindows": "operators.windows.by_count.rules",
    "Deduplicate": "operators.functions.deduplicate",
    "Delta": "sinks.delta",
    "Files": "sinks.files",
    "ForeachBatch": "sinks.foreach_batch",
    "Leading": "operators.windows.top",
    "ListState": "operators.functions.declare",
    "MapState": "operators.functions.declare",
    "Marked": "operators.windows.by_count.rules",
    "Memory": "sinks.memory",
    "Noop": "sinks.noop",
    "Postgres": "sinks.postgres",
    "Secret": "sinks.contract",
    "SharedState": "operators.functions.declare:SharedDeclaration",
    "SideForm": "operators.joins.common_form",
    "Sink": "sinks.contract",
    "SpooledSink": "sinks.spooled",
    "StateDeclaration": "operators.functions.declare",
    "Top": "operators.windows.top",
    "UnboundedJoin": "operators.joins.rules",
    "ValueState": "operators.functions.declare",
}


def stored_name(thing: Any) -> str | None:
    """Return the lasting name of a class or function of ours, or of a method in one; None: it has none."""
    module, path = getattr(thing, "__module__", None) or "", getattr(thing, "__qualname__", "")
    if module.split(".")[0] != "midstream":
        return None
    owner, *attributes = path.split(".")
    name = _by_place().get((module, owner)) or _public_name(getattr(sys.modules.get(module), owner, None))
    return ".".join([name, *attributes]) if name else None


def named(name: str) -> Any:
    """Return the class or function of a name.

    >>> named("Files").__name__, named("ms.KeyedFunction.process").__qualname__
    ('Files', 'KeyedFunction.process')
    """
    first, *attributes = name.split(".")
    if first == "ms":
        return reduce(getattr, attributes, importlib.import_module("midstream"))
    place, _, attribute = PLACES[first].partition(":")
    return reduce(getattr, [attribute or first, *attributes], importlib.import_module(f"midstream.{place}"))


@lru_cache(maxsize=1)
def _by_place() -> dict[tuple[str, str], str]:
    places = {name: place.partition(":") for name, place in PLACES.items()}
    return {(f"midstream.{module}", attribute or name): name for name, (module, _, attribute) in places.items()}


def _public_name(thing: Any) -> str | None:
    api = importlib.import_module("midstream.api")
    return next((f"ms.{name}" for name in api.__all__ if getattr(api, name) is thing), None)
