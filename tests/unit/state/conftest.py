"""What the tests of keyed state share: a key at hand."""

from __future__ import annotations

import pytest

from midstream.state.keyed import GroupState
from tests.support.group_states import at_clock


@pytest.fixture
def state() -> GroupState:
    """Give the state of an empty group at the clock 1000, bound to a key."""
    state = at_clock(1000)
    state.bind(b"key")
    return state
