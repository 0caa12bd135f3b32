"""Whether a sink and a checkpoint fit together: every way in which one may be older, newer or another's."""

from __future__ import annotations

import pytest

from midstream.checkpoint.delivery import Agrees, Ahead, Behind, judged
from midstream.checkpoint.records import Delivered

BEFORE, NOW = Delivered(9, "b"), Delivered(10, "n")
IDS = {8: "a", 9: "b", 10: "n"}


@pytest.mark.parametrize(
    ("found", "before", "now", "verdict"),
    [
        (None, None, None, Agrees),  # nothing was ever published
        (None, None, NOW, Agrees),  # the first epoch with rows is not published yet
        (BEFORE, BEFORE, None, Agrees),
        (BEFORE, BEFORE, NOW, Agrees),  # committed, not published
        (NOW, BEFORE, NOW, Agrees),  # published
        (NOW, None, NOW, Agrees),
        (Delivered(8, "a"), None, None, Agrees),  # another target before, and this one again: its records agree
        (Delivered(3, "x"), None, None, Agrees),  # older than all records: nobody can tell
        (Delivered(9, ""), BEFORE, None, Agrees),  # published before ids were written down
        (Delivered(20, "z"), BEFORE, None, Ahead),  # the checkpoint is a copy from before
        (Delivered(10, "z"), BEFORE, NOW, Ahead),  # the same number in another history
        (Delivered(9, "z"), BEFORE, NOW, Ahead),
        (Delivered(8, "z"), None, None, Ahead),
        (None, BEFORE, None, Behind),  # the sink was emptied
        (None, BEFORE, NOW, Behind),
        (Delivered(8, "a"), BEFORE, NOW, Behind),  # the sink is a copy from before
        (Delivered(3, "x"), BEFORE, None, Behind),
    ],
)
def test_sink_and_history(
    found: Delivered | None, before: Delivered | None, now: Delivered | None, verdict: type
) -> None:
    assert isinstance(judged(found, before, now, 10, IDS), verdict)
