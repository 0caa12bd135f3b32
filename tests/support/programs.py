"""Programs of users, each with an edit that makes it another one: what a digest must tell apart."""

from __future__ import annotations

from typing import NamedTuple


class Program(NamedTuple):
    """A module whose `function` is captured, and the edit that makes it another one."""

    name: str
    text: str
    before: str
    after: str


HELPER = "def helper(x):\n    return x + 1\n\n"


def uses(name: str, body: str) -> Program:
    """A function that uses a helper, in some way; the helper is edited."""
    return Program(name, HELPER + body, "x + 1", "x + 2")


def holds(name: str, before: str, after: str, more: str = "") -> Program:
    """A function that uses a value of its module; the value is edited."""
    return Program(name, f"{more}\nvalue = {before}\n\ndef function():\n    return value\n", before, after)


PROGRAMS = [
    # the ways to a helper
    uses("called", "def function(x):\n    return helper(x)"),
    uses("in a list comprehension", "def function(xs):\n    return [helper(x) for x in xs]"),
    uses("in a set comprehension", "def function(xs):\n    return {helper(x) for x in xs}"),
    uses("in a dict comprehension", "def function(xs):\n    return {x: helper(x) for x in xs}"),
    uses("in a generator", "def function(xs):\n    return sum(helper(x) for x in xs)"),
    uses("in a lambda", "def function(xs):\n    return list(map(lambda x: helper(x), xs))"),
    uses("in an inner function", "def function(x):\n    def inner():\n        return helper(x)\n    return inner()"),
    uses("in an inner class", "def function(x):\n    class Inner:\n        y = helper(1)\n    return Inner.y"),
    uses("nested three deep", "def function(xss):\n    return [[(lambda: helper(x))() for x in xs] for xs in xss]"),
    uses("in an async function", "async def function(x):\n    return helper(x)"),
    uses("as a default", "def function(x, use=helper):\n    return use(x)"),
    uses("as a keyword-only default", "def function(x, *, use=helper):\n    return use(x)"),
    uses("as an attribute of the function", "def function(x):\n    return function.use(x)\nfunction.use = helper"),
    uses("in a closure", "def made(use):\n    return lambda x: use(x)\nfunction = made(helper)"),
    uses("in a partial", "import functools\nfunction = functools.partial(helper, 1)"),
    uses("in a partial's keyword", "import functools\nfunction = functools.partial(print, key=helper)"),
    uses("in a list", "table = [helper]\ndef function(x):\n    return table[0](x)"),
    uses("in a dict", "table = {'a': helper}\ndef function(x):\n    return table['a'](x)"),
    uses("in a set", "table = {helper}\ndef function(x):\n    return [f(x) for f in table]"),
    uses("cached", "import functools\nfunction = functools.lru_cache(helper)"),
    uses("behind a decorator", "def same(f):\n    return lambda x: f(x)\nfunction = same(helper)"),
    uses(
        "behind wraps",
        "import functools\ndef w(f):\n    @functools.wraps(f)\n    def g(x):\n        return f(x)\n"
        "    return g\nfunction = w(helper)",
    ),
    uses("in a method", "class C:\n    def m(self, x):\n        return helper(x)\nfunction = C().m"),
    uses("in a method of an object", "class C:\n    def m(self, x):\n        return helper(x)\nfunction = C()"),
    uses("in a static method", "class C:\n    @staticmethod\n    def m(x):\n        return helper(x)\nfunction = C()"),
    uses(
        "in a class method", "class C:\n    @classmethod\n    def m(cls, x):\n        return helper(x)\nfunction = C()"
    ),
    uses("in a property", "class C:\n    @property\n    def p(self):\n        return helper(1)\nfunction = C()"),
    uses("in a setter", "class C:\n    p = property(None, lambda self, x: helper(x))\nfunction = C()"),
    uses(
        "in a cached property",
        "import functools\nclass C:\n    @functools.cached_property\n    def p(self):\n"
        "        return helper(1)\nfunction = C()",
    ),
    uses(
        "in a base class",
        "class B:\n    def m(self, x):\n        return helper(x)\nclass C(B):\n    pass\nfunction = C()",
    ),
    uses(
        "in a metaclass",
        "class M(type):\n    def m(cls, x):\n        return helper(x)\nclass C(metaclass=M):\n    pass\nfunction = C()",
    ),
    uses(
        "in a class that is used",
        "class C:\n    def m(self, x):\n        return helper(x)\ndef function(x):\n    return C().m(x)",
    ),
    uses(
        "in a class held by an object",
        "class C:\n    def m(self, x):\n        return helper(x)\n"
        "class H:\n    def __init__(self, kind):\n        self.kind = kind\nfunction = H(C)",
    ),
    uses(
        "in the class of an object held by an object",
        "class C:\n    def m(self, x):\n        return helper(x)\n"
        "class H:\n    def __init__(self, other):\n        self.other = other\nfunction = H(C())",
    ),
    uses(
        "in a single dispatch, which has weak references",
        "import functools\n@functools.singledispatch\ndef function(x):\n    return x\n"
        "@function.register\ndef _(x: int):\n    return helper(x)",
    ),
    uses(
        "of a slot",
        "class C:\n    __slots__ = ('use',)\n    def __init__(self):\n        self.use = helper\nfunction = C()",
    ),
    uses(
        "monkeypatched",
        "class C:\n    def m(self, x):\n        return x\nC.m = lambda self, x: helper(x)\nfunction = C()",
    ),
    uses("by a computed name", "def function(x):\n    return globals()['hel' + 'per'](x)"),
    uses(
        "in a circle",
        "def function(n):\n    return n == 0 or other(n - 1)\ndef other(n):\n    return helper(n) and function(n - 1)",
    ),
    # the code itself
    Program("one of two lambdas on a line", "a, function = lambda x: x + 1, lambda x: x + 2\n", "x + 2", "x + 3"),
    Program("a default", "def function(x, step=1):\n    return x\n", "step=1", "step=2"),
    Program("a keyword-only default", "def function(x, *, step=1):\n    return x\n", "step=1", "step=2"),
    Program("an annotation", "def function(x: int):\n    return x\n", "int", "str"),
    Program("an argument's kind", "def function(x, y=1):\n    return x\n", "x, y", "x, *, y"),
    Program(
        "a decorator", "import functools\n@functools.lru_cache(maxsize=1)\ndef function(x):\n    return x\n", "=1", "=2"
    ),
    Program("a constant's type", "def function():\n    return 1\n", "return 1", "return True"),
    Program("a class attribute", "class C:\n    limit = 1\nfunction = C()\n", "limit = 1", "limit = 2"),
    Program(
        "the bases",
        "class A:\n    pass\nclass B:\n    pass\nclass C(A, B):\n    pass\nfunction = C()\n",
        "A, B",
        "B, A",
    ),
    Program("a patched class", "class C:\n    limit = 1\nC.limit = 2\nfunction = C()\n", "C.limit = 2", "C.limit = 3"),
    Program(
        "a dataclass's default",
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    x: int = 1\ndef function():\n    return C()\n",
        "= 1",
        "= 2",
    ),
    Program(
        "a dataclass's option",
        "from dataclasses import dataclass\n@dataclass(order=False)\nclass C:\n    x: int = 1\n"
        "def function():\n    return C()\n",
        "order=False",
        "order=True",
    ),
    Program(
        "a named tuple's field",
        "from typing import NamedTuple\nclass C(NamedTuple):\n    x: int = 1\ndef function():\n    return C()\n",
        "= 1",
        "= 2",
    ),
    Program(
        "a member of an enum",
        "import enum\nclass C(enum.Enum):\n    A = 1\n    B = 2\ndef function():\n    return C.B\n",
        "B = 2",
        "B = 3",
    ),
    Program(
        "a method of an enum",
        "import enum\nclass C(enum.Enum):\n    A = 1\n    def m(self):\n        return 1\n"
        "def function():\n    return C.A.m()\n",
        "return 1",
        "return 2",
    ),
    Program(
        "a method of a dataclass that is of a library",
        "import statistics\nfrom dataclasses import dataclass\n@dataclass\nclass C:\n    x: int = 1\n"
        "    score = staticmethod(statistics.mean)\ndef function():\n    return C()\n",
        "statistics.mean",
        "statistics.median",
    ),
    Program(
        "a property of an enum",
        "import enum\nclass C(enum.Enum):\n    A = 1\n    step = property(lambda self: 1)\n"
        "def function():\n    return C.A.step\n",
        "self: 1",
        "self: 2",
    ),
    Program(
        "a method of a named tuple",
        "from typing import NamedTuple\nclass C(NamedTuple):\n    x: int = 1\n    def m(self):\n        return 1\n"
        "def function():\n    return C()\n",
        "return 1",
        "return 2",
    ),
    Program("fields of a plain class", "class C:\n    _fields = ('x',)\nfunction = C()\n", "'x'", "'y'"),
    Program("what a class is matched by", "class C:\n    __match_args__ = ('x',)\nfunction = C()\n", "'x'", "'y'"),
    # values
    holds("an int", "1", "2"),
    holds("an int that is a bool", "1", "True"),
    holds("an int beyond the limit of text", "10 ** 5000", "10 ** 5001"),
    holds("a float", "1.0", "1"),
    holds("a set", "{1, 2}", "{1, 3}"),
    holds("a frozen set", "frozenset({1, 2})", "{1, 2}"),
    holds("a list", "[1, 2]", "[2, 1]"),
    holds("a tuple", "(1, 2)", "[1, 2]"),
    holds("a nested tuple", "((1, 2), 3)", "(1, (2, 3))"),
    holds("a dict", "{'a': 1}", "{'a': 2}"),
    holds("an ordered dict", "OrderedDict(a=1, b=2)", "OrderedDict(b=2, a=1)", "from collections import OrderedDict"),
    holds("a default dict", "defaultdict(int)", "defaultdict(float)", "from collections import defaultdict"),
    holds("a counter", "Counter('aab')", "Counter('aabb')", "from collections import Counter"),
    holds("a deque", "deque([1], 5)", "deque([1], 6)", "from collections import deque"),
    holds("a range", "range(3)", "range(4)"),
    holds("a slice", "slice(3)", "slice(4)"),
    holds("bytes", "bytearray(b'1')", "b'1'"),
    holds("a decimal", "Decimal('1.0')", "Decimal('1.00')", "from decimal import Decimal"),
    holds("a fraction", "Fraction(1, 2)", "Fraction(1, 3)", "from fractions import Fraction"),
    holds("a date", "date(2026, 1, 1)", "date(2026, 1, 2)", "from datetime import date"),
    holds("a length of time", "timedelta(1)", "timedelta(2)", "from datetime import timedelta"),
    holds("a time zone", "ZoneInfo('Asia/Tokyo')", "ZoneInfo('Europe/Rome')", "from zoneinfo import ZoneInfo"),
    holds("a path", "Path('a')", "Path('b')", "from pathlib import Path"),
    holds("a pattern", "re.compile('a')", "re.compile('a', re.I)", "import re"),
    holds("a uuid", "UUID(int=1)", "UUID(int=2)", "from uuid import UUID"),
    holds("an object", "C(1)", "C(2)", "class C:\n    def __init__(self, x):\n        self.x = x"),
    holds(
        "an object with slots",
        "C(1)",
        "C(2)",
        "class C:\n    __slots__ = 'x',\n    def __init__(self, x):\n        self.x = x",
    ),
    holds(
        "an object with a lock",
        "C(1)",
        "C(2)",
        "import threading\nclass C:\n    def __init__(self, x):\n        self.x, self.lock = x, threading.Lock()",
    ),
    holds("a subclass of dict", "C(a=1)", "C(a=2)", "class C(dict):\n    pass"),
    holds("a subclass of set", "C([1])", "C([2])", "class C(set):\n    pass"),
    holds("a subclass of int", "C(1)", "C(2)", "class C(int):\n    pass"),
    holds(
        "a member of a flag",
        "F.A | F.B",
        "F.A | F.C",
        "import enum\nclass F(enum.Flag):\n    A = 1\n    B = 2\n    C = 4",
    ),
    holds("an array", "np.array([1, 2])", "np.array([1, 3])", "import numpy as np"),
    holds("an array's type", "np.array([1], 'i4')", "np.array([1], 'i8')", "import numpy as np"),
    holds("a frame of pandas", "pd.DataFrame({'a': [1]})", "pd.DataFrame({'a': [2]})", "import pandas as pd"),
    holds("a schema of Arrow", "pa.schema([('a', 'int64')])", "pa.schema([('a', 'int32')])", "import pyarrow as pa"),
    holds("a type of Spark", "T.LongType()", "T.IntegerType()", "from pyspark.sql import types as T"),
    holds("a built-in function", "min", "max"),
    holds("a function of a library", "math.floor", "math.ceil", "import math"),
    holds("a bound method of a value", "'a'.join", "'b'.join"),
    Program(
        "a list that holds itself",
        "value = [1]\nvalue.append(value)\ndef function():\n    return value\n",
        "[1]",
        "[2]",
    ),
]
