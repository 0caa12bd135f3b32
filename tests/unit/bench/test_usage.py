"""What processes use: the difference of two moments, also of processes below this one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from midstream.bench.usage import Usage, used


def test_usage_is_the_difference_of_two_moments():
    assert Usage(5.0, 700) - Usage(2.0, 300) == Usage(3.0, 400)
    assert Usage() - Usage() == Usage(0.0, 0)


@pytest.mark.parametrize(
    ("usage", "rows", "expected"),
    [
        (Usage(3.0, 40_000_000), 2_000_000, {"cpu_s_per_million": 1.5, "mb_per_million": 20.0}),
        (Usage(0.0004, 1), 1_000_000, {"cpu_s_per_million": 0.0, "mb_per_million": 0.0}),
    ],
)
def test_usage_is_told_per_million_rows(usage: Usage, rows: int, expected: dict[str, float]):
    assert usage.per_million(rows) == expected


def test_processes_below_this_one_count_while_they_live():
    before = used()
    program = "sum(range(3_000_000)); print('done', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "done\n"
        during = used()
        child.communicate("\n")
    assert (during - before).cpu_seconds >= 0.01
