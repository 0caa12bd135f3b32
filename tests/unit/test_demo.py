"""What the demo counts, and what it shows of the job that it changes; the demo itself runs in tests/spark."""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import midstream as ms
from midstream import demo, events


def progress(epoch: int, rows: int = 10, seconds: float = 0.5, version: int = 1) -> events.Progress:
    return events.Progress(
        epoch=epoch, version=version, clock="", rows={"hottest": rows}, keys={}, watermarks={}, log_bytes=0,
        snapshots=0, durations={"total": seconds},
    )  # fmt: skip


@pytest.fixture
def shown() -> io.StringIO:
    """Give what is on the screen."""
    return io.StringIO()


@pytest.fixture
def timeline(shown: io.StringIO) -> demo.Timeline:
    """Give the timeline of a demo of three epochs."""
    return demo.Timeline(Console(file=shown, width=120), 3)


def job(*cuts: int, is_active: bool = True) -> Any:
    class Cut(SimpleNamespace):
        def __str__(self) -> str:
            return f"modification at {self.cut.epoch}"

    pending = SimpleNamespace(cut=None)
    return SimpleNamespace(
        is_active=is_active, modifications=[Cut(cut=SimpleNamespace(epoch=e)) for e in cuts] + [pending]
    )


def lines(shown: io.StringIO) -> list[str]:
    """The rows of a table, cell by cell."""
    text = [line for line in shown.getvalue().splitlines() if line.startswith("│")]
    return [" ".join(line.replace("│", " ").split()) for line in text]


def test_all_epochs_are_shown_with_what_happened_in_them(timeline: demo.Timeline, shown: io.StringIO):
    timeline.listen(progress(0, rows=1234, seconds=1.0))
    timeline.listen(progress(1, rows=7, seconds=0.25))
    timeline.listen(events.Modifying(3, ms.Phase.VALIDATED.value, True))
    timeline.listen(events.Modifying(3, ms.Phase.ROLLED_BACK.value, True))
    timeline.listen(progress(2, seconds=0.5, version=2))
    timeline.listen(events.Before(events.Step.RUN, 3))
    timeline.say(timeline.table(job(1)))
    assert lines(shown) == [
        "0 v1 1234 1000 ms " + "█" * 20,
        "1 v1 7 250 ms " + "█" * 5 + " ◄ cut: modification at 1",
        "2 v2 10 500 ms " + "█" * 10 + " ◄ 3 rolled back, run again",
    ]


def test_one_waits_for_as_many_epochs_as_are_asked_for(timeline: demo.Timeline):
    def feed() -> None:
        for epoch in range(3):
            timeline.listen(progress(epoch))

    feeder = threading.Thread(target=feed)
    feeder.start()
    timeline.wait(job(), 3)
    assert [event.epoch for event in timeline.progress] == [0, 1, 2]
    feeder.join()


def test_nobody_waits_for_a_job_that_has_ended(timeline: demo.Timeline):
    timeline.wait(job(is_active=False), 1_000)
    assert timeline.progress == []


def test_the_five_auctions_with_the_highest_turnover_are_shown_as_they_are_now(shown: io.StringIO):
    def row(auction: int, turnover: float) -> Any:
        return SimpleNamespace(auction=auction, bids=auction * 2, turnover=turnover, best=turnover / 2)

    older, newer = [row(auction, 1e6) for auction in range(7)], [row(auction, auction * 1000.0) for auction in range(7)]
    out = SimpleNamespace(rows=lambda: [*older, *newer])
    Console(file=shown, width=120).print(demo._table(out, progress(4, rows=99, seconds=0.125)))
    assert "epoch 4: 99 rows in 0.12 s" in shown.getvalue()
    assert [line.split()[0] for line in lines(shown)] == ["6", "5", "4", "3", "2"]
    assert lines(shown)[0] == "6 12 6,000.00 3,000.00"


# --- what it counts -------------------------------------------------------------------------------------------------


class Bid(SimpleNamespace):
    price: float


def rows(*prices: float) -> list[Any]:
    return [Bid(price=price) for price in prices]


def fresh(kind: type[demo.Hottest]) -> Any:
    """A function whose declared state is plain attributes."""
    plain = {"bids": 0, "turnover": 0.0, "best": 0.0}
    return type(kind.__name__, (kind,), plain)()


def test_bids_are_counted_and_the_best_is_kept():
    function, context = fresh(demo.Hottest), SimpleNamespace()
    assert list(function.process(7, rows(10.0, 30.0), context)) == [(7, 2, 40.0, 30.0)]
    assert list(function.process(7, rows(20.0), context)) == [(7, 3, 60.0, 30.0)]


def test_the_bad_idea_works_until_there_is_state():
    function, context = fresh(demo.Picky), SimpleNamespace()
    assert list(function.process(7, rows(10.0), context)) == [(7, 1, 10.0, 10.0)]
    with pytest.raises(ValueError, match="auction 7 has bids already"):
        list(function.process(7, rows(10.0), context))


def test_a_filter_keeps_bids_above_its_limit():
    asked: list[str] = []
    frame = SimpleNamespace(where=lambda condition: asked.append(condition))
    demo.big(20)(frame)
    assert asked == ["price > 20"]
