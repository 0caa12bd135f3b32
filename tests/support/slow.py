"""Cases that `make test` leaves out, so that it stays short, and `make test-all` runs."""

from __future__ import annotations

from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """Give the values of a parametrised test as a slow case."""
    return pytest.param(*values, marks=pytest.mark.slow)


def long(*values: Any) -> Any:
    """Give the values of a parametrised test as a case of many that take hours together."""
    return pytest.param(*values, marks=pytest.mark.long)
