"""The next record: worked out from the last one and what the slots report."""

from __future__ import annotations

from typing import Any

import msgspec

import midstream as ms
from midstream.checkpoint.records import Commit, Deferred, Intent, LogRef, OperatorState, Report, SnapshotRef
from midstream.epoch.attempt import Outcome
from midstream.epoch.beginning import Beginning
from midstream.epoch.commit import next_record
from midstream.flow import builders
from midstream.operators.resolved import Keyed, Resolved
from midstream.plan import plan as p

LATE = p.Watermark(id="late", inputs=("rows",), column="ts", delay=5)
SUMS = builders.reading(builders.key_by("key").aggregate(n=ms.count(), id="sums"), "late")
PLAN = p.Plan(name="flow", operators=(p.Source(id="rows", schema="key long, ts timestamp"), LATE, SUMS))
RESOLVED = Resolved(
    PLAN,
    {},
    {},
    {"sums": Keyed(None, None, "ts", ("late",), None, layout="n", base=1, top=3)},  # type: ignore[arg-type]
)


def committed(last: Commit | None, *reports: Report, times: dict[str, int] | None = None, **begins: Any) -> Commit:
    epoch = 0 if last is None else last.epoch + 1
    intent = Intent(epoch=epoch, version=1, clock=1000 + epoch, seed="")
    found = {"sums": [(f"{report.slot}.arrow", report) for report in reports]} if reports else {}
    outcome = Outcome(found, [], times or {}, {})
    return next_record(Beginning(last, intent, RESOLVED, 4, **begins), (str(epoch),), outcome)


def report(slot: int = 0, **said: Any) -> Report:
    return Report(operator="sums", slot=slot, **said)


def test_a_group_that_changes_is_linked_to_its_change_before():
    first = committed(None, report(groups=[(1, 5), (2, 7)]), report(slot=1))
    state = first.operators["sums"]
    assert state.changed == (None, (0, first.id), (0, first.id), None)
    assert state.logs == (LogRef(0, "0.arrow", 12, ((1, 5, -1), (2, 7, -1))),), "who changes nothing has no log"
    second = committed(first, report(groups=[(2, 1), (3, 1)]))
    assert second.parent == first.id
    assert second.operators["sums"].changed == (None, (0, first.id), (1, second.id), (1, second.id))
    assert second.operators["sums"].logs == (LogRef(0, "0.arrow", 2, ((2, 1, 0), (3, 1, -1))),)


def test_snapshots_and_deadlines_stay_until_there_are_newer_ones():
    first = committed(None, report(snapshots=[(1, 0, "c", "path", 10, 99)], deadlines={0: (50, None), 1: (None, 60)}))
    second = committed(first, report(deadlines={1: (None, None), 2: (70, 80)})).operators["sums"]
    assert second.snapshots == (None, SnapshotRef(0, "c", "path", 10, 99), None, None)
    assert second.deadlines == {0: (50, None), 2: (70, 80)}


def test_times_go_forwards_only():
    first = committed(None, report(watermark=90, latest=40), report(slot=1, watermark=None), times={"late": 100})
    assert (first.event_times, first.seen) == ({"late": 100}, {"late": 1000})
    second = committed(first, report(watermark=80, latest=30), times={"late": 95})
    assert (second.event_times, second.seen) == ({"late": 100}, {"late": 1001})
    assert (second.operators["sums"].watermark, second.operators["sums"].latest) == (90, 40)
    third = committed(second, report(watermark=1 << 62), final=True)
    assert (third.event_times, third.seen, third.final) == ({"late": 100}, {"late": 1001}, True)
    assert third.operators["sums"].watermark == 90, "the end of time is nobody's watermark"


def test_the_state_of_operators_that_are_gone_is_kept_until_it_is_forgotten():
    kept = OperatorState(born=0, logs=(LogRef(0, "x", 1, ()),), changed=((0, "c"),))
    last = msgspec.structs.replace(committed(None), operators={"gone": kept})
    assert committed(last).operators == {"gone": msgspec.structs.replace(kept, logs=())}
    assert committed(last, forgetting=frozenset({"gone"})).operators == {}


def test_an_operator_that_is_new_is_born_in_its_epoch():
    state = committed(committed(None), report()).operators["sums"]
    assert (state.born, state.layouts, state.top) == (1, {1: "n"}, 3)


def test_what_waits_holds_the_time_of_others_until_it_is_caught_up():
    waiting = Deferred(epoch=1, clock=0, seed="", watermark=None, groups=(2,), path="rows")
    first = committed(None, report(), times={"late": 100})
    second = committed(first, report(deferred=waiting), times={"late": 200})
    assert second.operators["sums"].backlog == (waiting,)
    assert second.operators["sums"].hold == {"late": 100}
    third = committed(second, report(), times={"late": 300}).operators["sums"]
    assert (third.backlog, third.hold) == ((waiting,), {"late": 100})
    assert committed(second, report(caught_up=[2])).operators["sums"].hold == {}
