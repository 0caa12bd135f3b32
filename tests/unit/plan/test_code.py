"""User code as a value: its digest tells whether it does the same, its pickle is the text that was captured."""

from __future__ import annotations

import importlib
import os
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from midstream.errors import PlanError
from midstream.plan import code
from midstream.plan.code import Code, capture, load

Module = Callable[..., Any]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Module]:
    """Give a function that writes (or edits) a module of the user's and imports it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    made: set[str] = set()

    def module(text: str, name: str = "users_own") -> Any:
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        made.add(name)
        importlib.invalidate_caches()
        sys.modules.pop(name, None)
        import linecache

        linecache.clearcache()
        return importlib.import_module(name)

    yield module
    for name in made:
        sys.modules.pop(name, None)


def digest(thing: Any) -> str:
    return capture(thing, what="it", shipped=True).digest


# --- the digest -----------------------------------------------------------------------------------------------------

FUNCTION = """
    LIMIT = 5
    TABLE = {"a": 1}

    def helper(x):
        return x + 1

    def function(x, step=1):
        return helper(x) * LIMIT + step + TABLE["a"]
"""

CLASS = """
    LIMIT = 5

    def helper(x):
        return x + 1

    class Base:
        def factor(self):
            return 2

    class Function(Base):
        def __init__(self, start=0):
            self.start = start

        def process(self, x):
            return helper(x) * LIMIT + self.start + self.factor()
