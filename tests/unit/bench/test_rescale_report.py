"""The report of a move: latency while it moves beside latency while it does not, of the run in the middle."""

from __future__ import annotations

from typing import Any

import pytest

from midstream.bench.latency import EpochTimes
from midstream.bench.record import rendered
from midstream.bench.rescale_report import MeasuredMove, cost_table, course, latency_table, notes, result, typical
from midstream.bench.usage import Usage


def measured(slow: float = 1.0, name: str = "live", **given: Any) -> MeasuredMove:
    """Epochs of a tenth of a second, and one that is slow, at 10: the move is from 10 to 12."""
    epochs, at = list[EpochTimes](), 0.0
    for number in range(200):
        length = slow if number == 100 else 0.1
        epochs.append(EpochTimes(at, at + length, number, 1_000))
        at += length
    return MeasuredMove(name, epochs, steady=(1.0, 9.0), move=(10.0, 12.0), **given)


def test_a_contestant_is_told_by_what_rows_wait_while_it_moves_and_before():
    found = result(measured(groups=42, bytes=7_000_000, idle=Usage(4.0, 8_000_000)), rate=1_000, length=8)
    assert found["name"] == "live"
    assert found["steady"]["max_ms"] == pytest.approx(200, abs=15), "a row waits for an epoch, and through the next"
    assert found["moving"]["max_ms"] == pytest.approx(1_100, abs=15)
    assert found["ratio"] == pytest.approx(found["moving"]["max_ms"] / found["steady"]["max_ms"], abs=0.01)
    assert (found["duration_s"], found["groups"], found["mb"]) == (2.0, 42, 7.0)
    assert found["idle"] == {"cpu_s_per_million": 500.0, "mb_per_million": 1_000.0}
    assert found["rows_per_s"]["steady"] == pytest.approx(10_000, rel=0.02)
    assert found["rows_per_s"]["moving"] == pytest.approx(5_500, rel=0.15), "one slow epoch, then ten quick ones"


def test_what_else_is_noted_is_in_the_record():
    assert result(measured(notes={"first_epoch_s": 0.5}), 1_000, 8)["first_epoch_s"] == 0.5


def test_the_run_in_the_middle_stands_for_all():
    runs = [measured(slow) for slow in (3.0, 1.0, 2.0)]
    assert typical(runs) is runs[2]
    assert typical(runs[:2]) is runs[1], "of two, the better one"
    assert typical(runs[:1]) is runs[0]


def test_the_course_begins_with_the_steady_stretch_and_has_the_move_at_0():
    found = course(measured())
    assert found.end == 2.0
    assert all(at > -9.0 for at, _ in found.points)
    at, greatest = max(found.points, key=lambda point: point[1])
    assert (round(at, 6), greatest) == (0.0, 1_100)


def record(**notes: Any) -> dict[str, Any]:
    results = [result(measured(name=name, notes=notes.get(name, {})), 1_000, 8) for name in ("all_at_once", "restart")]
    return {"state_mb": 100, "rate": 1_000, "results": results}


def test_notes_are_told_where_there_is_something_to_tell():
    assert list(notes(record())) == []
    told = list(
        notes(
            record(
                all_at_once={"restored_mb_per_s": 900, "copy_mb_per_s": 1_200, "first_epoch_s": 0.5},
                restart={"cut_epoch_s": 9.0, "first_epoch_s": 1.5},
            )
        )
    )
    assert told[0] == "all_at_once restored 900 MB/s; a plain copy of such files beside the job makes 1,200 MB/s."
    assert told[1].startswith("With all copies lost the next epoch took 1.00 s, the median of all strategies;")


def test_tables_have_a_row_for_each_contestant():
    made = record(restart={"first_epoch_s": 1.5})
    for table in (latency_table(made), cost_table(made)):
        assert table.row_count == 2
        shown = rendered(table)
        assert "all_at_once" in shown
        assert "restart" in shown
    assert "1.50 s" in rendered(cost_table(made))
