"""The drivers of the next tests die while a test looks at what the last one left: starting Java is what costs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.faults.killing import Dead, killed

AT_ONCE = 2


@pytest.fixture(scope="module")
def drivers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Dead]]]:
    """Run the drivers of all tests of a module that are marked `killed(program, *parameters)`, in their order."""
    pool, found = ThreadPoolExecutor(AT_ONCE), {}
    for item in request.session.items:
        mark = item.get_closest_marker("killed")
        if mark is not None and isinstance(item, pytest.Function) and item.module is request.module:
            program, *names = mark.args
            arguments = [str(item.callspec.params[name]) for name in names]
            found[item.nodeid] = pool.submit(killed, program, str(tmp_path_factory.mktemp("killed")), *arguments)
    yield found
    pool.shutdown(cancel_futures=True)


@pytest.fixture
def dead(request: pytest.FixtureRequest, drivers: dict[str, Future[Dead]]) -> Dead:
    """Give the driver that was killed for this test."""
    return drivers[request.node.nodeid].result()
