"""A bounded stream as files: which positions each micro-batch holds, in an order that Spark's file source keeps."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from midstream.errors import PlanError

ABOUT = "_slices.json"  # Spark does not read files whose names begin with `_`
CHUNK = 4096  # positions that a task holds in memory at once


@dataclass(frozen=True, slots=True)
class Slices:
    """The positions 0 to `events` - 1 in slices of `rows`, each slice in `files` files, so that as many tasks share it.

    >>> list(Slices(events=5, rows=3, files=2))
    [[(0, 1)], [(1, 3)], [(3, 4)], [(4, 5)]]
    """

    events: int
    rows: int
    files: int

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for first in range(0, self.events, self.rows):
            here = min(self.rows, self.events - first)
            shares = [first + here * share // self.files for share in range(self.files + 1)]
            for start, end in pairwise(shares):
                yield [(chunk, min(chunk + CHUNK, end)) for chunk in range(start, end, CHUNK)]


def write_slices(directory: str | os.PathLike[str], events: int, rows: int, tasks: int) -> int:
    """Write the files of all slices into a directory, or find them there; return the number of files per slice.

    The directory appears whole or not at all. One with other slices, or with anything else in it, is refused.
    """
    if events < 1 or rows < 0:
        raise PlanError(
            f"{events} events in epochs of {rows} are impossible: events must be 1 or more, and rows 0 or more"
        )
    rows = min(rows or events, events)
    wanted = Slices(events, rows, max(1, min(tasks, rows // CHUNK)))
    path = Path(os.path.abspath(directory))
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        wanted = _found(path, wanted)
    else:
        _write(path, wanted)
    for number, name in enumerate(_names(wanted)):
        # The source takes the oldest files first; a copy of the directory may have lost their times.
        os.utime(path / name, (1_000_000_000 + number,) * 2)
    return wanted.files


def _names(slices: Slices) -> list[str]:
    count = -(-slices.events // slices.rows) * slices.files
    return [f"slice-{number:09}.json" for number in range(count)]


def _write(path: Path, slices: Slices) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.parent / f".{path.name}.{os.getpid()}.partial"
    shutil.rmtree(beside, ignore_errors=True)  # left by a process that was killed
    beside.mkdir()
    try:
        for name, chunks in zip(_names(slices), slices, strict=True):
            (beside / name).write_text("".join(f'{{"start": {start}, "end": {end}}}\n' for start, end in chunks))
        (beside / ABOUT).write_text(json.dumps(asdict(slices)))
        beside.replace(path)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _found(path: Path, wanted: Slices) -> Slices:
    """Read which slices a directory holds, and refuse it unless they are the wanted ones."""
    try:
        found = Slices(**json.loads((path / ABOUT).read_text()))
    except (OSError, ValueError, TypeError):
        raise PlanError(f"{path} is not a directory of slices; name an empty one, or one that does not exist") from None
    if (found.events, found.rows) != (wanted.events, wanted.rows):
        raise PlanError(
            f"{path} has {found.events} events in epochs of {found.rows}, not {wanted.events} in epochs of "
            f"{wanted.rows}; name another directory, or delete this one and the checkpoint that has read it"
        )
    missing = set(_names(found)) - {entry.name for entry in path.iterdir()}
    if missing:
        raise PlanError(f"{path} has lost {len(missing)} files, {min(missing)} first; delete it, and start again")
    return found
