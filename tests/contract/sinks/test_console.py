"""What the sink on the screen promises beyond the contract that all sinks share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from midstream import sinks
from midstream.errors import SinkError

if TYPE_CHECKING:
    from tests.contract.conftest import Engine

Start = Callable[..., "Engine"]


def test_it_prints_a_table(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    engine = start(sinks.console(rows=2))
    engine.publish(engine.stage(7, [(1, "[red]a[/red]"), (20, "x" * 100), (300, None)]))
    assert capsys.readouterr().out.splitlines() == [
        "out · epoch 7 · 3 rows, 2 shown",
        "┏━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┓",
        "┃ id ┃ text                                                         ┃",
        "┡━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┩",
        "│  1 │ [red]a[/red]                                                 │",
        "│ 20 │ " + "x" * 59 + "… │",
        "└────┴──────────────────────────────────────────────────────────────┘",
    ]


def test_no_rows_make_no_sense() -> None:
    with pytest.raises(SinkError, match="1 row or more"):
        sinks.console(rows=0)
