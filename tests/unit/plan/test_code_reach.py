"""The digest of user code: two programs that do different things differ, one program is the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from midstream.plan.code import capture, load
from tests.support.programs import HELPER, PROGRAMS, Program

SOURCE = Path(__file__).parents[3] / "src"


def digest(thing: Any) -> str:
    return capture(thing, what="it", shipped=False).digest


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_an_edit_of_anything_that_is_reached_changes_the_digest(
    written: Callable[..., ModuleType], program: Program
) -> None:
    assert program.before in program.text
    first = digest(written(users_own=program.text).function)
    edited = digest(written(users_own=program.text.replace(program.before, program.after)).function)
    again = digest(written(users_own=program.text).function)
    assert first == again
    assert first != edited


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_what_is_sent_has_the_digest_of_what_was_captured(written: Callable[..., ModuleType], program: Program) -> None:
    if any(word in program.name for word in ("slot", "lock", "weak")):
        pytest.skip("cloudpickle makes classes without their slots; what cannot be pickled is not sent")
    captured = capture(written(users_own=program.text).function, what="it", shipped=True)
    assert digest(load(captured)) == captured.digest


def test_two_lambdas_on_a_line_differ(written: Callable[..., ModuleType]) -> None:
    both = written(users_own="one, other = lambda x: x + 1, lambda x: x + 2\n")
    assert digest(both.one) != digest(both.other)


# --- modules that are used by their name ----------------------------------------------------------------------------

HELPERS = """
    LIMIT = 5
    OTHER = 6

    def deepest(x):
        return x * LIMIT

    def helper(x):
        return deepest(x)

    def unused(x):
        return x
"""

MODULE_USES = {
    "a function": "import helpers\ndef function(x):\n    return helpers.helper(x)",
    "in a comprehension": "import helpers\ndef function(xs):\n    return [helpers.helper(x) for x in xs]",
    "a value": "import helpers\ndef function(x):\n    return helpers.LIMIT",
    "of a package": "import package.inner\ndef function(x):\n    return package.inner.helper(x)",
    "passed on": "import helpers\ndef use(m, x):\n    return m.helper(x)\ndef function(x):\n    return use(helpers, x)",
    "by a name as text": "import helpers\ndef function(x):\n    return getattr(helpers, 'helper')(x)",
    "by a computed name": "import helpers\ndef function(x):\n    return getattr(helpers, 'hel' + x)(x)",
    "in a closure": "import helpers\ndef made(m):\n    return lambda x: m.helper(x)\nfunction = made(helpers)",
    "by the module's own function": "import helpers\ndef function(x):\n    return helpers.found_somehow(x)",
    "in a list": "import helpers\ntable = [helpers]\ndef function(x):\n    return table[0].helper(x)",
    "imported": "from helpers import helper\ndef function(x):\n    return helper(x)",
}


@pytest.mark.parametrize("use", MODULE_USES)
def test_what_a_function_uses_of_a_module_counts(written: Callable[..., ModuleType], tmp_path: Path, use: str) -> None:
    def digest_with(helpers: str) -> str:
        for name in ("package", "package.inner"):
            sys.modules.pop(name, None)
        (tmp_path / "package").mkdir(exist_ok=True)
        (tmp_path / "package" / "__init__.py").touch()
        (tmp_path / "package" / "inner.py").write_text(textwrap.dedent(helpers))
        return digest(written(helpers=helpers, users_own=MODULE_USES[use]).function)

    assert digest_with(HELPERS) == digest_with(HELPERS) != digest_with(HELPERS.replace("LIMIT = 5", "LIMIT = 7"))
    for name in ("package", "package.inner"):
        sys.modules.pop(name, None)


def test_what_a_function_does_not_use_of_a_module_does_not_count(written: Callable[..., ModuleType]) -> None:
    text = MODULE_USES["a function"]
    other = HELPERS.replace("OTHER = 6", "OTHER = 7").replace("return x\n", "return -x\n")
    assert digest(written(helpers=HELPERS, users_own=text).function) == digest(
        written(helpers=other, users_own=text).function
    )


def test_values_that_are_patched_into_a_module_count(written: Callable[..., ModuleType]) -> None:
    function = written(helpers=HELPERS, users_own=MODULE_USES["a function"]).function
    before = digest(function)
    sys.modules["helpers"].LIMIT = 7
    assert digest(function) != before


# --- what is no change ----------------------------------------------------------------------------------------------

PLAIN = """
    import decimal
    LIMIT = decimal.Decimal("5")

    def function(x, step=1):
        return [x * LIMIT + step for x in range(x)]
