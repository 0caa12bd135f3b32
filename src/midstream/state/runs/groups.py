"""The groups of an operator in a store of runs, as one task sees them: read where they are stored, nothing copied."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from midstream.checkpoint.layout import state_directory
from midstream.checkpoint.storage import Storage
from midstream.state.budget import Budget
from midstream.state.history import Head
from midstream.state.runs.file import RunFile, damaged
from midstream.state.runs.part import Part
from midstream.state.runs.reader import RunsReader
from midstream.state.runs.writer import Older
from midstream.state.stores.contract import Reader
from midstream.state.stores.pending import Entries, PendingStore

_MOST_OPEN = 256
_open: OrderedDict[str, RunFile] = OrderedDict()  # of this process; runs never change


@dataclass(frozen=True, slots=True)
class RunsOfGroup:
    """What a group is made of: what each of its runs has of it, the newest first."""

    parts: list[Part]

    @contextmanager
    def reader(self) -> Iterator[Reader]:
        """Open a view."""
        yield RunsReader(self.parts)

    def close(self) -> None:
        """Do nothing: files stay open for the next task of the process."""


@dataclass(slots=True)
class RunGroups:
    """The groups of one operator, read where their runs are stored."""

    head: Head
    lazy: bool = False
    budget: Budget = field(default_factory=lambda: Budget(0, 0.0))
    accessed: int = 0
    restored: int = 0  # none ever: nothing is copied
    sizes: dict[int, tuple[int, int]] = field(default_factory=dict)  # group -> entries, bytes
    pending: dict[int, Entries] = field(default_factory=dict)  # group -> what this epoch has changed in it so far
    reads_there: bool = True
    _storage: Storage = field(init=False)
    _runs: dict[int, list[tuple[str, int]]] = field(default_factory=dict)  # group -> its runs and entries, newest first

    def __post_init__(self) -> None:
        self._storage = Storage(self.head.checkpoint)
        for run in self.head.runs:
            for group, entries in run.groups:
                self._runs.setdefault(group, []).append((run.path, entries))
        self._close_others()

    def view(self, group: int) -> RunsOfGroup | PendingStore:
        """Return the state of a group, with what this epoch has changed in it so far."""
        found = self.bring(group)
        return PendingStore(found, self.pending[group]) if group in self.pending else found

    def bring(self, group: int) -> RunsOfGroup:
        """Return the committed state of a group."""
        if self.head.throw_away:
            return RunsOfGroup([])
        self.accessed += 1
        runs = self._runs.get(group, ())
        parts = self._parts(group, len(runs))
        size = sum(entries * self._file(path).bytes_per_entry for path, entries in runs)
        self.sizes[group] = sum(entries for _, entries in runs), round(size)
        return RunsOfGroup(parts)

    def older(self, counts: Mapping[int, int]) -> dict[int, Older]:
        """Return the newest runs of groups, as many of each as there are to be merged."""
        return {g: Older(self._parts(g, count), count == len(self._runs[g])) for g, count in sorted(counts.items())}

    def _close_others(self) -> None:
        """Close the operator's runs that its state is not made of any more: the disk keeps what a process has open."""
        home = self._storage.path(state_directory(self.head.home)) + "/"
        named = {self._storage.path(run.path) for run in self.head.runs}
        for where in [where for where in _open if where.startswith(home) and where not in named]:
            del _open[where]

    def _parts(self, group: int, count: int) -> list[Part]:
        """What the newest runs of a group have of it."""
        return [self._file(path).part(group) for path, _ in self._runs.get(group, ())[:count]]

    def _file(self, path: str) -> RunFile:
        where = self._storage.path(path)
        if where not in _open:
            while len(_open) >= _MOST_OPEN:
                _open.popitem(last=False)
            frame = int(os.path.basename(path).split(".")[0].rsplit("-", 1)[1], 16)
            try:
                content = self._storage.buffer(path)
            except OSError as error:
                raise damaged(where, error) from error
            _open[where] = RunFile(content, frame, where)
        _open.move_to_end(where)
        return _open[where]

    # What others copy is here already.

    def must_come(self, group: int) -> bool:
        """Whether a group has to be copied to be looked into."""
        return False

    def lacks_logs_only(self, group: int) -> bool:
        """Whether a group needs no copy."""
        return True

    def is_whole(self, group: int) -> bool:
        """Whether all of a group is here."""
        return True

    def bring_whole(self, group: int) -> None:
        """Copy a group."""

    def bring_all(self, groups: Iterable[int]) -> None:
        """Copy groups."""

    def drop(self, group: int) -> None:
        """Drop the copy of a group."""
