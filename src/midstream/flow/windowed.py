"""Streams in windows: what the user writes after `window(...)`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from midstream.durations import Duration
from midstream.errors import PlanError
from midstream.flow import builders
from midstream.flow.flow import Flow, Stream
from midstream.plan import plan as p
from midstream.plan.plan import AggregateSpec
from midstream.plan.windows import AnyWindow, CountWindow


@dataclass(frozen=True, slots=True)
class WindowedStream:
    """A stream in windows, by a key or over all rows."""

    flow: Flow
    input: str
    keys: tuple[str, ...]
    window: AnyWindow | CountWindow
    partition_by: str = ""
    punctuation: str = ""

    def with_punctuation(self, predicate: str) -> WindowedStream:
        """Let rows say that no more of their key and window follow: `with_punctuation("kind = 'closed'")`.

        A row for which the SQL holds is counted like any other, and the windows of its key that it lies in come out in
        its epoch, and are gone; of windows by count all that are open. Those of other keys wait as ever.
        Not promised: anything of a row that follows all the same; it begins the window anew, which comes out again.
        """
        return replace(self, punctuation=predicate)

    def aggregate(
        self, id: str, *, lateness: Duration = 0, emit: str = "watermark", slots: int = 0, **aggregates: AggregateSpec
    ) -> Windowed:
        """Keep declared aggregates per window: the key, `window_start`, `window_end`, and the results.

        Promised: a window holds `[start, start + size)`, starts at a multiple of its slide, and comes out once the
        watermark has reached its end. A row that comes later is in `.late`, and counted in the progress report.
        A session starts with its first row and ends a gap after its last.
        Windows by count give the key, `window`, their number from 0, and the results; no row is late for them.
        Not promised: an order of windows that close in one epoch.

        Args:
            id: of the operator.
            lateness: how long after its end a window still takes rows; each epoch that brings some gives it out again.
            emit: "watermark", or "update": give out windows in every epoch that changes them, not when they close.
            slots: how many tasks share the keys.
            aggregates: such as `n=ms.count()`.
        """
        if isinstance(self.window, CountWindow):
            from midstream.flow.count_windows import count_windows

            if lateness or emit != "watermark":
                raise PlanError(
                    f"window {id!r}: windows by count have neither lateness nor emit; they come out when full"
                )
            count_windows(
                Stream(self.flow, self.input), self.keys, self.window, self.partition_by, self.punctuation,
                id=id, slots=slots, aggregates=aggregates,
            )  # fmt: skip
            return Windowed(self.flow, id, self.input)
        made = builders.Windows(self.keys, self.window, self.partition_by, self.punctuation).aggregate(
            lateness=lateness, emit=emit, slots=slots, id=id, **aggregates
        )
        Stream(self.flow, self.input)._then(made)
        return Windowed(self.flow, id, self.input)

    def top(self, id: str, n: int = 1, *, by: str, ties: bool = True, slots: int = 0) -> Windowed:
        """Give out the rows with the greatest `by` of each window, when it closes: all columns, and the bounds.

        With ties, more than `n` rows come out where several are equal; without, those whose other columns come first.
        A row that comes too late is in `.late`, and counted in the progress report.
        """
        from midstream.flow.tops import top

        top(
            Stream(self.flow, self.input), self.keys, self.window, self.partition_by, self.punctuation,
            id=id, n=n, by=by, ties=ties, slots=slots,
        )  # fmt: skip
        return Windowed(self.flow, id, self.input)


@dataclass(frozen=True, slots=True)
class Windowed(Stream):
    """What windows give out."""

    input: str

    @property
    def late(self) -> Stream:
        """The rows that came too late, are too far ahead or have no event time, with the `late_reason` as a column."""
        id = f"{self.id}.late"
        known = [operator.id for operator in self.flow.plan().operators]
        if id in known:
            return Stream(self.flow, id)
        late = p.Late(id=id, inputs=(self.input,), of=self.id)
        p.windows_late_for(self.flow.plan(), late)
        return self.flow._add(late)

    def top(self, id: str, n: int = 1, *, by: str, ties: bool = True, slots: int = 0) -> Stream:
        """Give out, of all keys, the windows with the greatest `by`: `counts.top("hottest", 3, by="n")`.

        With ties, more than `n` come out where several are equal; without, those whose other columns come first.
        """
        from midstream.flow.tops import top

        return top(self, (), None, "", "", id=id, n=n, by=by, ties=ties, slots=slots)
