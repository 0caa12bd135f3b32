"""What is said of a running plan: hot keys, where they decide, with what would help."""

from __future__ import annotations

from typing import Any

import midstream as ms
from midstream.events import HotKey, Progress
from midstream.flow import builders
from midstream.job.explain import explained_plan
from midstream.plan import plan as p


class Keep(ms.KeyedFunction):
    """Emits nothing."""

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        return ()


KEPT = builders.reading(builders.key_by("k").process(Keep(), schema="k long", id="kept"), "rows")
SUMS = builders.reading(builders.key_by("k").aggregate(n=ms.count(), id="sums"), "rows")
PLAN = p.Plan(name="flow", operators=(p.Source(id="rows", schema="k long"), KEPT, SUMS))


def said(slots: int, **hottest: HotKey) -> list[str]:
    progress = Progress(1, 1, "", {}, {}, {}, 0, 0, hottest=hottest)
    return explained_plan(PLAN, progress, lambda id: slots).removeprefix(PLAN.explain()).splitlines()[1:]


def test_a_key_that_has_more_than_the_share_of_a_slot_is_named_with_what_would_help() -> None:
    (line,) = said(2, kept=HotKey("7", 60, 0.6))
    assert line.startswith("kept: 60% of the rows of the newest epoch have the key 7, more than the share of a slot; ")
    assert "more slots do not help. Let a declared aggregate fold them" in line


def test_of_an_aggregate_it_is_said_that_rows_are_folded_already() -> None:
    assert "they are folded before Python sees them" in said(2, sums=HotKey("7", 60, 0.6))[0]


def test_keys_that_do_not_decide_are_not_mentioned() -> None:
    assert said(2, kept=HotKey("7", 40, 0.4), sums=HotKey("1", 1, 1.0)) == []
    assert explained_plan(PLAN, None, lambda id: 2) == PLAN.explain()
