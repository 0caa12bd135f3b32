"""Spools of numbers: what the tests of their parts share."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from midstream.sources.spools import columns, segments
from midstream.sources.spools.reader import SpoolStreamReader

N = columns.parse("n long")


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


def read(directory: Path | str, start: int, end: int) -> list[int]:
    return [n for batch in segments.read(str(directory), start, end) for n in batch.column(0).to_pylist()]


def reader(directory: Path, **options: object) -> SpoolStreamReader:
    return SpoolStreamReader(str(directory), "job", **{"max_rows": 0, "keep": 0.0, "tasks": 2} | options)  # type: ignore[arg-type]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.arrow*"))
