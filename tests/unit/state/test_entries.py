"""Entries of a store: each kind has its place, in the order of time, and is taken apart as it was put together."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.plan.code import capture
from midstream.plan.plan import StateField
from midstream.state import entries as forms
from midstream.state.entries import Form, Stage, form_of
from midstream.state.stores.contract import FIRST, LAST

MOMENTS = st.integers(-(2**62), 2**62)
KEYS = st.binary(max_size=5) | st.sampled_from([b"\xff", b"\xff\xff\xff", b"\0"])


@given(st.lists(st.integers(-(2**62), 2**62), max_size=10))
def test_deadlines_are_stored_in_the_order_of_time(moments: list[int]):
    encoded = [b"\2" + forms.deadline_bytes(moment) for moment in moments]
    assert [forms.deadline_of(entry) for entry in sorted(encoded)] == sorted(moments)


@given(st.integers(0, 200), st.binary(max_size=5), st.binary(max_size=5))
def test_an_entry_of_a_field_is_taken_apart_as_it_was_put_together(field: int, key: bytes, rest: bytes):
    prefix = forms.field_prefix(field, key)
    assert forms.split_field_entry(prefix + rest) == (field, key, rest)
    assert prefix <= prefix + rest < forms.after(prefix)


@given(st.lists(st.tuples(MOMENTS, KEYS)))
def test_timers_are_stored_by_time_and_each_kind_by_itself(timers: list[tuple[int, bytes]]):
    for tag, timer in ((forms.EVENT, forms.event_timer), (forms.PROCESSING, forms.processing_timer)):
        found = sorted(timer(moment, key) for moment, key in timers)
        assert {entry[0] for entry in found} <= {tag}
        assert [(forms.deadline_of(entry), entry[9:]) for entry in found] == sorted(timers)


@given(KEYS, KEYS)
def test_the_first_key_behind_a_prefix_is_behind_all_that_begin_with_it_and_before_all_others(one: bytes, rest: bytes):
    prefix = b"\1" + one
    assert prefix + rest < forms.after(prefix)
    assert forms.after(prefix)[:-1] == prefix[: len(forms.after(prefix)) - 1]
    for other in (b"\2", prefix[:-1] + bytes((min(prefix[-1] + 1, 255),)), prefix + b"\xff\xff"):
        assert (other >= forms.after(prefix)) == (other > prefix and not other.startswith(prefix))


@given(MOMENTS, st.binary(max_size=5), MOMENTS, MOMENTS)
def test_a_part_of_a_pane_is_taken_apart_as_it_was_put_together(start: int, key: bytes, after: int, until: int):
    pane = b"p" + forms.deadline_bytes(start) + key
    entry = forms.part_entry(pane, after, until)
    assert entry[0] == forms.PART
    assert forms.split_part_entry(entry) == (pane, after, until)


@given(st.integers(0, 10**15), st.integers(1, 10**12), KEYS)
def test_one_looks_for_what_expired_not_before_and_an_eighth_of_its_time_later_at_most(
    moment: int, ttl: int, entry: bytes
):
    note = forms.expiry_note(moment, ttl, entry)
    assert (note[0], note[9:]) == (forms.EXPIRY, entry)
    assert moment <= forms.deadline_of(note) <= moment + max(ttl // 8, 1)


def test_notes_of_what_expires_about_the_same_time_are_shared():
    assert len({forms.expiry_note(moment, 80, b"x") for moment in range(1000, 1080)}) == 9


@given(MOMENTS, KEYS, st.integers(0, 200))
def test_all_entries_lie_where_stores_look_for_them(moment: int, key: bytes, field: int):
    for entry in (
        forms.record_key(key),
        forms.event_timer(moment, key),
        forms.processing_timer(moment, key),
        forms.expiry_note(moment, 8, key),
        forms.part_entry(b"p" + forms.deadline_bytes(moment) + key, moment, moment),
        forms.field_prefix(field, key),
        forms.field_prefix(forms.SHARED, key),
    ):
        assert FIRST <= entry < LAST


def test_entries_are_written_as_snapshots_of_this_format_have_them():
    moment = bytes.fromhex("8000000000000005")  # 5 microseconds after 1970
    assert forms.record_key(b"key") == b"\x01key"
    assert forms.event_timer(5, b"key") == b"\x02" + moment + b"key"
    assert forms.processing_timer(5, b"key") == b"\x03" + moment + b"key"
    assert forms.expiry_note(5, 8, b"entry") == b"\x04" + moment + b"entry"
    assert forms.field_prefix(forms.SHARED, b"key") == b"\x05\0\0\0\3key"
    assert forms.part_entry(b"p" + moment + b"key", 5, 5) == b"\x07p" + 3 * moment + b"key"
    assert forms.field_prefix(0, b"key") == b"\x10\0\0\0\3key"
    assert forms.field_prefix(2, b"") == b"\x12\0\0\0\0"


# --- forms ----------------------------------------------------------------------------------------------------------

FIELDS = (
    StateField(name="total", kind="value", type="long"),
    StateField(name="brief", kind="value", type="long", ttl=5),
    StateField(name="seen", kind="map", key_type="string", type="long"),
)
TYPES = {"total": pa.int64(), "brief": pa.int64(), "seen": pa.int64(), "seen key": pa.string()}


def schema(types: dict[str, pa.DataType]) -> bytes:
    return pa.schema(list(types.items())).serialize().to_pybytes()


@pytest.mark.parametrize("base", [0, 3, 10])
def test_a_form_knows_its_own_records_and_entries(base: int):
    form = Form("sums", FIELDS, TYPES, base)
    record = form.record(b"key")
    assert form.key_of_record(record) == b"key"
    assert form.key_of_record(forms.event_timer(0, b"key")) is None
    numbers = [form.number(at) for at in range(3)]
    assert [form.field_at(number) for number in numbers] == [0, 1, 2]
    assert form.field_at(max(numbers) + 1) is None
    assert all(form.owns(forms.field_prefix(number, b"key") + b"x") for number in numbers)
    assert not form.owns(forms.event_timer(0, b"key"))
    assert not form.owns(forms.field_prefix(max(numbers) + 1, b"key"))
    assert (set(form.plain), form.expires) == ({"total"}, True)


@given(st.binary(max_size=4), st.binary(max_size=4))
def test_records_and_entries_of_a_form_and_of_those_before_it_lie_apart(one: bytes, other: bytes):
    first, second, third = (Form("sums", FIELDS, TYPES, base) for base in (0, 3, 7))
    for form, others in ((first, (second, third)), (second, (first, third)), (third, (first, second))):
        for strange in others:
            assert strange.key_of_record(form.record(one)) is None
            assert not any(strange.owns(forms.field_prefix(form.number(at), other)) for at in range(3))


def test_what_nothing_in_a_form_expires_does_not_expire_unless_something_in_an_older_one_does():
    plain = Form("sums", FIELDS[:1], TYPES)
    assert not plain.expires
    assert Form("sums", FIELDS[:1], TYPES, 3, older=Form("sums", FIELDS, TYPES)).expires


def test_the_form_of_today_has_the_older_ones_behind_it():
    migrate = capture(lambda state: {"total": state["count"] * 2}, what="it", shipped=True)
    newer = Stage(FIELDS, schema(TYPES), 1, migrate)
    older = Stage((StateField(name="count", kind="value", type="long"),), schema({"count": pa.int64()}), 0, None)
    form = form_of("sums", (newer, older))
    assert (form.base, form.index) == (1, {"total": 0, "brief": 1, "seen": 2})
    assert form.older is not None
    assert (form.older.base, form.older.index, form.older.older) == (0, {"count": 0}, None)
    assert form.migrate is not None
    assert form.migrate({"count": 4}) == {"total": 8}
