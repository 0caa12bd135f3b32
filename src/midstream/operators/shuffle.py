"""How the rows of a keyed operator reach its slots: one projection, one shuffle, one task per slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from midstream.operators.functions.task import BROADCAST
from midstream.operators.keyed_run import KeyedRun
from midstream.operators.kind import Frames
from midstream.operators.resolved import Keyed, hashed
from midstream.operators.schemas import serialised
from midstream.operators.task import GROUP, MARKER, SLOT, SlotTask
from midstream.operators.watermarks import varying
from midstream.plan import plan as p
from midstream.plan.sql import quote

Node_contra = TypeVar("Node_contra", bound=p.KeyedOperator, contravariant=True)


@dataclass(frozen=True, slots=True)
class Sent:
    """What is sent to the slots of a keyed operator."""

    rows: str  # a table, or a query in parentheses
    columns: dict[str, str]  # name -> SQL
    combine: bool = False  # rows of a key are folded in the JVM: the columns are aggregates
    with_keys: bool = False  # the key columns are sent too
    moment: str = ""  # the column of `rows` that says where in time a row belongs, a key too
    broadcast: str = ""  # a query: the rows that every group gets


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What is sent to the slots of an operator in one run of an epoch."""

    sent: Sent
    task: SlotTask
    schema: StructType  # of what the task emits


class Dispatches(Protocol[Node_contra]):
    """What the shuffle needs of a kind with state."""

    def dispatch(self, operator: Node_contra, frames: Frames, common: dict[str, Any]) -> Dispatch:
        """Return what is sent to the slots, and their task; `common` has the arguments of every `SlotTask`."""
        ...


def slots_frame(
    kind: Dispatches[Node_contra], operator: Node_contra, frames: Frames, *, markers: bool | None = None
) -> DataFrame:
    """Return what the tasks of all slots emit; with `markers` those without rows run too."""
    run, keyed = frames.keyed[operator.id], frames.resolved.keyed[operator.id]
    directory, aside = frames.directories(run.head.home)
    common: dict[str, Any] = {
        "operator": operator.id,
        "head": run.head,
        "epoch": run.epoch,
        "directory": directory,
        "aside": aside,
        "schema": serialised(keyed.output),
        "keys": tuple(keyed.keys.names),
        "routing": run.routing,
    }
    made = kind.dispatch(operator, frames, common)
    query = placement(made.sent, operator, keyed, run, markers=run.markers if markers is None else markers)
    return frames.spark.sql(query).mapInArrow(made.task, made.schema)


def placement(sent: Sent, operator: p.KeyedOperator, keyed: Keyed, run: KeyedRun, *, markers: bool) -> str:
    """The query that adds group and slot to rows, sends them to the task of their slot, and folds them there.

    `group = pmod(xxhash64(key), groups)`, `slot = routing[group]`, all in the JVM, and one shuffle. Folding comes
    after it: then Spark sees that all rows of a key are in one partition, and folds in one pass. A slot's marker row
    makes it run without rows too, and carries its number: Spark's partition ids do not survive a union or a coalesce.
    On a cluster the row of the anchor does that, and Spark runs the slot where that row is cached.
    """
    routing = run.routing
    keys = [quote(key) for key in keyed.keys.names]
    group = f"cast(pmod(xxhash64({hashed(operator, keyed)}), {len(routing.owners)}L) as int)"
    slot = _slot(run)
    epoch = varying(run.epoch.epoch, f"hash({keys[0]})") if keys else f"{run.epoch.epoch}L"
    located = f"select *, {group} as {GROUP}, {epoch} as _epoch from {sent.rows}"
    along = keys if sent.with_keys else []
    selected = [*along, *(f"{expression} as {quote(name)}" for name, expression in sent.columns.items())]
    moment = [sent.moment] if sent.moment else []
    before = [*(quote(field.name) for field in keyed.input), *moment, "_epoch"] if sent.combine else selected
    names = before if sent.combine else [*along, *map(quote, sent.columns)]
    rows = f"select {', '.join([f'{slot} as {SLOT}', GROUP, *before])} from ({located})"
    if sent.broadcast:
        rows += f" union all select {slot}, {GROUP}{', null' * (len(before) - 1)}, {BROADCAST} from ({sent.broadcast})"
    if markers and not run.anchor:
        token = f"get(array({', '.join(map(str, routing.tokens))}), cast(id as int))"
        rows += f" union all select {token}, {MARKER}{', null' * len(before)} from range(0, {routing.slots}, 1, 1)"
    placed = f"select /*+ REPARTITION({routing.slots}, {SLOT}) */ * from ({rows})"
    if run.anchor:
        placed = _anchored(placed, names, run.anchor)
    if not sent.combine:
        return placed
    return f"select {', '.join([SLOT, GROUP, *selected])} from ({placed}) group by {', '.join([SLOT, GROUP, *keys])}"


def _slot(run: KeyedRun) -> str:
    """The slot of a row by its group, as SQL; a row of a group that two slots process comes twice."""
    owners, tokens = run.routing.owners, run.routing.tokens
    if not run.both:
        return f"get(array({', '.join(str(tokens[owner]) for owner in owners)}), {GROUP})"
    twice = [(owner, run.both[group]) if group in run.both else (owner,) for group, owner in enumerate(owners)]
    lists = (f"array({', '.join(str(tokens[slot]) for slot in slots)})" for slots in twice)
    return f"explode(get(array({', '.join(lists)}), {GROUP}))"


def _anchored(placed: str, names: Sequence[str], anchor: str) -> str:
    """Join rows with the anchor, which has one row for each slot, on the executor that runs it."""
    shown = ", ".join(f"r.{name}" for name in names)
    return (
        f"select /*+ SHUFFLE_HASH(r) */ a.{SLOT}, coalesce(r.{GROUP}, {MARKER}) as {GROUP}, {shown} "
        f"from {anchor} a left join ({placed}) r on a.{SLOT} = r.{SLOT}"
    )
