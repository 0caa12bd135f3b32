"""The drivers of the next tests die while a test looks at what the last one left: starting Java is what costs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.faults.killing import Dead, killed

AHEAD = 2  # drivers that run before it is their test's turn; another process may have that test


class Drivers:
    """The drivers of all tests of a module that are marked `killed(program, *parameters)`."""

    def __init__(self, items: list[pytest.Function], directories: pytest.TempPathFactory) -> None:
        self.pool = ThreadPoolExecutor(AHEAD)
        self._items, self._directories = items, directories
        self._found: dict[str, Future[Dead]] = {}

    def of(self, test: str) -> Dead:
        """Give the driver of a test, and let those of the next ones run."""
        at = [item.nodeid for item in self._items].index(test)
        for item in self._items[at : at + 1 + AHEAD]:
            if item.nodeid not in self._found:
                program, *names = item.get_closest_marker("killed").args  # type: ignore[union-attr]
                arguments = [str(item.callspec.params[name]) for name in names]
                directory = str(self._directories.mktemp("killed"))
                self._found[item.nodeid] = self.pool.submit(killed, program, directory, *arguments)
        return self._found[test].result()


@pytest.fixture(scope="module")
def drivers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """Give the drivers of the tests of this module."""
    mine = [item for item in request.session.items if isinstance(item, pytest.Function)]
    mine = [item for item in mine if item.module is request.module and item.get_closest_marker("killed")]
    made = Drivers(mine, tmp_path_factory)
    yield made
    made.pool.shutdown(cancel_futures=True)


@pytest.fixture
def dead(request: pytest.FixtureRequest, drivers: Drivers) -> Dead:
    """Give the driver that was killed for this test."""
    return drivers.of(request.node.nodeid)
