"""The query that brings the rows of a keyed operator to the tasks of their slots: one projection, one shuffle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from midstream.operators.functions.task import BROADCAST
from midstream.operators.resolved import Keyed, hashed
from midstream.operators.task import (
    GROUP,
    MARKER,
    SLOT,
    Epoch,
)
from midstream.operators.watermarks import varying
from midstream.plan import plan as p
from midstream.plan.routing import Routing
from midstream.plan.sql import quote
from midstream.plan.window_regimes import Regime
from midstream.state.history import Head


@dataclass(frozen=True, slots=True)
class KeyedRun:
    """What one keyed operator needs in one run of an epoch."""

    head: Head
    epoch: Epoch
    routing: Routing
    combine: bool  # fold rows in the JVM before they go to Python
    markers: bool  # make slots without rows run too; left out where all are expected to have rows, for a task less
    anchor: str = ""  # the table that keeps slots on their executors, and makes them run too; none on one host
    both: Mapping[int, int] = field(default_factory=dict)  # group -> a second slot that gets its rows
    regimes: tuple[Regime, ...] = ()  # of windows: which are of which shape; none: all of that of the plan


@dataclass(frozen=True, slots=True)
class Sent:
    """What goes to the slots of a keyed operator."""

    rows: str  # a table, or a query in parentheses
    columns: dict[str, str]  # name -> SQL
    combine: bool = False  # rows of a key are folded in the JVM: the columns are aggregates
    with_keys: bool = False  # the key columns go along besides
    moment: str = ""  # the column of `rows` that says where in time a row belongs, a key too
    told: str = ""  # a query: the rows that every group gets


def placement(sent: Sent, operator: p.KeyedOperator, keyed: Keyed, run: KeyedRun, *, markers: bool) -> str:
    """The query that gives rows their group and slot, sends them to the task of their slot, and folds them there.

    `group = pmod(xxhash64(key), groups)`, `slot = routing[group]`, all in the JVM, and one shuffle. Folding comes
    after it: Spark sees that all rows of a key are in one place then, and folds in one pass. A slot's marker row makes
    it run without rows too, and know its own number: Spark's partition ids do not survive a union or a coalesce. On a
    cluster the row of the anchor does that, and Spark runs the slot where that row is cached.
    """
    routing = run.routing
    keys = [quote(key) for key in keyed.keys.names]
    group = f"cast(pmod(xxhash64({hashed(operator, keyed)}), {len(routing.owners)}L) as int)"
    slot = f"get(array({', '.join(str(routing.tokens[owner]) for owner in routing.owners)}), {GROUP})"
    if run.both:
        twice = [
            (owner, run.both[group]) if group in run.both else (owner,) for group, owner in enumerate(routing.owners)
        ]
        lists = (f"array({', '.join(str(routing.tokens[slot]) for slot in slots)})" for slots in twice)
        slot = f"explode(get(array({', '.join(lists)}), {GROUP}))"
    epoch = varying(run.epoch.epoch, f"hash({keys[0]})") if keys else f"{run.epoch.epoch}L"
    located = f"select *, {group} as {GROUP}, {epoch} as _epoch from {sent.rows}"
    along = keys if sent.with_keys else []
    selected = [*along, *(f"{expression} as {quote(name)}" for name, expression in sent.columns.items())]
    moment = [sent.moment] if sent.moment else []
    before = [*(quote(field.name) for field in keyed.input), *moment, "_epoch"] if sent.combine else selected
    names = before if sent.combine else [*along, *map(quote, sent.columns)]
    rows = f"select {', '.join([f'{slot} as {SLOT}', GROUP, *before])} from ({located})"
    if sent.told:
        rows += f" union all select {slot}, {GROUP}{', null' * (len(before) - 1)}, {BROADCAST} from ({sent.told})"
    if markers and not run.anchor:
        token = f"get(array({', '.join(map(str, routing.tokens))}), cast(id as int))"
        rows += f" union all select {token}, {MARKER}{', null' * len(before)} from range(0, {routing.slots}, 1, 1)"
    placed = f"select /*+ REPARTITION({routing.slots}, {SLOT}) */ * from ({rows})"
    if run.anchor:
        shown = ", ".join(f"r.{name}" for name in names)
        placed = (
            f"select /*+ SHUFFLE_HASH(r) */ a.{SLOT}, coalesce(r.{GROUP}, {MARKER}) as {GROUP}, {shown} "
            f"from {run.anchor} a left join ({placed}) r on a.{SLOT} = r.{SLOT}"
        )
    if not sent.combine:
        return placed
    return f"select {', '.join([SLOT, GROUP, *selected])} from ({placed}) group by {', '.join([SLOT, GROUP, *keys])}"
