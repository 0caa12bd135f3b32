"""A call that fails leaves no trace: state, timers and output are as before it, and its rows are put aside."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructField, StructType

import midstream as ms
from midstream.operators.dead_letters import FAILED
from midstream.operators.functions.calls import YieldedRows
from midstream.operators.schemas import arrow_schema
from tests.support.function_slot import Breaks, Ledger, Slot
from tests.support.window_slot import GROUPS


@dataclass
class Model:
    """What the ledger must hold: plain dictionaries, copied before each call and put back if it fails."""

    keys: dict[int, dict[str, Any]] = field(default_factory=dict)
    groups: dict[int, dict[str, Any]] = field(default_factory=dict)

    def epoch(self, rows: list[tuple[int, int]], mark: int) -> tuple[Counter[Any], Counter[Any]]:
        out, failed = Counter[Any](), Counter[Any]()
        for group in range(GROUPS):
            for key in sorted({key for key, _ in rows if key % GROUPS == group}):
                mine = sorted(n for k, n in rows if k == key)
                if not self._call(key, mine, out, sign=1, fails=lambda n: n % 5 == 0 or n == 13):
                    failed.update((key, n, None) for n in mine)
            timers = [(at, key) for key in self.keys if key % GROUPS == group for at in self.keys[key]["timers"]]
            due = sorted((at, key) for at, key in timers if at <= mark)
            for at, key in due:
                self.keys[key]["timers"].discard(at)
            for at, key in due:
                if not self._call(key, [at], out, sign=-1, fails=lambda at: at % 3 == 0):
                    failed[key, None, at] += 1
        return out, failed

    def _call(self, key: int, numbers: list[int], out: Counter[Any], *, sign: int, fails: Any) -> bool:
        state = copy.deepcopy(self.keys.get(key, {"total": 0, "each": [], "last": {}, "timers": set()}))
        shared = copy.deepcopy(self.groups.get(key % GROUPS, {"noted": [], "count": 0}))
        made = []
        for n in numbers:
            state["total"] += n
            state["kept"] = n
            state["each"].append(n)
            if n % 2:
                state["last"][n % 4] = n
            else:
                state["last"], state["each"] = {}, state["each"][-3:]
            shared["noted"].append(n)
            shared["count"] += 1
            state["timers"] = (state["timers"] | {n + 100}) - {n + 101}
            made.append((key, sign * state["total"]))
            if fails(n):
                return False
        self.keys[key], self.groups[key % GROUPS] = state, shared
        out.update(made)
        return True


class Look(Ledger):
    """Shows what the state of a key is."""

    def process(self, key: int, rows: list[Any], ctx: ms.Context) -> Iterator[Any]:
        found = {
            "total": self.total, "kept": self.kept, "each": list(self.each), "last": sorted(self.last.items()),
            "noted": list(self.noted), "count": self.count,
        }  # fmt: skip
        yield key, json.dumps(found)


def halves(found: list[dict[str, Any]]) -> tuple[Counter[Any], Counter[Any]]:
    """What came out, and what was put aside: key, number or none, second of the timer or none."""
    out = Counter((row["key"], row["n"]) for row in found if row[FAILED] is None)
    failed = [row[FAILED] for row in found if row[FAILED] is not None]
    return out, Counter((f["row"]["key"], f["row"]["n"], f["timer"] and int(f["timer"].timestamp())) for f in failed)


ROWS = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 30)), max_size=8)


@given(st.lists(ROWS, max_size=5))
def test_a_call_that_fails_leaves_nothing_and_others_are_as_if_it_had_not_been(epochs: list[Any]):
    slot, model = Slot(Ledger()), Model()
    for number, rows in enumerate(epochs):
        mark = 100 + 10 * number
        assert halves(slot.epoch(rows, mark)) == model.epoch(rows, mark)
    slot.function = Look()
    told = arrow_schema(StructType([StructField("key", LongType())])).append(pa.field("n", pa.string()))
    seen = {row["key"]: json.loads(row["n"]) for row in slot.epoch([(key, 0) for key in range(7)], 0, told)}
    for key in range(7):
        mine = model.keys.get(key, {"total": 0, "each": [], "last": {}})
        shared = model.groups.get(key % GROUPS, {"noted": [], "count": 0})
        assert seen[key] == {
            "total": mine["total"], "kept": mine.get("kept"), "each": mine["each"],
            "last": [list(item) for item in sorted(mine["last"].items())], **shared,
        }  # fmt: skip


@pytest.mark.parametrize("error", [ConnectionError("gone"), MemoryError(), KeyboardInterrupt()])
def test_what_no_row_is_to_blame_for_is_raised(error: BaseException):
    with pytest.raises(type(error)):
        Slot(Breaks(error)).epoch([(1, 1)], 0)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 64), 1 << 64), st.floats(), st.text(st.characters(), max_size=3),
    st.binary(max_size=3), st.datetimes(), st.decimals(), st.lists(st.integers(0, 9), max_size=2),
)  # fmt: skip
TYPES = (pa.int64(), pa.int32(), pa.float64(), pa.float32(), pa.string(), pa.bool_(), pa.timestamp("us", tz="UTC"))


@given(st.lists(st.tuples(VALUES, VALUES), max_size=3), st.sampled_from(TYPES), st.sampled_from(TYPES))
def test_what_is_found_to_fit_when_it_is_yielded_fits_in_the_end(rows: list[Any], first: Any, second: Any):
    output = YieldedRows("fits", pa.schema([("a", first), ("b", second)]))
    try:
        output.check(rows)
    except ms.SchemaError:
        output.add(rows)
        with pytest.raises(ms.SchemaError):
            output.batches()
    else:
        output.add(rows)
        assert sum(batch.num_rows for batch in output.batches()) == len(rows)
