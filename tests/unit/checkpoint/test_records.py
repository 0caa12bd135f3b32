"""Durable records: the text of one that was ever written means the same for good, and what is newer has a default."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from midstream.checkpoint import records
from midstream.checkpoint.records import (
    FORMAT,
    Commit,
    Cut,
    Deferred,
    Delivered,
    Identity,
    Intent,
    LogRef,
    OperatorState,
    Phase,
    Record,
    Report,
    SnapshotRef,
    Staged,
)
from midstream.plan.window_regimes import Regime
from midstream.plan.windows import TimeWindow

# As checkpoints of this format have them. Another text for the same record needs another FORMAT.
WRITTEN: list[tuple[Any, str]] = [
    (Identity(format=5, job="j", groups=64), '{"format":5,"job":"j","groups":64,"store":"mdb"}'),
    (Intent(epoch=7, version=2, clock=5, seed="ab"), '{"epoch":7,"version":2,"clock":5,"seed":"ab"}'),
    (LogRef(0, "a.arrow", 12, ((3, 2, -1), (5, 1, 4))), '[0,"a.arrow",12,[[3,2,-1],[5,1,4]]]'),
    (SnapshotRef(1, "b", "x.mdb", 4096, 123), '[1,"b","x.mdb",4096,123]'),
    (Delivered(9, "b"), '[9,"b",""]'),
    (Cut(3, {"in": "5"}), '{"epoch":3,"offsets":{"in":"5"}}'),
    (
        Staged("out", "j", 7, "/out", ("p-0",), "c", "t"),
        '{"sink":"out","job":"j","epoch":7,"location":"/out","files":["p-0"],"commit":"c","target":"t"}',
    ),
    (
        Deferred(epoch=3, clock=1, seed="s", watermark=None, groups=(1, 2), path="p"),
        '{"epoch":3,"clock":1,"seed":"s","watermark":null,"before":null,"groups":[1,2],"path":"p","form":""}',
    ),
    (
        Record(number=1, what="w", phase=Phase.ROLLED_BACK, cut=Cut(3, {})),
        (
            '{"number":1,"what":"w","phase":"RolledBack","base":0,"version":0,"cut":{"epoch":3,"offsets":{}},'
            '"error":"","rehearsed":0,"note":"","tries":0,"durations":{}}'
        ),
    ),
]


@pytest.mark.parametrize(("record", "text"), WRITTEN, ids=lambda each: type(each).__name__)
def test_a_record_is_written_as_it_always_was_in_this_format_and_read_back(record: Any, text: str):
    assert FORMAT == 5
    assert msgspec.json.encode(record).decode() == text
    assert msgspec.json.decode(text, type=type(record)) == record


# What the first version of each record had: all that is newer must have a default.
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Commit, '{"epoch":1,"id":"i","parent":"p","version":1,"clock":0,"offsets":[]}'),
        (OperatorState, "{}"),
        (Report, '{"operator":"sums","slot":0}'),
        (Record, '{"number":1,"what":"w"}'),
        (Staged, '{"sink":"out","job":"j","epoch":7,"location":"/out","files":[]}'),
        (Deferred, '{"epoch":3,"clock":1,"seed":"s","watermark":null,"groups":[],"path":"p"}'),
        (Delivered, '[9,"b"]'),
    ],
)
def test_a_record_from_before_newer_fields_is_read_and_one_with_fields_of_the_future_too(kind: Any, text: str):
    found = msgspec.json.decode(text, type=kind)
    assert msgspec.json.decode(msgspec.json.encode(found), type=kind) == found
    known = json.loads(text)
    longer = [*known, "", "of the future"] if isinstance(known, list) else known | {"of the future": 1}
    assert msgspec.json.decode(json.dumps(longer), type=kind) == found


def test_a_commit_is_read_back_with_all_that_its_operators_have():
    state = OperatorState(
        born=3,
        backlog=(Deferred(epoch=3, clock=1, seed="s", watermark=-1, before=-2, groups=(1,), path="p", form="f"),),
        hold={"late": 5},
        logs=(LogRef(0, "a", 12, ((3, 2, -1),)),),
        changed=(None, (7, "c")),
        snapshots=(None, SnapshotRef(1, "b", "x", 4096, (1 << 63) - 1)),
        deadlines={1: (5, None), 2: (None, -7)},
        layouts={0: "total double"},
        regimes=(Regime(TimeWindow(10, 5), 0, 20), Regime(TimeWindow(8, 4), 20)),
    )
    commit = Commit(
        epoch=7, id="c", parent="b", version=2, clock=1, offsets=("-", '{"a": 1}'), operators={"sums": state},
        delivered={"out": Delivered(6, "b", "t")}, event_times={"timed": -(1 << 62)}, final=True,
    )  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(commit), type=Commit) == commit


def test_phases_have_the_names_that_records_have_and_five_are_the_end():
    assert {phase.value: phase.is_final for phase in Phase} == {
        "Submitted": False, "Validated": False, "Prepared": False, "Armed": False, "Applied": False, "Moving": False,
        "Completed": True, "Rejected": True, "Cancelled": True, "RolledBack": True, "Failed": True,
    }  # fmt: skip


def test_records_cannot_be_changed_but_a_report_while_it_is_made():
    kinds = [each for each in vars(records).values() if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    changeable = [kind for kind in kinds if not kind.__struct_config__.frozen and kind.__module__ == records.__name__]
    assert changeable == [Report]
    assert Report(operator="a", slot=0).groups is not Report(operator="a", slot=0).groups, "each has its own lists"
