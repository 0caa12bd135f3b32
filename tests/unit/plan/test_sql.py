"""Names in SQL: quoted, each is read as itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from midstream.plan.sql import quote


def read(text: str) -> tuple[str, str]:
    """Read a quoted name as SQL does, character by character; and what follows it."""
    assert text[0] == "`"
    name, at = "", 1
    while True:
        if text[at] != "`":
            name, at = name + text[at], at + 1
        elif text[at : at + 2] == "``":
            name, at = name + "`", at + 2
        else:
            return name, text[at + 1 :]


@given(st.text(alphabet="ab`. \\'\"\n") | st.text(), st.sampled_from(["", " as x", ", 1", "."]))
def test_a_quoted_name_is_read_as_itself_whatever_follows(name: str, rest: str):
    assert read(quote(name) + rest) == (name, rest)
