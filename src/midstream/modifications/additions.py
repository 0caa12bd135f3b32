"""Changes that add to a running plan what a flow is needed to build: sources and branches."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from midstream.errors import MidstreamError, PlanError
from midstream.flow.flow import Flow
from midstream.flow.streams import Stream
from midstream.modifications import changes
from midstream.modifications.changes import Change
from midstream.modifications.composites import Built
from midstream.plan.plan import Plan
from midstream.sources.given import given

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def add_source(id: str, source: Callable[..., DataFrame]) -> Change:
    """Read one more source, from the cut on: a function of the session that gives a streaming DataFrame.

    In the same step give it readers: `ms.branch(id, ...)`, or `ms.insert("all", ms.union(id), after=...)`. The query
    of Spark under the job is exchanged between two epochs; state and all other sources go on. One that was removed
    goes on where it was.
    """
    if not callable(source):
        raise PlanError(
            f"add_source {id!r} needs a function of the session, such as lambda spark: spark.readStream...: it is "
            "kept, so that a restart can make the source again"
        )
    operator, _ = given(id, source)

    def apply(plan: Plan) -> Plan:
        changes.refuse_known(plan, id)
        return msgspec.structs.replace(plan, operators=(operator, *plan.operators))

    return Change(f"add source {id!r}", apply)


def built(build: Callable[[Stream], object]) -> Built:
    """An operator for `ms.replace` and `ms.insert` that must know the columns of its rows: a join, a top, counts.

        ms.replace("hottest", ms.built(lambda counts: counts.top("hottest", 5, by="n")))

    `build` is called when the change is validated, with what the operator reads, of a join the left side;
    `counts.flow.stream("other")` is any other operator that does not depend on the one that is replaced. It must give
    the operator the id that the change names. What read the old one reads the new one.
    """
    if not callable(build):
        raise PlanError("built needs a function of a stream, such as lambda counts: counts.top(...)")

    def over(plan: Plan, read: str, id: str) -> Plan:
        new = _grown(plan, read, build, f"the function of ms.built for {id!r}")
        if all(operator.id != id for operator in new.operators):
            made = [operator.id for operator in new.operators[len(plan.operators) :]]
            raise PlanError(f"the function of ms.built made {', '.join(map(repr, made))}, but no operator {id!r}")
        return new

    return Built(over)


def branch(after: str, build: Callable[[Stream], object]) -> Change:
    """Feed a new subtree from an operator of the running plan: `ms.branch("big", lambda big: big.sink(...))`.

    It may read other operators of the plan too, such as `big.flow.stream("small")`. `build` is called when the change
    is validated, with the plan of that moment: a variable that it uses may have another value by then, so write
    `lambda big, limit=limit: ...` where it is that of a loop.
    """

    def apply(plan: Plan) -> Plan:
        return _grown(plan, after, build, f"the function of the branch after {after!r}")

    return Change(f"branch after {after!r}", apply)


def _grown(plan: Plan, read: str, build: Callable[[Stream], object], what: str) -> Plan:
    flow = Flow.of(plan)
    try:
        build(flow.stream(read))
    except MidstreamError:
        raise
    except Exception as error:
        raise PlanError(f"{what} failed: {type(error).__name__}: {error}\n{traceback.format_exc()}") from error
    new = flow.plan()
    if new.operators == plan.operators or flow.sources:
        raise PlanError(f"{what} must add operators and sinks to the stream that is given, and no source")
    return msgspec.structs.replace(plan, operators=new.operators)
