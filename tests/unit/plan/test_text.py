"""A plan as text: it is read back as it was written, and nothing in it is run."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from midstream.errors import PlanError
from midstream.plan import plan as p
from midstream.plan.compatibility import difference
from midstream.plan.text import decode, encode
from tests.support.plans import PLAN, SOURCE, SUMS, plan

TOTAL = SUMS.state[0]


def test_a_plan_is_read_back_as_it_was_written():
    assert decode(encode(PLAN)) == PLAN


@pytest.mark.parametrize(
    "default",
    [
        0,
        -1.5,
        0.1,
        math.inf,
        -math.inf,
        math.nan,
        True,
        "text",
        'it\'s "quoted"\n',
        "inf",
        b"\x00\xff",
        (1, ("a", None)),
        Decimal("1.50"),
        dt.date(2020, 2, 29),
        dt.datetime(2020, 1, 1, 12, 30),
        dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc),
        None,
    ],
    ids=repr,
)
def test_a_default_is_read_back_as_it_was_written(default: Any):
    written = plan(
        SOURCE, msgspec.structs.replace(SUMS, inputs=("in",), state=(msgspec.structs.replace(TOTAL, default=default),))
    )
    read = decode(encode(written))
    assert repr(read["sums"].state[0].default) == repr(default)  # type: ignore[union-attr]
    assert not difference(written, read)


def test_a_default_that_cannot_be_kept_is_refused():
    class Mine:
        pass

    state = (msgspec.structs.replace(TOTAL, default=Mine()),)
    with pytest.raises(PlanError, match=r"the default of state 'total', .*Mine.*, cannot be kept"):
        encode(plan(SOURCE, msgspec.structs.replace(SUMS, inputs=("in",), state=state)))


def test_a_plan_is_json_that_people_can_read():
    text = encode(PLAN).decode()
    assert '"kind": "watermark"' in text
    assert '"default": "0.0"' in text


def test_a_plan_from_before_versions_and_tuning_is_read_as_the_first():
    known = msgspec.json.decode(encode(PLAN))
    for name in ("version", "tuning"):
        del known[name]
    found = decode(msgspec.json.encode(known))
    assert found == msgspec.structs.replace(PLAN, version=1, tuning=p.Tuning())
    assert PLAN.version != 1


def test_a_tuned_plan_is_read_back_as_it_was_written():
    tuned = msgspec.structs.replace(PLAN, tuning=p.Tuning(max_rows_per_epoch=7, standbys=0))
    assert decode(encode(tuned)) == tuned


# --- nodes of other packages ----------------------------------------------------------------------------------------


class Sampled(p.Operator, frozen=True, kw_only=True, tag="sampled"):
    rate: float


def test_a_plan_file_brings_back_a_node_of_another_package():
    p.register_node(Sampled)
    written = p.Plan(name="flow", operators=(p.Source(id="rows", schema="k long"), Sampled(id="some", rate=0.5)))  # type: ignore[arg-type]
    assert decode(encode(written)) == written


def test_a_node_that_nobody_has_registered_is_named():
    written = p.Plan(name="flow", operators=(p.Source(id="rows", schema="k long"),))
    text = encode(written).replace(b'"source"', b'"unheard of"')
    with pytest.raises(PlanError, match="an operator of kind 'unheard of', which is not registered"):
        decode(text)
