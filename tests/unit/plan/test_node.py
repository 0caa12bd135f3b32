"""Nodes of plans: those of other packages are kept in plan files, and tags are not taken twice."""

from __future__ import annotations

import pytest

from midstream.errors import PlanError
from midstream.plan import plan as p
from midstream.plan import text


class Sampled(p.Operator, frozen=True, kw_only=True, tag="sampled"):
    rate: float


def test_a_plan_file_brings_back_a_node_of_another_package():
    p.register_node(Sampled)
    plan = p.Plan(name="flow", operators=(p.Source(id="rows", schema="k long"), Sampled(id="some", rate=0.5)))  # type: ignore[arg-type]
    assert text.decode(text.encode(plan)) == plan


def test_a_node_that_nobody_has_registered_is_named():
    plan = p.Plan(name="flow", operators=(p.Source(id="rows", schema="k long"),))
    written = text.encode(plan).replace(b'"source"', b'"unheard of"')
    with pytest.raises(PlanError, match="an operator of kind 'unheard of', which nobody has registered"):
        text.decode(written)


def test_a_tag_belongs_to_one_node():
    class Other(p.Operator, frozen=True, kw_only=True, tag="source"):
        pass

    with pytest.raises(PlanError, match="the tag 'source' of Other is taken by Source"):
        p.register_node(Other)


def test_what_keeps_state_must_say_what_it_is():
    class Silent(p.KeyedOperator, frozen=True, kw_only=True, tag="silent"):
        pass

    with pytest.raises(NotImplementedError, match="Silent does not say what its state is"):
        Silent(id="x", keys=("k",)).signature  # noqa: B018
