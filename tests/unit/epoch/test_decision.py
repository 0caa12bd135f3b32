"""What is done with an epoch that Spark hands over."""

from __future__ import annotations

import pytest

from midstream.epoch.decision import Refuse, Republish, Run, decide

A, B = ("1", "-"), ("2", "-")


@pytest.mark.parametrize(
    ("committed", "of", "epoch", "offsets"),
    [(None, (), 0, A), (0, A, 1, B), (41, A, 42, A)],
    ids=["the first", "the next", "the next, without new rows"],
)
def test_the_epoch_after_the_newest_committed_one_is_run(
    committed: int | None, of: tuple[str, ...], epoch: int, offsets: tuple[str, ...]
):
    assert decide(committed, of, epoch, offsets) == Run()


def test_the_newest_committed_epoch_is_published_again():
    assert decide(3, A, 3, A) == Republish()


@pytest.mark.parametrize(
    ("committed", "epoch", "offsets", "reason"),
    [
        (3, 3, B, r"epoch 3 was committed with the source offsets \['1', '-'\], but Spark now asks for \['2', '-'\]"),
        (3, 2, A, "goes on at epoch 2, but epoch 3 is committed already"),
        (3, 0, A, "goes on at epoch 0, but epoch 3 is committed already"),
        (3, 5, A, "goes on at epoch 5, but the newest committed epoch is 3"),
        (None, 1, A, "goes on at epoch 1, but there is no commit record at all"),
    ],
    ids=["other offsets", "an older one", "from the start", "one left out", "all records gone"],
)
def test_an_epoch_that_does_not_continue_the_history_is_refused(
    committed: int | None, epoch: int, offsets: tuple[str, ...], reason: str
):
    decision = decide(committed, A if committed is not None else (), epoch, offsets)
    assert isinstance(decision, Refuse)
    with pytest.raises(ValueError, match=reason):
        raise ValueError(decision.reason)


def test_no_two_decisions_are_made_of_one_history():
    """Whatever was committed, Spark may hand over just two epochs: the newest again, or the next."""
    for committed in range(5):
        taken = [epoch for epoch in range(10) if not isinstance(decide(committed, A, epoch, A), Refuse)]
        assert taken == [committed, committed + 1]
