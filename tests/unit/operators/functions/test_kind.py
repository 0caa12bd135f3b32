"""Keyed functions as a kind: what is checked, what is sent of each row, and which task works on it."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType, TimestampType

import midstream as ms
from midstream.errors import PlanError
from midstream.operators.functions.kind import FunctionKind
from midstream.operators.functions.task import FunctionTask
from midstream.operators.joins.rules import UnboundedJoin
from midstream.operators.joins.task import JoinTask
from midstream.operators.kind import Output, Resolving
from midstream.operators.resolved import Resolved
from midstream.operators.shuffle import KeyedRun
from midstream.operators.task import Epoch
from midstream.operators.windows.by_count.rules import CountWindows
from midstream.operators.windows.by_count.task import CountTask
from midstream.operators.windows.top import Top
from midstream.plan import plan as p
from midstream.plan.code import capture
from midstream.plan.routing import Routing
from midstream.plan.windows import count_window
from midstream.state.history import Head
from tests.support.join_slot import TYPES, bounded
from tests.support.tables import Tables

ROWS = StructType([StructField("user", StringType()), StructField("n", LongType()), StructField("ts", TimestampType())])
NEWS = StructType([StructField("rate", LongType())])
ROUTING = Routing.even(5, 2)


class Silent(ms.KeyedFunction):
    """Does nothing."""

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        return None


def plan(function: ms.KeyedFunction | None = None, *, told: bool = False, **given: Any) -> p.Plan:
    """A source, a watermark, and a function below it that has no state and yields rows of its input."""
    code = capture(function or Silent(), what="it", shipped=True)
    inputs = ("w", "news") if told else ("w",)
    process = p.Process(id="f", inputs=inputs, code=code, schema="", **{"keys": ("user",), **given})
    w = p.Watermark(id="w", inputs=("s",), column="ts", delay=0)
    return p.Plan(name="flow", operators=(p.Source(id="s", schema=""), w, p.Source(id="news", schema=""), process))


def resolved(made: p.Plan, rows: StructType = ROWS) -> tuple[Output, Tables]:
    """What the function resolves to, and the frames of a run of it."""
    known = Resolved(made, {"w": rows, "news": NEWS}, {"w": "ts", "news": None}, {})
    process = made["f"]
    assert isinstance(process, p.Process)
    inputs = tuple(known.schemas[id] for id in process.inputs)
    output = FunctionKind().resolve(process, Resolving(None, known, inputs))  # type: ignore[arg-type]
    assert output.keyed is not None
    known.schemas["f"], known.keyed["f"] = output.schema, output.keyed
    run = KeyedRun(Head("job", "f", "", "", 0, (None,) * 5), Epoch(1, 0, "", None), ROUTING, False, True)
    return output, Tables(known, {"f": run})


def dispatched(made: p.Plan, rows: StructType = ROWS) -> Any:
    _, frames = resolved(made, rows)
    common: dict[str, Any] = {
        "operator": "f", "head": frames.keyed["f"].head, "epoch": frames.keyed["f"].epoch, "directory": "",
        "aside": "", "schema": b"", "keys": ("user",), "routing": ROUTING,
    }  # fmt: skip
    process = made["f"]
    assert isinstance(process, p.Process)
    return FunctionKind().dispatch(process, frames, common)


def test_without_a_schema_rows_come_out_as_they_went_in():
    output, _ = resolved(plan())
    assert output.keyed is not None
    assert (output.schema, output.event_time) == (ROWS, "ts")
    assert (output.keyed.watermarks, output.keyed.layout) == (("w",), "by (user string): ")
    assert (output.keyed.base, output.keyed.top, output.keyed.shared) == (0, 0, None)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"keys": ("nobody",)}, "key_by of 'f': there is no column 'nobody'; the stream has user, n, ts"),
        ({"order_by": ("never",)}, "there is no column 'never'; the stream has user, n, ts"),
        (
            {"told": True, "broadcast_order": ("n",)},
            "broadcast to 'f', order_by: there is no column 'n'; the stream has rate",
        ),
    ],
)
def test_columns_that_are_not_there_are_refused(given: dict[str, Any], complaint: str):
    with pytest.raises(PlanError, match=complaint):
        resolved(plan(**given))


def test_rows_that_have_a_column_for_failures_already_are_refused_where_these_are_put_aside():
    rows = StructType([*ROWS, StructField("_Failed", LongType())])
    resolved(plan(), rows)
    with pytest.raises(PlanError, match="operator 'f': the column name '_Failed' is taken by Midstream"):
        resolved(plan(on_error="dead_letter"), rows)


def test_a_ranking_of_windows_that_may_come_twice_is_refused():
    made = plan(Top(1, 0, False, "struct<n: bigint>", ends=False))
    resolved(made)
    revised = p.Window(id="w", inputs=("s",), keys=(), aggregates=(), size=10, slide=10, emit="update")
    twice = replace_operator(made, revised)
    with pytest.raises(
        PlanError, match="'f' takes each window of 'w' once, but with emit=\"update\" these are emitted"
    ):
        resolved(twice)


def replace_operator(made: p.Plan, other: p.AnyOperator) -> p.Plan:
    return p.Plan(name="flow", operators=tuple(other if o.id == other.id else o for o in made.operators))


def test_a_join_without_bounds_asks_for_no_event_time():
    output, _ = resolved(plan(UnboundedJoin(widths=(1, 1), types=TYPES, ttl=0)))
    assert output.keyed is not None
    assert output.keyed.watermarks == ()
    output, _ = resolved(plan(bounded("inner", size=10)))
    assert output.keyed is not None
    assert output.keyed.watermarks == ("w",)


@pytest.mark.parametrize(
    ("function", "task"),
    [
        (Silent(), FunctionTask),
        (Top(1, 0, False, "struct<n: bigint>", ends=False), FunctionTask),
        (bounded("left", size=10), JoinTask),
        (UnboundedJoin(widths=(1, 1), types=TYPES, ttl=0), JoinTask),
        (CountWindows(count_window(3), 1, (), ()), CountTask),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, ms.KeyedFunction) else "",
)
def test_joins_and_windows_by_count_have_a_task_of_their_own(function: ms.KeyedFunction, task: type):
    assert type(dispatched(plan(function)).task) is task


def test_rows_are_sent_with_a_hash_of_all_columns_and_with_their_time_unless_they_have_another_order():
    rows = StructType([*ROWS, StructField("tags", MapType(StringType(), LongType()))])
    sent = dispatched(plan(), rows).sent
    assert list(sent.columns) == ["user", "n", "ts", "tags", "_tie", "_order"]
    assert sent.columns["_tie"] == "xxhash64(`user`, `n`, `ts`, to_json(`tags`))", "Spark hashes no maps"
    assert (sent.rows, sent.combine, sent.with_keys, sent.broadcast) == ("w", False, False, "")
    assert list(dispatched(plan(order_by=("n",))).sent.columns) == ["user", "n", "ts", "_tie"]


def test_what_groups_are_told_is_sent_to_each_of_them_beside_the_rows():
    made = dispatched(plan(told=True, broadcast_order=("rate",)))
    assert list(made.sent.columns)[-1] == "_broadcast"
    assert "explode(sequence(0, 4))" in made.sent.broadcast
    assert "from news" in made.sent.broadcast
    assert made.task.broadcast is not None
    assert made.task.broadcast.order_by == ("rate",)
    assert made.task.shared is not None, "groups keep state, also if none is declared"


def test_what_fails_has_a_column_beside_those_that_come_out():
    made = dispatched(plan(on_error="dead_letter"))
    assert made.schema.names == ["user", "n", "ts", "_failed"]
    assert made.task.dead_letters
    assert made.task.output_schema().names == ["user", "n", "ts", "_failed"]
    assert dispatched(plan()).schema == ROWS


def test_a_function_over_windows_is_told_so():
    spread = p.Spread(id="w", inputs=("s",), of="f", size=10, slide=10)
    assert dispatched(replace_operator(plan(), spread)).task.in_windows
    assert not dispatched(plan()).task.in_windows


def test_a_savepoint_has_the_forms_of_its_state():
    _, frames = resolved(plan(told=True))
    process = frames.resolved.plan["f"]
    assert isinstance(process, p.Process)
    form = FunctionKind().form(process, frames.resolved)
    keyed = frames.resolved.keyed["f"]
    assert (form.operator, form.function, form.shared) == ("f", keyed.stages, keyed.shared)
