"""User code by value: what is loaded elsewhere does the same, needs no module of the user's, and is a copy."""

from __future__ import annotations

import functools
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import cloudpickle
import pytest

from midstream.plan import code_pickling
from midstream.plan.code import capture, load
from midstream.plan.code_reach import Reach

Written = Callable[..., ModuleType]


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a directory where none of the user's modules are."""
    return tmp_path_factory.mktemp("elsewhere")


def sent(thing: Any) -> Any:
    """What another process of the same Python makes of code."""
    return pickle.loads(code_pickling.dumps(thing, Reach(thing).used))


def frozen(thing: Any) -> Any:
    return code_pickling.frozen(thing, Reach(thing).used)


def run_elsewhere(pickled: bytes | None, expression: str, directory: Path) -> str:
    """Evaluate an expression over unpickled code in a process that does not know the user's modules."""
    (directory / "code.pickle").write_bytes(pickled or b"")
    script = f"import pickle; thing = pickle.load(open('code.pickle', 'rb')); print({expression})"
    command = [sys.executable, "-c", script]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_code_runs_where_the_modules_of_the_user_are_not(written: Written, elsewhere: Path):
    text = """
        from helpers import helper

        class Function:
            def process(self, x):
                return helper(x)

        def function(x):
            return helper(x)
    """
    deep = "def deepest(x):\n    return x * 10\n"
    helpers = "from deep import deepest\n\ndef helper(x):\n    return deepest(x) + 1\n"
    own = written(deep=deep, helpers=helpers, users_own=text)
    one, other = (capture(thing, what="it", shipped=True) for thing in (own.function, own.Function()))
    assert run_elsewhere(one.pickled, "thing(2)", elsewhere) == "21"
    assert run_elsewhere(other.pickled, "thing.process(2)", elsewhere) == "21"


@pytest.mark.parametrize(
    "text",
    [
        "import helpers\ndef function(x):\n    return helpers.helper(x)",
        "import helpers\ndef function(x):\n    return [helpers.helper(y) for y in [x]][0]",
        "import helpers\ndef use(m, x):\n    return m.helper(x)\ndef function(x):\n    return use(helpers, x)",
        "from helpers import cached\ndef function(x):\n    return cached(x)",
        "from helpers import dispatched\ndef function(x):\n    return dispatched(x)",
        "from helpers import Kept\ndef function(x):\n    return Kept(x).value",
        "from helpers import helper\ndef function(x):\n    class C:\n        value = helper(2)\n    return C.value",
        "from helpers import helper\ndef function(x, *, use=helper):\n    return use(x)",
        "from helpers import helper\nimport functools\nfunction = functools.partial(helper)",
    ],
    ids=[
        "module",
        "comprehension",
        "passed on",
        "cached",
        "dispatched",
        "cached property",
        "inner class",
        "default",
        "partial",
    ],
)
def test_code_takes_along_what_it_uses_of_modules(written: Written, elsewhere: Path, text: str):
    helpers = """
        import functools, threading
        lock = threading.Lock()  # nobody asks for it

        def helper(x):
            return x * 10

        @functools.lru_cache
        def cached(x):
            return helper(x)

        @functools.singledispatch
        def dispatched(x):
            return x

        @dispatched.register
        def _(x: int):
            return helper(x)

        class Kept:
            def __init__(self, x):
                self.x = x

            @functools.cached_property
            def value(self):
                return helper(self.x)
    """
    captured = capture(written(helpers=helpers, users_own=text).function, what="it", shipped=True)
    assert run_elsewhere(captured.pickled, "thing(2)", elsewhere) == "20"
    assert load(captured)(2) == 20


def test_capturing_leaves_the_way_modules_are_pickled_as_it_was(written: Written):
    own = written(users_own="def function(x):\n    return x\n")
    capture(own.function, what="it", shipped=True)
    assert b"users_own" in pickle.dumps(own.function)
    assert pickle.loads(pickle.dumps(own.function)) is own.function


