"""Windows as a kind: what is sent of rows, and which task works on it; what is refused only Spark can say."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType, TimestampType

from midstream.operators.aggregates.declare import with_end
from midstream.operators.aggregates.kind import compiled_over
from midstream.operators.resolved import Keyed, Resolved
from midstream.operators.schemas import arrow_schema
from midstream.operators.shuffle import KeyedRun
from midstream.operators.tables import PortableSessions, PortableWindows
from midstream.operators.task import Epoch
from midstream.operators.windows.kind import WindowKind
from midstream.operators.windows.sessions import SessionTask
from midstream.operators.windows.task import WindowTask
from midstream.plan import plan as p
from midstream.plan.routing import Routing
from midstream.plan.window_regimes import Regime
from midstream.plan.windows import TimeWindow
from midstream.state.history import Head
from tests.support.tables import Tables

ROWS = StructType(
    [StructField("user", StringType()), StructField("price", LongType()), StructField("ts", TimestampType())]
)
TOTAL = p.AggregateSpec(name="total", function="sum", column="price")
USERS = p.AggregateSpec(name="users", function="approx_distinct", column="user")


def windows(spec: p.AggregateSpec = TOTAL, **given: Any) -> p.Window:
    shape = {"size": 10, "slide": 10} if "gap" not in given else {"size": 0, "slide": 0}
    return p.Window(id="sums", inputs=("w",), keys=("user",), aggregates=(spec,), **{**shape, **given})


def frames(operator: p.Window, *, combine: bool = False, late: bool = False) -> Tables:
    compiled = compiled_over(operator, ROWS, "ts")
    compiled = with_end(compiled, operator.gap) if operator.gap else compiled
    bounds = [StructField(name, TimestampType(), False) for name in ("window_start", "window_end")]
    output = StructType([ROWS["user"], *bounds, StructField(operator.aggregates[0].name, LongType())])
    keyed = Keyed(ROWS, StructType([ROWS["user"]]), "ts", ("w",), arrow_schema(output), compiled)
    w = p.Watermark(id="w", inputs=("s",), column="ts", delay=0)
    read = (p.Late(id="late", inputs=("sums",), of="sums"),) if late else ()
    plan = p.Plan(name="flow", operators=(p.Source(id="s", schema=""), w, operator, *read))
    known = Resolved(plan, {"w": ROWS, "sums": output}, {"w": "ts"}, {"sums": keyed})
    head, epoch = Head("job", "sums", "", "", 0, (None,) * 4), Epoch(1, 0, "", None)
    return Tables(known, {"sums": KeyedRun(head, epoch, Routing.even(4, 2), combine, markers=True)})


def dispatched(operator: p.Window, **run: bool) -> Any:
    made = frames(operator, **run)
    common: dict[str, Any] = {
        "operator": "sums", "head": made.keyed["sums"].head, "epoch": made.keyed["sums"].epoch, "directory": "",
        "aside": "", "schema": b"", "keys": ("user",), "routing": made.keyed["sums"].routing,
    }  # fmt: skip
    return WindowKind().dispatch(operator, made, common)


@pytest.mark.parametrize("combine", [False, True])
def test_windows_of_a_fixed_size_are_folded_into_panes_if_that_pays(combine: bool):
    made = dispatched(windows(lateness=3, emit="update"), combine=combine)
    assert type(made.task) is WindowTask
    assert (made.sent.combine, made.task.combined, made.sent.moment) == (combine, combine, "_pane")
    assert (made.task.lateness, made.task.updates, made.task.regimes) == (3, True, (Regime(TimeWindow(10, 10)),))
    assert made.sent.rows.endswith(" as _pane from w)")


def test_rows_of_sessions_are_sent_one_by_one_unless_they_can_only_be_merged_in_parts():
    made = dispatched(windows(gap=5), combine=True)
    assert type(made.task) is SessionTask
    assert (made.sent.combine, made.sent.moment, made.task.gives_late) == (False, "_start", False)
    assert dispatched(windows(USERS, gap=5)).sent.combine


def test_windows_come_out_when_they_close_unless_every_change_is_asked_for():
    assert not dispatched(windows()).task.updates
    assert dispatched(windows(emit="update")).task.updates


@pytest.mark.parametrize(
    ("combine", "expected"), [(False, "coalesce((`done`), false)"), (True, "coalesce(bool_or(`done`), false)")]
)
def test_a_row_says_whether_it_ends_its_windows(combine: bool, expected: str):
    assert dispatched(windows(punctuation="`done`"), combine=combine).sent.columns["_closes"] == expected
    assert "_closes" not in dispatched(windows(), combine=combine).sent.columns


def test_late_rows_of_sessions_come_beside_them_where_somebody_reads_them():
    made = dispatched(windows(gap=5), late=True)
    assert made.task.gives_late
    assert made.schema["_whole"].dataType == ArrayType(ROWS)
    assert all(field.nullable for field in made.schema), "of each kind, the columns of the other are null"
    assert made.sent.columns["_whole"] == "array(struct(`user`, `price`, `ts`))"
    assert dispatched(windows(USERS, gap=5), late=True).sent.columns["_whole"].startswith("collect_list(")
    for other in (dispatched(windows(gap=5)), dispatched(windows(), late=True)):
        assert "_whole" not in other.schema.names
        assert "_whole" not in other.sent.columns


def test_a_savepoint_has_panes_or_sessions():
    for operator, kind in ((windows(), PortableWindows), (windows(gap=5), PortableSessions)):
        form = WindowKind().form(operator, frames(operator).resolved)
        assert form.aggregate is not None
        assert form.aggregate[0] is kind
