"""Whose code it is: the user's is sent with its text, what is installed has a name everywhere."""

from __future__ import annotations

import functools
import json
import sys
import sysconfig
import types
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import lmdb
import numpy
import pyspark.sql
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

import midstream.plan.plan
from midstream.operators.functions.deduplicate import Deduplicate
from midstream.plan import code_owners

Written = Callable[..., ModuleType]


@pytest.mark.parametrize(
    "module",
    [sys, json, json.decoder, functools, numpy, numpy.linalg, lmdb, pyspark.sql, midstream.plan.plan, pytest],
    ids=lambda module: module.__name__,
)
def test_a_module_of_python_installed_or_ours_is_not_the_users(module: ModuleType):
    assert not code_owners.is_users(module)


def test_what_is_written_beside_a_script_and_the_script_itself_are_the_users(written: Written):
    assert code_owners.is_users(written(users_own="x = 1"))
    assert code_owners.is_users(sys.modules[__name__])
    assert code_owners.is_users(types.ModuleType("__main__"))


def test_a_module_that_was_made_belongs_to_who_has_its_package(written: Written):
    written(users_own="x = 1")
    assert code_owners.is_users(types.ModuleType("users_own.made"))
    assert not code_owners.is_users(types.ModuleType("numpy.made"))
    assert not code_owners.is_users(types.ModuleType("midstream.made"))


def test_a_module_that_loads_itself_when_it_is_asked_is_not_asked(written: Written):
    text = "def __getattr__(name):\n    raise AssertionError(f'asked for {name}')\n"
    assert code_owners.is_users(written(users_own=text))


@pytest.mark.parametrize(
    ("file", "installed"),
    [
        (json.__file__, True),
        (numpy.__file__, True),
        (f"{sysconfig.get_path('stdlib')}/anything.py", True),
        ("<frozen os>", True),
        ("/opt/app/lib/site-packages/own/module.py", True),
        ("/usr/lib/python3/dist-packages/own.py", True),
        (__file__, False),
        ("/home/somebody/job.py", False),
        ("<stdin>", False),
        ("", False),
    ],
)
def test_a_file_of_python_or_of_a_package_is_installed(file: str, installed: bool):
    assert code_owners.is_installed(file) == installed


# --- functions and classes ------------------------------------------------------------------------------------------


def test_what_is_installed_and_found_under_its_name_is_known_by_it(written: Written):
    own = written(users_own="def function():\n    pass\nclass Own:\n    pass\n")
    assert all(
        map(code_owners.is_by_name, [json.dumps, json.JSONDecoder, json.JSONDecoder.decode, Deduplicate, numpy.ndarray])
    )
    assert not any(map(code_owners.is_by_name, [own.function, own.Own, lambda: 0, Own]))


def test_what_is_installed_but_not_to_be_found_is_not_known_by_its_name(monkeypatch: pytest.MonkeyPatch):
    def made() -> None:
        pass

    for module, name in ((None, "made"), ("json", "made"), ("no.such.module", "made"), ("json", "dumps")):
        monkeypatch.setattr(made, "__module__", module)
        made.__qualname__ = name
        assert not code_owners.is_by_name(made), (module, name)
    monkeypatch.setattr(json, "dumps", made)
    assert code_owners.is_by_name(made)


def test_what_is_ours_is_named_without_its_file():
    assert code_owners.qualified(json.JSONDecoder.decode) == "json.decoder.JSONDecoder.decode"
    assert code_owners.qualified(Deduplicate) == "midstream.Deduplicate"
    assert code_owners.qualified(code_owners.is_users) == "midstream.is_users"


# --- what holds something of Spark ----------------------------------------------------------------------------------


class _OfJava:
    """What py4j gives for an object of Java."""


_OfJava.__module__ = "py4j.java_gateway"


class _OfPyspark:
    def __init__(self, **held: Any) -> None:
        vars(self).update(held)


_OfPyspark.__module__ = "pyspark.sql.classic.dataframe"


class _OfTheUser(_OfPyspark):
    pass


@pytest.mark.parametrize(
    ("value", "of_driver"),
    [
        (_OfJava(), True),
        (_OfPyspark(_jdf=_OfJava(), other=1), True),
        (_OfPyspark(other=1), False),
        (_OfTheUser(held=_OfJava()), False),
        (LongType(), False),
        ([_OfJava()], False),
        (None, False),
        (5, False),
    ],
)
def test_what_stands_for_an_object_of_java_is_of_the_driver(value: Any, of_driver: bool):
    assert code_owners.is_of_driver(value) == of_driver


def test_a_function_that_udf_gave_has_an_object_behind_it():
    made = F.udf(lambda x: x + 1, LongType())
    behind = code_owners.udf_of(made)  # type: ignore[arg-type]
    assert code_owners.is_udf(behind)
    assert behind.func(1) == 2
    assert not code_owners.is_of_driver(behind)
    assert code_owners.udf_of(lambda x: behind) is None
    assert code_owners.udf_of(code_owners.is_users) is None  # type: ignore[arg-type]
    assert not any(map(code_owners.is_udf, (made, LongType(), None, behind.func)))


def test_a_udf_is_kept_without_what_java_has_of_it():
    made = F.udf(lambda x: x + 1, LongType())
    behind = code_owners.udf_of(made)  # type: ignore[arg-type]
    fresh = code_owners.reduction(behind)
    behind._judf_placeholder = _OfJava()
    assert code_owners.reduction(behind) == fresh
    _, (kind,), state = fresh
    assert kind is type(behind)
    assert state["_judf_placeholder"] is None
    assert state["func"] is behind.func


class Own:
    def __init__(self) -> None:
        self.x = 1


@pytest.mark.parametrize(
    "value", [Own(), 3 + 4j, Path("a"), {1, 2}, functools.partial(print, 1)], ids=lambda value: type(value).__name__
)
def test_what_pickle_makes_of_an_object_makes_it_again(value: Any):
    made_by, made_of, *rest = code_owners.reduction(value)
    again = made_by(*made_of)
    if rest and rest[0] is not None:
        again.__setstate__(rest[0]) if hasattr(again, "__setstate__") else vars(again).update(rest[0])
    shown = vars if isinstance(value, Own) else repr
    assert (type(again), shown(again)) == (type(value), shown(value))
