"""Garbage collection in a worker: Python rarely looks for cycles, of which the tasks of a job make hardly any.

PySpark's worker scans every object after each task. The modules that a worker has imported have some hundred thousand,
which took 70 ms a task; they live as long as the process, so they are frozen.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_ALLOCATIONS = 200_000  # of objects, before Python looks for garbage
_known = 0  # modules that this process had when its objects were frozen


@contextmanager
def seldom_looked_for() -> Iterator[None]:
    """Make Python collect less often, and never scan again what exists once modules have been imported."""
    global _known
    before = gc.get_threshold()
    gc.set_threshold(_ALLOCATIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if _known != len(sys.modules):
            _known = len(sys.modules)
            gc.freeze()
