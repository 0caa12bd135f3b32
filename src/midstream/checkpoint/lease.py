"""One driver at a time: who holds a checkpoint, and whether it is still there."""

from __future__ import annotations

import fcntl
import os
import sys
from typing import Any

from midstream.checkpoint import layout
from midstream.checkpoint.storage import Storage
from midstream.errors import CheckpointError


class Lease:
    """Holds a checkpoint for one driver.

    Promised on a local disk: exact, and released when the process dies. Elsewhere Spark's own offset log is what a
    second driver trips over.
    """

    def __init__(self, storage: Storage) -> None:
        self._file: Any = None
        self._storage = storage
        if not storage.is_local:
            return
        os.makedirs(storage.root, exist_ok=True)
        self._file = open(storage.path(layout.LEASE), "a+")  # noqa: SIM115 - held for the life of the job
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read().strip() or "another process"
            self._file.close()
            raise CheckpointError(
                f"the checkpoint {storage.root} is in use by {holder}: one driver at a time. "
                "Stop that job first, or give this one a checkpoint of its own"
            ) from None
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} ({os.path.basename(sys.argv[0]) or 'python'})")
        self._file.flush()

    def release(self) -> None:
        """Release the checkpoint."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def check(self) -> None:
        """Refuse to go on where the checkpoint was deleted or exchanged: what is written there now would be lost.

        On a local disk only; elsewhere nothing holds it.
        """
        if self._file is None:
            return
        path = self._storage.path(layout.LEASE)
        try:
            found = os.stat(path)
        except FileNotFoundError:
            found = None
        if found is None or not os.path.samestat(found, os.fstat(self._file.fileno())):
            raise CheckpointError(
                f"the checkpoint {self._storage.root} was deleted, moved or exchanged while the job ran: {path} is not "
                "the file that it holds. The epoch at hand is not committed; restore the checkpoint and start again"
            )
