"""Snapshots of groups in the durable store: verified before they are used, copied to this host, and written."""

from __future__ import annotations

import os
from dataclasses import dataclass

from midstream.checkpoint.checksum import checksum_of, copied
from midstream.checkpoint.layout import snapshot_directory
from midstream.checkpoint.records import SnapshotRef
from midstream.checkpoint.storage import Storage
from midstream.state.stores.contract import GroupStore, Version
from midstream.state.throttle import Throttle


@dataclass(frozen=True, slots=True)
class Snapshots:
    """The snapshots of one operator; those that are in use are named by commit records."""

    storage: Storage
    home: str  # of the operator
    format: str  # of the kind of store that writes and reads them
    throttle: Throttle

    def path(self, reference: SnapshotRef) -> str:
        """Where a snapshot is stored."""
        return self.storage.path(reference.path)

    def verify(self, reference: SnapshotRef) -> None:
        """Read all of a snapshot where it is stored; raises if it is not what was written."""
        with self.throttle.reading() as reading:
            self._check(checksum_of(self.path(reference)), reference)
            reading.bytes += reference.size

    def copy(self, reference: SnapshotRef, path: str) -> None:
        """Copy a snapshot to a local file; raises, and leaves none, if it is not what was written. Safe in a thread."""
        with self.throttle.reading() as reading:
            if self.storage.is_local:
                found = copied(self.path(reference), path)
            else:
                self.storage.download(reference.path, path)
                found = checksum_of(path)
            reading.bytes += reference.size
        try:
            self._check(found, reference)
        except ValueError:
            os.unlink(path)
            raise

    def write(self, group: int, store: GroupStore, version: Version, local: str) -> SnapshotRef:
        """Write a group, as it stands at a version, to the durable store, by way of a local file."""
        store.snapshot(local)
        checksum, size = checksum_of(local)
        path = f"{snapshot_directory(self.home, group)}/{version.epoch:012}-{os.urandom(6).hex()}.{self.format}"
        self.storage.upload(local, path)
        return SnapshotRef(version.epoch, version.commit, path, size, checksum)

    def _check(self, found: tuple[int, int], reference: SnapshotRef) -> None:
        if found != (reference.checksum, reference.size):
            raise ValueError("its checksum does not match")
        if not reference.path.endswith(f".{self.format}"):
            raise ValueError(f"it was written by a store of another format than {self.format!r}")
