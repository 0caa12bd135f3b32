"""Garbage collection in a worker: Python looks seldom for cycles, of which the tasks of a job make hardly any.

PySpark's worker looks through every object after each task. The modules that a worker has imported are some hundred
thousand of them, which took 70 ms a task; they stay as long as the process, so they are put aside.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_ALLOCATIONS = 200_000  # of objects, before Python looks for garbage
_known = 0  # modules that this process had when its objects were put aside


@contextmanager
def seldom_looked_for() -> Iterator[None]:
    """Let Python look less often meanwhile, and never again at what there is once modules have been imported."""
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