# --- what is sent ---------------------------------------------------------------------------------------------------

MODULE = """
    LIMIT = 5
    OTHER = "needle"

    def function(x):
        return x * LIMIT

    class Plain:
        factor = 2

        def times(self, x):
            return x * self.factor * LIMIT
"""


def test_a_copy_is_no_attribute_of_any_module_and_has_only_what_is_used(written: Written):
    own = written(users_own=MODULE)
    copy = sent(own.function)
    assert copy is not own.function
    assert copy(3) == 15
    assert "needle" not in str(code_pickling.dumps(own.function, Reach(own.function).used))
    own.LIMIT = 100
    assert (copy(3), own.function(3)) == (15, 300)


def test_a_module_that_is_used_is_sent_as_the_attributes_that_are_asked_of_it(written: Written):
    text = """
        import helpers

        def function(x):
            return helpers.function(x), helpers.__name__

        def whole():
            return helpers
    """
    own = written(helpers=MODULE, users_own=text)
    assert sent(own.function)(3) == (15, "helpers")
    found = sent(own.whole)()
    assert isinstance(found, SimpleNamespace), "Spark would send a module by its name"


def test_a_class_that_is_loaded_twice_is_two_classes(written: Written):
    own = written(users_own=MODULE)
    one, other = sent(own.Plain), sent(own.Plain)
    one.factor = 100
    assert [each().times(1) for each in (one, other, own.Plain)] == [500, 10, 10]


def test_an_installed_function_is_sent_by_its_name():
    import json

    assert sent(json.dumps) is json.dumps
    assert sent(functools.partial(json.dumps, indent=1)).func is json.dumps


def test_a_class_of_ours_is_sent_by_the_name_that_lasts():
    from midstream.operators.functions.deduplicate import Deduplicate

    pickled = code_pickling.dumps(Deduplicate, {})
    assert pickle.loads(pickled) is Deduplicate
    assert b"stored_names" in pickled
    assert b"operators" not in pickled, "no module that may move"


def test_a_cache_is_sent_empty_and_with_its_size(written: Written):
    own = written(
        users_own="import functools\n@functools.lru_cache(maxsize=3, typed=True)\ndef f(x):\n    return x + 1"
    )
    own.f(1)
    copy = sent(own.f)
    assert (copy.cache_parameters(), copy.cache_info().currsize) == ({"maxsize": 3, "typed": True}, 0)
    assert copy(1) == 2


@pytest.mark.parametrize("thing", [threading.Lock(), sys.stdout], ids=["a lock", "a file"])
def test_what_cannot_be_pickled_is_an_error(thing: Any):
    with pytest.raises(TypeError, match="cannot pickle"):
        code_pickling.dumps(lambda: thing, {})


def test_after_an_error_modules_are_pickled_as_before(written: Written):
    own, before = written(users_own=MODULE), cloudpickle.list_registry_pickle_by_value()
    with pytest.raises(TypeError):
        code_pickling.dumps(lambda lock=threading.Lock(): own.function, {})  # noqa: B008
    assert cloudpickle.list_registry_pickle_by_value() == before
    assert pickle.loads(pickle.dumps(own.function)) is own.function


# --- what stays here ------------------------------------------------------------------------------------------------


def test_a_frozen_copy_shares_what_cannot_be_pickled_and_nothing_else():
    lock, table = threading.Lock(), {"a": [1]}

    def function() -> Any:
        return lock, table

    copy = frozen(function)
    table["a"].append(2)
    assert copy()[0] is lock
    assert copy()[1] == {"a": [1]}


def test_a_frozen_copy_of_what_can_be_pickled_is_what_would_be_sent(written: Written):
    own = written(users_own=MODULE)
    copy = frozen(own.Plain())
    own.LIMIT, own.Plain.factor = 100, 100
    assert copy.times(3) == 30


def test_one_thing_that_is_held_twice_stays_one():
    lock = threading.Lock()
    one, other, held = frozen([lock, lock, {"again": lock}])
    assert one is other is held["again"] is lock
