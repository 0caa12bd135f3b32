"""The record of a benchmark: a file that is there whole or not at all, and a text for people."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.table import Table

from midstream.bench.record import at_least_one, rendered, save
from midstream.errors import MidstreamError


def test_a_record_is_json_that_people_can_read(tmp_path: Path):
    path, record = tmp_path / "new" / "record.json", {"rate": 1.5, "results": [{"name": "ä", "n": None}]}
    save(record, path)
    assert json.loads(path.read_text()) == record
    assert path.read_text().startswith('{\n  "rate": 1.5')
    assert path.read_text().endswith("}\n")


def test_a_record_that_cannot_be_written_leaves_the_one_before(tmp_path: Path):
    path = tmp_path / "record.json"
    save({"n": 1}, path)
    with pytest.raises(TypeError):
        save({"n": object()}, path)
    assert json.loads(path.read_text()) == {"n": 1}
    save({"n": 2}, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["record.json"]
    assert json.loads(path.read_text()) == {"n": 2}


def test_a_table_and_its_notes_are_one_text():
    table = Table("who", "rows/s")
    table.add_row("ours", "1,000")
    lines = rendered(table, "measured here", "and not elsewhere").splitlines()
    assert "who" in lines[1]
    assert any("ours" in line and "1,000" in line for line in lines)
    assert lines[-2:] == ["measured here", "and not elsewhere"]


def test_numbers_below_one_are_refused_by_their_names():
    at_least_one(rows=1, epochs=7)
    at_least_one()
    with pytest.raises(MidstreamError, match="epochs must be 1 or more, not 0"):
        at_least_one(rows=1, epochs=0)
