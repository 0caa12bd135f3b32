"""Work that nobody waits for: one thread of the process does it, in order, also after the task that asked for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

_thread: ThreadPoolExecutor | None = None
_of = 0  # the process that has it: a thread does not outlive a fork


def in_background(action: Callable[..., object], *arguments: Any) -> Future[object]:
    """Do something soon.

    >>> in_background(sum, [1, 2]).result()
    3
    """
    global _thread, _of
    if _thread is None or _of != os.getpid():
        _thread, _of = ThreadPoolExecutor(1, "midstream-background"), os.getpid()
    return _thread.submit(action, *arguments)
