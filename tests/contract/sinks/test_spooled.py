"""What all sinks whose rows wait in the spool promise, with Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from midstream import sinks
from midstream.errors import SinkError

if TYPE_CHECKING:
    from tests.contract.conftest import Engine

Start = Callable[..., "Engine"]


def test_a_full_or_forbidden_checkpoint_is_reported(start: Start, tmp_path: Path) -> None:
    engine = start(sinks.memory())
    (tmp_path / "checkpoint").touch()
    with pytest.raises(SinkError, match=r"staged files in .* cannot be written: .*Check the space and the rights"):
        engine.stage(0, [(1, "a")])