"""

NO_CHANGES = {
    "comments": PLAIN.replace("return", "# why\n        return"),
    "layout": PLAIN.replace("x * LIMIT + step", "(x*LIMIT)   + \\\n            step"),
    "its line": "\n\n\n" + PLAIN,
    "code that it does not use": PLAIN + "\n    def other():\n        return LIMIT\n",
    "how a default is written": PLAIN.replace("step=1", "step=2 - 1"),
    "how a value is come by": PLAIN.replace('decimal.Decimal("5")', "decimal.Decimal(10) / 2"),
}


@pytest.mark.parametrize("edit", NO_CHANGES)
def test_what_makes_no_difference_does_not_count(written: Callable[..., ModuleType], edit: str) -> None:
    assert NO_CHANGES[edit] != PLAIN
    assert digest(written(users_own=PLAIN).function) == digest(written(elsewhere=NO_CHANGES[edit]).function)


def test_the_order_of_a_dictionary_does_not_count(written: Callable[..., ModuleType]) -> None:
    text = "value = {'a': 1, 'b': [2]}\ndef function():\n    return value\n"
    turned = text.replace("'a': 1, 'b': [2]", "'b': [2], 'a': 1")
    assert digest(written(users_own=text).function) == digest(written(users_own=turned).function)


def test_a_python_that_compiles_otherwise_makes_no_difference(
    written: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = digest(written(users_own=PLAIN).function)
    monkeypatch.setattr("midstream.plan.code_text.sys.version_info", (3, 99, 0))
    monkeypatch.setattr("midstream.plan.code_text._known", {})
    assert digest(written(users_own=PLAIN).function) == first


def test_the_place_of_our_own_classes_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    from midstream.operators.functions.deduplicate import Deduplicate

    first = digest(Deduplicate("1 hour"))
    monkeypatch.setattr(Deduplicate, "__module__", "midstream.errors")
    assert digest(Deduplicate("1 hour")) == first != digest(Deduplicate("2 hours"))


def test_a_udf_is_the_same_before_and_after_its_first_use(written: Callable[..., ModuleType]) -> None:
    text = "from pyspark.sql.types import LongType\nfrom pyspark.sql.functions import udf\n" + HELPER
    text += "f = udf(lambda x: helper(x), LongType())\ndef function(df):\n    return df.select(f('x'))\n"
    module = written(users_own=text)
    before = digest(module.function)
    module.f._unwrapped._judf_placeholder = object()  # what Spark keeps there
    assert digest(module.function) == before
    for edit in (("x + 1", "x + 2"), ("LongType()", "LongType(), useArrow=True")):
        assert digest(written(users_own=text.replace(*edit)).function) != before


EVERYTHING = "\n".join(
    [
        "import enum, functools, threading",
        "names = {f'name {i}' for i in range(100)}",
        "table = {name: len(name) for name in names}",
        "objects = {type(n, (), {'n': n, 'm': lambda self: names}) for n in names}",
        "class Kind(enum.Enum):",
        "    A = frozenset(names)",
        "class Holder:",
        "    def __init__(self):",
        "        for name in names:",
        "            setattr(self, name, {name})",
        "        self.lock, self.kind, self.self = threading.Lock(), Kind.A, self",
        "holder = Holder()",
        "first, second = lambda: names, lambda: table",
        "@functools.lru_cache",
        "def cached(x):",
        "    return x",
        "def function():",
        "    return [first, second, holder, objects, cached, object, function, print] or 1 in {1, 'a', None}",
    ]
)


def test_the_digest_is_the_same_in_every_process(written: Callable[..., ModuleType], tmp_path: Path) -> None:
    here = digest(written(users_own=EVERYTHING).function)
    program = "import users_own; from midstream.plan.code import capture\n"
    program += "print(capture(users_own.function, what='it', shipped=False).digest)"

    def there(seed: str) -> str:
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(tmp_path)])}
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    assert [there("1"), there("2")] == [here, here]
    assert digest(written(users_own=EVERYTHING.replace("range(100)", "range(101)")).function) != here
