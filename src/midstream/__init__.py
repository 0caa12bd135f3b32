"""Midstream changes a running stateful streaming job on Spark without stopping it.

The public names are those of `midstream.api`, loaded at their first use: Spark and Arrow take most of a second to
import, and neither `midstream ingest` nor a worker of Spark needs all of it.
"""

import importlib
import importlib.util
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from midstream.api import *  # noqa: F403

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if importlib.util.find_spec(f"midstream.{name}") is not None:
        return importlib.import_module(f"midstream.{name}")
    return getattr(importlib.import_module("midstream.api"), name)


def __dir__() -> Iterable[str]:  # `list` is one of the public names
    return sorted({*importlib.import_module("midstream.api").__all__, "__version__"})
