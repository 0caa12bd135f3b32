"""A picture of latencies over time, one line for each contestant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from midstream.errors import MidstreamError


@dataclass(frozen=True, slots=True)
class Course:
    """Latency over time: something begins at 0."""

    points: Sequence[tuple[float, float]]  # seconds, milliseconds
    end: float  # seconds


def draw(courses: Mapping[str, Course], path: str) -> None:
    """Write a picture; the suffix of the path says which kind."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MidstreamError("a picture needs matplotlib: pip install 'midstream[bench]'") from None
    figure = Figure(figsize=(11, 1.6 * len(courses) + 1), layout="constrained")
    axes = figure.subplots(len(courses), 1, sharex=True, squeeze=False)[:, 0]
    highest = max(value for course in courses.values() for _, value in course.points)
    for axis, (name, course) in zip(axes, courses.items(), strict=True):
        axis.axvspan(0, course.end, color="0.9", label="move")
        axis.plot([at for at, _ in course.points], [value for _, value in course.points], drawstyle="steps-post")
        axis.set_yscale("log")
        axis.set_ylim(100, highest * 1.5)
        axis.set_title(name, loc="left", fontsize="medium")
        axis.set_ylabel("ms")
    axes[-1].set_xlabel("seconds; the move begins at 0")
    figure.suptitle("greatest latency of the rows of each epoch")
    figure.savefig(path)
