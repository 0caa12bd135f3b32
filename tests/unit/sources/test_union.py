"""The columns of the union of all sources: each source has its own, and finds them under its own names."""

from __future__ import annotations

from pyspark.sql import types as T

from midstream.sources.union import HEARTBEAT, TAG, columns, is_of, union_schema

USERS = T.StructType().add("id", "long", nullable=False).add("a`b", "string")
BIDS = T.StructType().add("id", "long").add("at", "timestamp").add("more", T.ArrayType(T.IntegerType()))


def test_every_source_has_columns_of_its_own_which_may_be_null():
    found = union_schema({0: USERS, 3: BIDS})
    assert found.names == [TAG, "c0_0", "c0_1", "c3_0", "c3_1", "c3_2"]
    expected = [T.IntegerType(), *(field.dataType for schema in (USERS, BIDS) for field in schema)]
    assert [field.dataType for field in found] == expected
    assert all(field.nullable for field in found), "they are null in the rows of others"


def test_without_sources_only_the_tag_is_left():
    assert union_schema({}) == T.StructType([T.StructField(TAG, T.IntegerType())])


def test_a_source_finds_its_columns_under_its_own_names():
    assert columns(0, USERS) == ["c0_0 as `id`", "c0_1 as `a``b`"]
    assert columns(3, BIDS) == ["c3_0 as `id`", "c3_1 as `at`", "c3_2 as `more`"]
    assert columns(1, T.StructType()) == []
    taken = {text.split(" as ")[0] for index, schema in ((0, USERS), (3, BIDS)) for text in columns(index, schema)}
    assert taken == {*union_schema({0: USERS, 3: BIDS}).names} - {TAG}


def test_a_row_is_of_the_source_of_its_tag_and_of_none_is_the_heartbeat():
    assert (is_of(0), is_of(12)) == ("_source = 0", "_source = 12")
    assert HEARTBEAT < 0
