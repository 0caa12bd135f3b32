"""Every path of a checkpoint: in order, apart from each other, and the same for good."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from midstream.checkpoint import layout

HOME = layout.home_of("sums", 0)


def test_the_names_of_epochs_sort_as_the_epochs_do():
    epochs = [0, 9, 10, 99, 12_345]
    assert sorted(map(layout.commit_file, epochs)) == [layout.commit_file(epoch) for epoch in epochs]
    assert [layout.epoch_of(os.path.basename(layout.journal_file(epoch))) for epoch in epochs] == epochs
    assert sorted(map(layout.plan_file, (2, 10, 1))) == [layout.plan_file(version) for version in (1, 2, 10)]
    assert layout.log_directory("sums", 3, "run").startswith(layout.log_directory("sums", 3) + "/")
    assert layout.snapshot_directory("sums", 3).startswith(layout.snapshot_directory("sums") + "/")


def test_files_lie_where_every_checkpoint_of_this_format_has_them():
    assert [
        layout.plan_file(1),
        layout.modification_file(3),
        layout.journal_file(7),
        layout.commit_file(7),
        layout.state_directory(HOME),
        layout.log_directory(HOME, 7, "1f2f7b99"),
        layout.snapshot_directory(HOME, 75),
        layout.backlog_directory(HOME, 7, "1f2f7b99"),
        layout.backlog_directory(HOME),
        layout.spool_directory("out", 7, "1f2f7b99"),
    ] == [
        "plans/v000001.json",
        "modifications/000003.json",
        "journal/000000000007.json",
        "commits/000000000007.json",
        "state/sums/000000000000",
        "state/sums/000000000000/log/000000000007/1f2f7b99",
        "state/sums/000000000000/snapshot/000075",
        "state/sums/000000000000/backlog/000000000007/1f2f7b99",
        "state/sums/000000000000/backlog",
        "spool/out/000000000007/1f2f7b99",
    ]


def test_no_two_things_have_one_name():
    names = [value for name, value in vars(layout).items() if name.isupper()]
    assert len(names) == len({*names}) > 10


EPOCHS = st.integers(0, 10**12 - 1)


@given(st.lists(EPOCHS))
def test_listed_by_name_epochs_come_in_their_order(epochs: list[int]):
    for file in (layout.commit_file, layout.journal_file):
        assert [layout.epoch_of(os.path.basename(name)) for name in sorted(map(file, epochs))] == sorted(epochs)


@given(EPOCHS, EPOCHS)
def test_an_id_that_is_used_again_begins_elsewhere(one: int, other: int):
    first, second = (layout.state_directory(layout.home_of("sums", born)) for born in (one, other))
    assert (first == second) == (one == other)
    assert one == other or not first.startswith(f"{second}/")
