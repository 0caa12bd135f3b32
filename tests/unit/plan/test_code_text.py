"""The text of code: the shape of its source where that is sure, else its bytecode; and the names that it uses."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

from midstream.plan.code_text import file_text, is_current, text, uses

Written = Callable[..., ModuleType]


def code(module: ModuleType, name: str = "function") -> CodeType:
    found: CodeType = getattr(module, name).__code__
    return found


PLAIN = "def function(x, *rest, step=1, **more):\n    return [x + 0x10 for y in rest if y] or 'it'\n"


@pytest.mark.parametrize(
    "same",
    [
        "# a comment\n\n" + PLAIN,
        PLAIN.replace("x + 0x10", "x   +  (16)"),
        PLAIN.replace("'it'", '"it"'),
        PLAIN.replace("    return", "    # why\n    return"),
        PLAIN.replace("step=1", "step=2"),
        PLAIN.replace("step=1", "step: int = 1").replace("):\n", ") -> list:\n"),
        "def other(f):\n    return f\n@other\n" + PLAIN,
        "if True:\n" + textwrap.indent(PLAIN, "    "),
    ],
    ids=["comment above", "layout", "quotes", "comment inside", "default", "annotations", "decorator", "indented"],
)
def test_the_text_is_the_shape_of_the_source(written: Written, same: str):
    assert same != PLAIN
    assert text(code(written(one=PLAIN))) == text(code(written(other=same)))


@pytest.mark.parametrize(
    "edit",
    [
        ("0x10", "17"),
        ("'it'", "b'it'"),
        ("x + 0x10", "x - 0x10"),
        ("x + 0x10", "y + 0x10"),
        ("*rest, step=1", "rest, *, step=1"),
        ("x, *rest", "x, /, *rest"),
        ("step=1", "other=1"),
        ("return", "yield"),
        ("if y", ""),
        (" or ", " and "),
        ("0x10", "16.0"),
        ("0x10", "True"),
    ],
)
def test_it_differs_where_the_code_does(written: Written, edit: tuple[str, str]):
    assert edit[0] in PLAIN
    assert text(code(written(one=PLAIN))) != text(code(written(other=PLAIN.replace(*edit))))


def test_code_without_a_file_has_the_text_of_its_bytecode():
    def made(source: str) -> CodeType:
        space: dict[str, Any] = {}
        exec(source, space)
        found: CodeType = space["function"].__code__
        return found

    assert text(made(PLAIN)) == text(made("\n\n" + PLAIN))
    assert text(made(PLAIN)) != text(made(PLAIN.replace("0x10", "17")))
    assert not is_current(made(PLAIN))


def test_of_two_lambdas_on_a_line_each_has_a_text_of_its_own(written: Written):
    both = written(own="one, other = lambda x: x + 1, lambda x: x + 2\n")
    assert text(code(both, "one")) != text(code(both, "other"))
    same = written(own="one, other = lambda x: x + 1, lambda x: x + 1\n")
    assert text(code(same, "one")) == text(code(same, "other"))


def test_functions_of_one_name_are_told_apart(written: Written):
    module = written(own="def function():\n    return 1\nfirst = function\ndef function():\n    return 2\n")
    alone = written(alone="def function():\n    return 1\n")
    assert text(code(module, "first")) == text(code(alone)) != text(code(module))


def test_functions_of_one_name_and_one_bytecode_have_the_shape_of_their_own_lines(written: Written):
    module = written(own="def function():\n    return 1 + 1\nfirst = function\ndef function():\n    return 2\n")
    alone = written(alone="def function():\n    return 1 + 1\n")
    assert text(code(module, "first")) == text(code(alone)) != text(code(module))


# --- a file that is edited under its code ---------------------------------------------------------------------------


def test_an_edit_is_noticed_and_the_text_stays_that_of_what_is_loaded(written: Written, tmp_path: Path):
    module = written(own=PLAIN)
    before = text(code(module))
    assert is_current(code(module))
    (tmp_path / "own.py").write_text(PLAIN.replace("0x10", "17"))
    assert not is_current(code(module))
    assert text(code(module)) == before
    assert "17" in file_text(str(tmp_path / "own.py"))
    (tmp_path / "own.py").write_text("\n\n\n" + PLAIN)
    assert is_current(code(module)), "it has only moved"


@pytest.mark.parametrize("now", ["def function(", "x = '" + "\0'", "1", ""], ids=["half", "null", "other", "empty"])
def test_a_file_that_cannot_be_read_any_more_says_nothing(written: Written, tmp_path: Path, now: str):
    module = written(own=PLAIN)
    (tmp_path / "own.py").write_text(now)
    assert not is_current(code(module))
    assert text(code(module)) == text(code(module))
    assert text(code(module)) != text(code(written(other=PLAIN.replace("0x10", "17"))))


def test_a_file_that_is_gone_has_no_text(tmp_path: Path):
    assert file_text(str(tmp_path / "gone.py")) == ""


# --- names ----------------------------------------------------------------------------------------------------------


def used(source: str) -> Any:
    space: dict[str, Any] = {}
    exec(textwrap.dedent(source), space)
    return uses(space["function"].__code__)


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ("return 1", set()),
        ("return x", set()),
        ("return LIMIT", {("LIMIT",)}),
        ("return helpers.tables.LIMIT", {("helpers", "tables", "LIMIT")}),
        ("return helpers.function(x)", {("helpers", "function")}),
        ("return [a for a in rows if helper(a)]", {("rows",), ("helper",)}),
        ("return lambda y: other(y)", {("other",)}),
        ("return {name: f() for name in names}", {("f",), ("names",)}),
    ],
)
def test_names_from_outside_are_found_wherever_they_stand(body: str, paths: set[tuple[str, ...]]):
    assert used(f"def function(x):\n    {body}").paths == paths


def test_a_class_inside_takes_its_names_from_outside_too():
    found = used("def function(x):\n    class Inner(Base):\n        limit = LIMIT\n    return Inner")
    assert {("Base",), ("LIMIT",)} <= found.paths


def test_imports_inside_are_found_with_what_is_taken():
    found = used(
        """
        def function():
            import json
            from os import path, sep

            def inner():
                from . import near
                from ..far import away
                import numpy as np
        """
    )
    assert found.imports == {
        ("json", 0, ()),
        ("os", 0, ("path", "sep")),
        ("", 1, ("near",)),
        ("far", 2, ("away",)),
        ("numpy", 0, ()),
    }


def test_words_are_all_names_and_all_strings_that_could_be_one():
    found = used("def function(m):\n    return getattr(m, 'LIMIT'), m.other, 'no name', b'LIMITS', 5")
    assert {"getattr", "LIMIT", "other"} <= found.words
    assert not {"no name", "LIMITS"} & found.words
