"""What a node answers for itself, also one of another package; tags are not taken twice."""

from __future__ import annotations

import pytest

from midstream.errors import PlanError
from midstream.plan import plan as p
from midstream.plan.code import Code, capture


class Sampled(p.Operator, frozen=True, kw_only=True, tag="sampled"):
    rate: float


class Called(p.Operator, frozen=True, kw_only=True, tag="called"):
    code: Code
    on_error: str = "fail"


def test_a_tag_belongs_to_one_node():
    class Other(p.Operator, frozen=True, kw_only=True, tag="source"):
        pass

    with pytest.raises(PlanError, match="the tag 'source' of Other is taken by Source"):
        p.register_node(Other)


def test_a_node_of_another_package_answers_for_its_code_and_its_errors():
    called = Called(id="x", code=capture(abs, what="it", shipped=True))
    plan = p.Plan(name="flow", operators=(Sampled(id="some", rate=0.5), called))  # type: ignore[arg-type]
    assert list(p.codes(plan)) == [called.code]
    asides = [called, Called(id="x", code=called.code, on_error="dead_letter")]
    assert [(each.may_fail, each.gives_errors) for each in asides] == [(True, False), (True, True)]
    assert (plan["some"].may_fail, plan["some"].gives_errors) == (False, False)
    assert plan["some"].described == "sampled"


def test_what_keeps_state_must_say_what_it_is():
    class Silent(p.KeyedOperator, frozen=True, kw_only=True, tag="silent"):
        pass

    with pytest.raises(NotImplementedError, match="Silent does not say what its state is"):
        Silent(id="x", keys=("k",)).signature  # noqa: B018
