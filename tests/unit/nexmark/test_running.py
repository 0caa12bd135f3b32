"""A run of a query: how it is cut into epochs, whose checkpoint it is, and which of its rows count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream.errors import PlanError
from midstream.nexmark.generator import Config
from midstream.nexmark.running import ABOUT, QueryRun


def run(directory: Path, query: str = "q0", events: int = 100, **given: Any) -> QueryRun:
    config = Config(out_of_order=given.pop("out_of_order", 1), events_per_second=1_000)
    return QueryRun(query, events, config, directory / "out", directory / "checkpoint", **given)


def test_a_query_that_there_is_not_is_refused(tmp_path: Path):
    with pytest.raises(PlanError, match="'q9' is not a query of Nexmark; they are q0, q1, q2"):
        run(tmp_path, "q9")


@pytest.mark.parametrize(("rows", "epochs"), [(0, 1), (100, 1), (99, 2), (10, 10), (1_000, 1)])
def test_events_are_cut_into_epochs(tmp_path: Path, rows: int, epochs: int):
    assert run(tmp_path, rows_per_epoch=rows).epochs == epochs


@pytest.mark.parametrize(("out_of_order", "seconds"), [(1, 0.0), (501, 0.5)])
def test_events_are_late_by_as_many_as_stand_before_them(tmp_path: Path, out_of_order: int, seconds: float):
    assert run(tmp_path, out_of_order=out_of_order).delay == seconds


def claimed(directory: Path, **known: Any) -> Path:
    """A checkpoint that says which run it is of."""
    about = directory / "checkpoint" / ABOUT
    about.parent.mkdir()
    about.write_text(json.dumps(known))
    return about


def test_a_checkpoint_of_another_run_is_refused_with_the_difference(tmp_path: Path):
    about = claimed(tmp_path, query="q0", events=7)
    with pytest.raises(PlanError, match="is the checkpoint of a run with events 7, not 100: go on with the same"):
        run(tmp_path).start(None)  # type: ignore[arg-type]
    assert json.loads(about.read_text()) == {"query": "q0", "events": 7}


def test_a_checkpoint_that_does_not_say_whose_it_is_is_refused(tmp_path: Path):
    (tmp_path / "checkpoint" / "job").mkdir(parents=True)
    with pytest.raises(PlanError, match="does not say which run it is of; name another checkpoint"):
        run(tmp_path).start(None)  # type: ignore[arg-type]


def written(directory: Path, epochs: dict[int, list[tuple[int, float]]], key: str) -> None:
    """Rows of each epoch, as the sink for files leaves them."""
    for epoch, rows in epochs.items():
        place = directory / "out" / f"epoch={epoch}"
        place.mkdir(parents=True)
        table = pa.table({key: [row[0] for row in rows], "price": [row[1] for row in rows]})
        pq.write_table(table, place / "part-0.parquet")


def found(made: QueryRun) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in made.results().to_pylist())


def test_all_rows_are_results_without_the_epoch(tmp_path: Path):
    written(tmp_path, {0: [(1, 2.0), (1, 2.0)], 3: [(2, 5.0)]}, "auction")
    assert found(run(tmp_path, "q2")) == [(1, 2.0), (1, 2.0), (2, 5.0)]
    assert run(tmp_path, "q2").results().column_names == ["auction", "price"]


@pytest.mark.parametrize(("query", "key"), [("q4", "category"), ("q6", "seller")])
def test_of_queries_that_update_the_last_row_of_each_key_counts(tmp_path: Path, query: str, key: str):
    written(tmp_path, {0: [(1, 2.0), (2, 9.0)], 3: [(1, 5.0)], 12: [(1, 7.0), (3, 1.0)]}, key)
    assert found(run(tmp_path, query)) == [(1, 7.0), (2, 9.0), (3, 1.0)]


def test_before_the_first_row_there_are_no_columns(tmp_path: Path):
    (tmp_path / "out").mkdir()
    assert run(tmp_path, "q4").results().num_columns == 0
