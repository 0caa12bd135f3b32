"""What a worker has imported is not looked through after each task; garbage that comes later is still found."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from types import ModuleType

import pytest

from midstream.operators.worker_gc import seldom_looked_for


class Knot:
    """An object that only a search for cycles can free."""

    def __init__(self) -> None:
        self.self = self


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_there_is_once_modules_are_imported_is_put_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midstream.operators.worker_gc._known", 0)
    with seldom_looked_for():
        pass
    assert gc.get_freeze_count() > 10_000
    assert len(gc.get_objects()) < 10_000, "the rest is what a search looks through"


def test_nothing_more_is_put_aside_until_another_module_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    with seldom_looked_for():
        pass
    gc.unfreeze()
    with seldom_looked_for():
        pass
    assert gc.get_freeze_count() == 0
    monkeypatch.setitem(sys.modules, "imported_by_a_test", ModuleType("imported_by_a_test"))
    with seldom_looked_for():
        pass
    assert gc.get_freeze_count() > 0


def test_cycles_that_are_made_later_are_found() -> None:
    with seldom_looked_for():
        pass
    later = weakref.ref(Knot())
    gc.collect()
    assert later() is None


def test_python_looks_less_often_meanwhile_and_as_before_afterwards() -> None:
    before = gc.get_threshold()
    with seldom_looked_for():
        assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold() == before