"""


def function_of(module: Module, text: str) -> Any:
    return module(text).function


def instance_of(module: Module, text: str, *arguments: Any) -> Any:
    return module(text).Function(*arguments)


def test_the_digest_is_the_same_when_the_same_text_is_defined_again(module: Module):
    assert digest(function_of(module, FUNCTION)) == digest(function_of(module, FUNCTION))
    assert digest(instance_of(module, CLASS)) == digest(instance_of(module, CLASS))


def test_the_digest_does_not_depend_on_the_file_or_the_line(module: Module):
    moved = module("# a comment\n\n" + textwrap.dedent(FUNCTION), "elsewhere").function
    assert digest(function_of(module, FUNCTION)) == digest(moved)


def test_the_digest_changes_with_the_closure():
    def adding(amount: Any) -> Callable[[int], Any]:
        return lambda x: x + amount

    assert digest(adding(1)) == digest(adding(1))
    assert len({digest(adding(amount)) for amount in (1, 2, "1", None, (1, 2), [1], {"a": 1}, b"1", 1.0)}) == 9


def test_the_digest_of_code_that_calls_itself_ends(module: Module):
    text = """
        def even(n):
            return n == 0 or odd(n - 1)

        def odd(n):
            return n != 0 and even(n - 1)
    """
    both = module(text)
    assert digest(both.even) != digest(both.odd)
    assert digest(both.even) == digest(module(text).even)


def test_code_that_uses_a_name_which_is_not_bound_yet_has_a_digest():
    def outer() -> Code:
        def function() -> int:
            return later()

        found = capture(function, what="it", shipped=True)

        def later() -> int:
            return 1

        return found

    assert outer().digest


# --- there and back -------------------------------------------------------------------------------------------------


def kept(captured: Code) -> Code:
    """As read from a checkpoint by another process: the key is not known there."""
    text = msgspec.json.encode(captured)
    return msgspec.structs.replace(msgspec.json.decode(text, type=Code), key=os.urandom(8).hex())


def test_code_is_frozen_when_it_is_captured(module: Module):
    own = module(FUNCTION)
    captured = capture(own.function, what="it", shipped=True)
    own.LIMIT, own.TABLE["a"] = 100, 100
    own.helper = lambda x: 1000
    assert load(captured)(1) == 12
    assert own.function(1) == 100_101


def test_an_object_of_the_driver_stays_what_it_is():
    seen: list[int] = []
    assert load(code.capture_live(seen)) is seen


def test_code_of_a_module_that_was_loaded_again_is_what_it_was(module: Module, tmp_path: Path):
    own = module(FUNCTION)
    first = capture(own.function, what="it", shipped=True)
    (tmp_path / "users_own.py").write_text(textwrap.dedent(FUNCTION.replace("x + 1", "x + 100")))
    importlib.reload(own)
    second = capture(own.function, what="it", shipped=True)
    assert first.digest != second.digest
    assert (load(first)(1), load(second)(1)) == (12, 507)


def test_code_of_a_module_that_was_edited_and_not_loaded_again_is_what_is_loaded(module: Module, tmp_path: Path):
    own = module(FUNCTION)
    first = capture(own.function, what="it", shipped=True)
    (tmp_path / "users_own.py").write_text(textwrap.dedent("NEW = 1\n" + FUNCTION.replace("* LIMIT", "* 100")))
    second = capture(own.function, what="it", shipped=True)
    assert first.digest == second.digest
    assert (load(second)(1), second.source) == (12, ""), "no text of other code"


def test_edited_before_it_is_captured_code_has_the_digest_of_its_bytecode(module: Module, tmp_path: Path):
    text = "def function(x):\n    return x * 5"
    own = module(text)
    (tmp_path / "users_own.py").write_text(text.replace("5", "6"))
    captured = capture(own.function, what="it", shipped=True)
    assert load(captured)(2) == 10
    assert captured.digest != digest(module(text.replace("5", "6")).function)


def test_two_versions_of_a_patched_class_stay_apart(module: Module):
    own = module(CLASS)
    first = capture(own.Function(), what="it", shipped=True)
    own.Function.extra = 1
    own.Base.factor = lambda self: 100
    second = capture(own.Function(), what="it", shipped=True)
    one, other, again = load(first), load(second), load(kept(first))
    assert [each.process(1) for each in (one, other, again)] == [12, 110, 12]
    assert [hasattr(each, "extra") for each in (one, other, again)] == [False, True, False]


def test_code_says_its_name_and_text(module: Module):
    captured = capture(function_of(module, FUNCTION), what="it", shipped=True)
    assert captured.name == "users_own.function"
    assert captured.source.startswith("def function(x, step=1):")
    assert captured.python == ".".join(map(str, sys.version_info[:3]))


def test_code_from_a_checkpoint_does_the_same():
    amount = 3
    loaded = load(kept(capture(lambda x: x + amount, what="it", shipped=True)))
    assert loaded(4) == 7


def test_code_of_a_module_is_kept_with_the_text_that_it_had(module: Module):
    first = capture(function_of(module, FUNCTION), what="it", shipped=True)
    second = capture(function_of(module, FUNCTION.replace("x + 1", "x + 100")), what="it", shipped=True)
    assert (load(kept(first))(1), load(kept(second))(1)) == (12, 507)


# --- what cannot be kept --------------------------------------------------------------------------------------------


def test_code_that_must_be_shipped_and_cannot_be_pickled_is_refused():
    lock = threading.Lock()
    with pytest.raises(
        PlanError, match=r"the function of 'sums' cannot be sent to the executors: TypeError: .*lock"
    ) as e:
        capture(lambda: lock, what="the function of 'sums'", shipped=True)
    assert "create it inside the function" in str(e.value)


def test_code_that_stays_in_the_driver_need_not_be_picklable():
    lock = threading.Lock()
    captured = capture(lambda: lock, what="it", shipped=False)
    assert captured.pickled is None
    assert load(captured)() is lock, "shared by the copy"
    with pytest.raises(PlanError, match="could not be kept in the checkpoint and is not in this script"):
        load(kept(captured))


def test_code_that_stays_in_the_driver_is_frozen_around_what_cannot_be_pickled(module: Module):
    own = module(
        """
        import threading
        FACTOR = 2
        event = threading.Event()

        class Holder:
            def __init__(self):
                self.step, self.event = 1, event

            def method(self, x):
                return x * FACTOR + self.step, self.event
        """
    )
    captured = capture(own.Holder().method, what="it", shipped=False)
    own.FACTOR = 100
    assert captured.pickled is None
    assert load(captured)(5) == (11, own.event), "an event that is a copy would never be set"


@pytest.mark.parametrize(
    "text",
    ["import users_other", "from users_other import helper", "import users_other.inner", "import users_other as other"],
)
@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_module_of_the_user_that_is_imported_inside_a_function_is_refused(module: Module, text: str, is_loaded: bool):
    module("def helper():\n    pass\n", "users_other")
    if not is_loaded:
        del sys.modules["users_other"]
    own = module(f"def function(x):\n    def inner():\n        {text}\n    return inner()")
    with pytest.raises(PlanError, match=r"it imports your module 'users_other.*Import it at the top of your file"):
        capture(own.function, what="it", shipped=True)


def test_installed_modules_may_be_imported_inside_a_function():
    def function() -> float:
        import json
        import math

        import numpy as np

        return float(np.float64(math.sqrt(json.loads("4"))))

    assert load(capture(function, what="it", shipped=True))() == 2.0


def test_code_that_cannot_be_loaded_says_which_python_kept_it():
    captured = capture(lambda: 1, what="it", shipped=True)
    broken = msgspec.structs.replace(kept(captured), pickled=b"\x80\x05broken", python="3.9.1", name="users.function")
    with pytest.raises(PlanError, match=r"'users.function', kept by Python 3\.9\.1, cannot be loaded by Python"):
        load(broken)


def test_code_is_unpickled_once_per_process():
    loaded = kept(capture(lambda: 1, what="it", shipped=True))
    assert load(loaded) is load(loaded)
    assert loaded.key in code._loaded
    code.forget({loaded.key})
    assert loaded.key not in code._loaded
