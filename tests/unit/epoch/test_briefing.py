"""What a keyed operator is told of an epoch: worked out of records alone."""

from __future__ import annotations

from typing import Any

import pytest

import midstream as ms
from midstream.checkpoint.records import Commit, Intent, OperatorState
from midstream.epoch.beginning import Beginning
from midstream.epoch.briefing import Briefing, Density
from midstream.epoch.settings import Settings
from midstream.flow import builders
from midstream.operators.resolved import Keyed, Resolved
from midstream.operators.shuffle import KeyedRun
from midstream.operators.task import Relocation
from midstream.placement.assignment import Serving
from midstream.plan import plan as p
from midstream.plan.routing import Routing
from midstream.plan.windows import END_OF_TIME, TimeWindow

GROUPS = 4
MADE = {
    "sums": builders.key_by("key").aggregate(n=ms.count(), id="sums"),
    "windows": builders.key_by("key").window(TimeWindow(10, 10)).aggregate(n=ms.count(), id="sums"),
}


def resolved(operator: str = "sums", **tuned: int) -> Resolved:
    """A plan of rows that may come 5 microseconds late, and one operator."""
    late = p.Watermark(id="late", inputs=("rows",), column="ts", delay=5)
    operators = (p.Source(id="rows", schema="key long, ts timestamp"), late, builders.reading(MADE[operator], "late"))
    keyed = Keyed(None, None, "ts", ("late",), None)  # type: ignore[arg-type]
    return Resolved(p.Plan(name="flow", operators=operators, tuning=p.Tuning(**tuned)), {}, {}, {"sums": keyed})


def told(
    state: OperatorState, over: Resolved, *, version: int = 1, density: Density | None = None, **beginning: Any
) -> KeyedRun:
    """What `sums` is told in epoch 5, at clock 1000, after an event at 100; the plan of epoch 4 was version 1."""
    last = Commit(
        epoch=4, id="a", parent="", version=1, clock=0, offsets=(), operators={"sums": state}, event_times={"late": 100}
    )
    begins = Beginning(last, Intent(epoch=5, version=version, clock=1000, seed="s"), over, GROUPS, **beginning)
    briefing = Briefing(begins, "job", "/checkpoint", Settings(cache="/cache", prefetch_budget=7), (last,))
    serving = Serving(Routing.even(GROUPS, 2), Relocation(defers=True))
    return briefing.keyed_run("sums", serving, frozenset({2}), density or Density())


@pytest.mark.parametrize(("before", "watermark"), [(None, 95), (90, 95), (97, 97)])
def test_a_watermark_does_not_go_back(before: int | None, watermark: int):
    epoch = told(OperatorState(watermark=before), resolved()).epoch
    assert (epoch.before, epoch.watermark) == (before, watermark)


def test_groups_are_due_whose_deadlines_have_passed():
    deadlines = {0: (95, None), 1: (96, None), 2: (None, 1000), 3: (None, 1001)}
    assert told(OperatorState(deadlines=deadlines), resolved()).epoch.due == {0, 2}


@pytest.mark.parametrize(
    ("operator", "version", "due"), [("sums", 2, set()), ("windows", 1, set()), ("windows", 2, {1})]
)
def test_under_a_new_plan_all_groups_with_windows_are_looked_into(operator: str, version: int, due: set[int]):
    state = OperatorState(changed=(None, (3, "c"), None, None))
    assert told(state, resolved(operator), version=version).epoch.due == due


def test_at_the_end_of_the_input_time_has_passed_and_nothing_is_put_aside():
    run = told(OperatorState(watermark=90), resolved(), final=True)
    assert (run.epoch.watermark, run.epoch.before) == (END_OF_TIME, 90)
    assert run.epoch.relocation == Relocation(defers=False)
    assert told(OperatorState(), resolved()).epoch.relocation == Relocation(defers=True)


def test_state_that_is_forgotten_begins_anew():
    state = OperatorState(born=2, watermark=97, changed=((3, "c"),) * GROUPS)
    known, anew = told(state, resolved()).head, told(state, resolved(), forgetting=frozenset({"sums"})).head
    assert (known.born, known.changed) == (2, ((3, "c"),) * GROUPS)
    assert (anew.born, anew.changed) == (5, (None,) * GROUPS)


def test_what_a_running_job_was_tuned_to_comes_before_what_it_was_started_with():
    assert told(OperatorState(), resolved()).epoch.prefetch == 7
    assert told(OperatorState(), resolved(prefetch_budget=0)).epoch.prefetch == 0


@pytest.mark.parametrize(
    ("density", "combine", "markers"),
    [(Density(), False, True), (Density(0.4, 99), True, True), (Density(0.4, 100), True, False)],
)
def test_rows_are_folded_where_keys_repeat_and_all_slots_run_where_some_may_have_no_rows(
    density: Density, combine: bool, markers: bool
):
    run = told(OperatorState(), resolved(), density=density)
    assert (run.combine, run.markers) == (combine, markers)
