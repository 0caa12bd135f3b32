"""The sources of a query, in Spark's order: a list that only grows, and an offset log that is made to fit."""

from __future__ import annotations

import msgspec
import pytest

from midstream.checkpoint.offsets import (
    HEARTBEAT,
    Feed,
    check_known,
    committed,
    comparable,
    fitted,
    grown,
    shortened,
    tags,
)
from midstream.errors import CheckpointError, PlanError
from midstream.plan.code import Code
from midstream.plan.plan import Plan, Source

A, B, C = (Feed(id=id, schema="v long") for id in "abc")
BEAT = Feed(id=HEARTBEAT)


def plan(*ids: str, code: str = "") -> Plan:
    made_by = Code(digest=code, key=code, name=code) if code else None
    return Plan(name="p", operators=tuple(Source(id=id, schema="v long", code=made_by) for id in ids))


def gone(feed: Feed) -> Feed:
    return msgspec.structs.replace(feed, forgotten=True)


def test_sources_are_added_at_the_end_and_never_leave():
    first = grown((), plan("a"), {}, heartbeat=True)
    assert first == (BEAT, A)
    assert grown(first, plan("b"), {"b": 1}, heartbeat=False) == (BEAT, A, B), "a is removed and stays"
    assert grown((A, B), plan("b", "a"), {}, heartbeat=False) == (A, B), "their order in the plan does not matter"
    assert grown((A,), plan("a"), {}, heartbeat=True) == (A, BEAT), "a heartbeat may come later"


def test_a_forgotten_source_keeps_its_number_and_comes_again_under_another():
    feeds = grown((gone(A), B), plan("a", "b"), {}, heartbeat=False)
    assert feeds == (gone(A), B, A)
    assert tags(feeds) == {"b": 1, "a": 2}


def test_a_source_of_several_readers_has_several_lines_and_keeps_them():
    (two,) = grown((), plan("a"), {"a": 2}, heartbeat=False)
    assert two.lines == 2
    with pytest.raises(PlanError, match="made of 2 streams and is made of 3 now"):
        grown((two,), plan("a"), {"a": 3}, heartbeat=False)


@pytest.mark.parametrize(
    ("log", "feeds", "after"),
    [
        ("5", (A,), "5"),
        ("5", (A, B), "5\n-"),
        ("5\n6", (gone(A), B), "-\n6"),
        ("5\n6\n7", (gone(msgspec.structs.replace(A, lines=2)), B), "-\n-\n7"),
    ],
)
def test_the_offset_log_is_made_to_fit(log: str, feeds: tuple[Feed, ...], after: str):
    assert fitted(f"v1\n{{}}\n{log}", feeds, "offsets/1") == f"v1\n{{}}\n{after}"


def test_more_offsets_than_sources_are_refused():
    with pytest.raises(CheckpointError, match="offsets/1 has offsets of 2 sources, the job has 1"):
        fitted("v1\n{}\n5\n6", (A,), "offsets/1")


def test_sources_that_were_added_and_never_used_are_taken_back():
    assert committed((A, BEAT, B, C), plan("a"), ("1", "2")) == (A, BEAT)
    assert committed((A, BEAT, B, C), plan("a"), ("1", "2", "3")) == (A, BEAT, B), "b was used"
    assert committed((A, B), plan("a", "b"), ("1",)) == (A, B), "b is part of the plan"
    assert shortened("v1\n{}\n1\n2\n-\n4", (A, BEAT)) == "v1\n{}\n1\n2"


def test_two_records_of_an_epoch_agree_whatever_forgotten_sources_had():
    assert comparable(("1", "2", "3"), (A, gone(B), C)) == comparable(("1", "-", "3"), (A, gone(B), C)) == ("1", "3")
    assert comparable(("1", "2"), (A, gone(B))) == comparable(("1",), (A, gone(B))) == ("1",)


def test_a_running_job_takes_no_source_that_a_restart_could_not_make_again():
    with pytest.raises(PlanError, match="give a function of the session instead of a DataFrame"):
        check_known((A,), plan("a", "b"))
    check_known((A,), plan("a", "b", code="x"))


def test_a_source_made_by_other_code_does_not_take_over_the_offsets_of_a_removed_one():
    known = msgspec.structs.replace(B, code=Code(digest="x", key="x", name="x"))
    check_known((A, known), plan("b", code="x"))
    with pytest.raises(PlanError, match=r"made by other code.*job\.forget\('b'\)"):
        check_known((A, known), plan("b", code="y"))
    with pytest.raises(PlanError, match="cannot change that"):
        check_known((msgspec.structs.replace(A, schema="v int"),), plan("a"))


def test_a_source_whose_digest_is_of_an_older_form_is_known_by_its_text():
    known = msgspec.structs.replace(B, code=Code(digest="x", key="x", name="x", source="lambda spark: 1"))
    new = plan("b", code="2:x")
    same = msgspec.structs.replace(new[B.id].code, source="lambda spark: 1")
    check_known((A, known), with_code(new, same))
    for text in ("lambda spark: 2", ""):
        with pytest.raises(PlanError, match="made by other code"):
            check_known((A, known), with_code(new, msgspec.structs.replace(same, source=text)))


def with_code(plan: Plan, code: Code) -> Plan:
    operators = [msgspec.structs.replace(o, code=code) if o.id == B.id else o for o in plan.operators]
    return msgspec.structs.replace(plan, operators=tuple(operators))
