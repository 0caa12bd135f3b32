"""The journal: reads and writes identity, plans, intents and commit records of a checkpoint.

The commit record is the only truth: what is durable is exactly what the newest record and its ancestors name. Every
record is sealed with a checksum, so that one which was damaged is refused and never acted on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from midstream.checkpoint import layout
from midstream.checkpoint.offsets import Feed, offsets_of
from midstream.checkpoint.records import FORMAT, Commit, Identity, Intent, Phase, Record
from midstream.checkpoint.seals import BrokenSealError, format_of, opened, seal, unseal, with_seal
from midstream.checkpoint.storage import Storage
from midstream.errors import CheckpointError
from midstream.plan import text as planfile
from midstream.plan.plan import Plan

T = TypeVar("T")
_WHAT_TO_DO = "restore it from a copy of the checkpoint, or start from a savepoint"


class Journal:
    """Reads and writes the records of one checkpoint.

    `create` writes a file that nobody may have written before; without, the lease sees to that.
    """

    def __init__(self, storage: Storage, create: Callable[[str, bytes], None] | None = None) -> None:
        self.storage = storage
        self._create = create or storage.write

    def identity(self) -> Identity | None:
        """Read what the checkpoint is, `None` if it is new; refuse one of an unknown format."""
        if not self.storage.exists(layout.IDENTITY):
            if self.storage.exists(layout.RESTORING):
                return None
            if self.storage.list(layout.COMMITS) or self.storage.list(layout.SPARK):
                raise CheckpointError(
                    f"{self.storage.root} has files of a job but no {layout.IDENTITY}: it is damaged, or it is a plain "
                    "Spark checkpoint. Give the job an empty directory, or restore the file from a copy"
                )
            return None
        text, where = self.storage.read(layout.IDENTITY), self.storage.path(layout.IDENTITY)
        found = format_of(text)
        if found not in (None, FORMAT):
            raise CheckpointError(
                f"the checkpoint {self.storage.root} has format {found}, this Midstream reads format {FORMAT}. "
                "Write a savepoint with the version that made it, and start from that"
            )
        return _unsealed(text, Identity, where)

    def create(self, job: str, groups: int, store: str) -> Identity:
        """Make a new checkpoint."""
        identity = Identity(format=FORMAT, job=job, groups=groups, store=store)
        self._create(layout.IDENTITY, seal(identity))
        return identity

    def is_half_restored(self) -> bool:
        """Whether a start from a savepoint has ended before the checkpoint was whole."""
        return self.storage.exists(layout.RESTORING) and not self.storage.exists(layout.IDENTITY)

    def begin_restoring(self) -> None:
        """Write down that what follows counts only once the identity is written; delete what an earlier try left."""
        if self.is_half_restored():
            for leftover in (layout.COMMITS, layout.SPARK, layout.PLANS, layout.JOURNAL, layout.STATE, layout.SPOOL):
                self.storage.delete(leftover)
        self.storage.write(layout.RESTORING, b"{}")

    def write_plan(self, plan: Plan) -> None:
        """Keep a plan version."""
        self.storage.write(layout.plan_file(plan.version), with_seal(planfile.encode(plan)))

    def feeds(self) -> tuple[Feed, ...]:
        """Read the sources of the query under the job, in Spark's order; none before the first start."""
        return self._read(layout.FEEDS, tuple[Feed, ...]) if self.storage.exists(layout.FEEDS) else ()

    def write_feeds(self, feeds: tuple[Feed, ...]) -> None:
        """Write down the sources of the query, before it is started."""
        self.storage.write(layout.FEEDS, seal(feeds))

    def forgotten(self) -> dict[str, int]:
        """Return the operators whose state goes with the next epoch, each with the epoch that it was born in."""
        return self._read(layout.FORGOTTEN, dict[str, int]) if self.storage.exists(layout.FORGOTTEN) else {}

    def write_forgotten(self, forgotten: dict[str, int]) -> None:
        """Write down whose state goes with the next epoch: a crash before that must not bring it back."""
        self.storage.write(layout.FORGOTTEN, seal(forgotten))

    def fit_offsets(self, fit: Callable[[str, str], str]) -> int:
        """Rewrite what Spark reads of its offset log at a start: the newest two entries. Gives the newest epoch.

        Spark on a local disk keeps a checksum beside each entry, and reads one that has none. Where there is no entry
        yet, but a part of one, from a driver that was killed as it wrote it, Spark would refuse to start: that is
        deleted.
        """
        known = sorted(int(name) for name in self.storage.list(f"{layout.SPARK}/offsets") if name.isdigit())
        if not known:
            self.storage.delete(f"{layout.SPARK}/offsets")
        for epoch in known[-2:]:
            path = f"{layout.SPARK}/offsets/{epoch}"
            before = self.storage.read(path).decode()
            after = fit(before, self.storage.path(path))
            if after != before:
                self.storage.delete(f"{layout.SPARK}/offsets/.{epoch}.crc")
                self.storage.write(path, after.encode())
        return known[-1] if known else -1

    def published(self) -> str:
        """Return the id of the newest commit that all sinks have published, as far as that is known."""
        try:
            return self._read(layout.PUBLISHED, str) if self.storage.exists(layout.PUBLISHED) else ""
        except CheckpointError:  # a note that is cut off says nothing; the epoch is published again
            return ""

    def write_published(self, commit: str) -> None:
        """Write down that all sinks have published a commit."""
        self.storage.write(layout.PUBLISHED, seal(commit))

    def versions(self) -> list[int]:
        """List the plan versions that are kept, in order."""
        return [int(name[1:-5]) for name in self.storage.list(layout.PLANS) if name.endswith(".json")]

    def next_version(self) -> int:
        """Return a number that no plan has had, and none of a modification that came to nothing."""
        return max([0, *self.versions(), *(record.version for record in self.modifications())]) + 1

    def running_plan(self) -> Plan | None:
        """Read the plan that the job ran last: the newest that is not of a modification which was never applied."""
        applied, last = (Phase.APPLIED, Phase.MOVING, Phase.COMPLETED), self.newest_commit()
        not_applied = {record.version for record in self.modifications() if record.phase not in applied}
        not_applied.discard(last.version if last is not None else 0)  # it was, and nobody could write that down
        versions = [version for version in self.versions() if version not in not_applied]
        if not versions and last is not None:
            raise CheckpointError(f"the plans are missing in {self.storage.path(layout.PLANS)}; {_WHAT_TO_DO}")
        return self.plan(versions[-1]) if versions else None

    def modifications(self) -> list[Record]:
        """Read the modifications that are kept, oldest first."""
        names = [name for name in self.storage.list(layout.MODIFICATIONS) if name.endswith(".json")]
        return [self._read(f"{layout.MODIFICATIONS}/{name}", Record) for name in names]

    def write_modification(self, record: Record) -> None:
        """Write down where a modification stands."""
        self.storage.write(layout.modification_file(record.number), seal(record))

    def plan(self, version: int) -> Plan:
        """Read a plan version."""
        path = layout.plan_file(version)
        try:
            return planfile.decode(opened(self.storage.read(path)))
        except (FileNotFoundError, BrokenSealError, msgspec.MsgspecError) as error:
            raise CheckpointError(
                f"plan version {version} cannot be read from {self.storage.path(path)}: {error}"
            ) from error

    def intent(self, epoch: int) -> Intent | None:
        """Read what was decided for an epoch, if it was."""
        path = layout.journal_file(epoch)
        return self._read(path, Intent) if self.storage.exists(path) else None

    def write_intent(self, intent: Intent) -> None:
        """Write down what is decided for an epoch, before it runs."""
        self.storage.write(layout.journal_file(intent.epoch), seal(intent))

    def commit(self, epoch: int) -> Commit:
        """Read a commit record."""
        return self._read(layout.commit_file(epoch), Commit)

    def epochs(self) -> list[int]:
        """List the epochs whose commit records are kept, in order."""
        return [layout.epoch_of(name) for name in self.storage.list(layout.COMMITS) if name.endswith(".json")]

    def newest_commit(self) -> Commit | None:
        """Read the newest commit record."""
        epochs = self.epochs()
        return self.commit(epochs[-1]) if epochs else None

    def write_commit(self, commit: Commit) -> None:
        """Commit an epoch: one atomic write."""
        self._create(layout.commit_file(commit.epoch), seal(commit))

    def offsets(self, epoch: int) -> tuple[str, ...]:
        """Read the source offsets that Spark logged for an epoch."""
        path = f"{layout.SPARK}/offsets/{epoch}"
        try:
            return offsets_of(self.storage.read(path).decode())
        except FileNotFoundError as error:
            raise CheckpointError(f"Spark's offset log {self.storage.path(path)} is missing") from error

    def _read(self, path: str, type: type[T]) -> T:
        try:
            return _unsealed(self.storage.read(path), type, self.storage.path(path))
        except FileNotFoundError as error:
            raise CheckpointError(f"{self.storage.path(path)} is missing; {_WHAT_TO_DO}") from error

    def forget(self, epoch: int) -> None:
        """Delete the record and the intent of an epoch."""
        self.storage.delete(layout.commit_file(epoch))
        self.storage.delete(layout.journal_file(epoch))


def _unsealed(text: bytes, type: type[T], path: str) -> T:
    try:
        return unseal(text, type)
    except BrokenSealError as error:
        raise CheckpointError(f"{path} is damaged ({error}); {_WHAT_TO_DO}") from error
