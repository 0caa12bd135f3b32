"""What `import midstream as ms` shows."""

from __future__ import annotations

import midstream as ms
from midstream import api


def test_the_public_names_are_shown_before_one_is_used():
    assert {*dir(ms)} == {*api.__all__, "__version__"}


def test_every_name_that_is_shown_is_there():
    assert all(hasattr(ms, name) for name in dir(ms))
