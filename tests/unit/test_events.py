"""What is told of an epoch."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

from midstream.events import Progress


def test_a_progress_report_is_json_with_all_its_fields():
    report = Progress(
        epoch=3, version=2, clock="2026-01-01T00:00:00+00:00", rows={"sums": 5}, keys={"sums": 2},
        watermarks={"w": None}, log_bytes=10, snapshots=1, late={"counts": 4}, durations={"total": 0.25},
    )  # fmt: skip
    assert json.loads(report.json) == asdict(report)
    assert list(json.loads(report.json)) == [field.name for field in fields(Progress)]
    assert "\n" not in report.json
    assert json.loads(report.pretty_json) == asdict(report)
    assert "\n" in report.pretty_json
