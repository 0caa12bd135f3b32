"""A store that is far away, without waiting for it: what the tests of copying and of slots share."""

from __future__ import annotations

import pytest


class Clock:
    """A clock on which only reading takes time."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now

    monotonic = perf_counter

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    @classmethod
    def put_in_place(cls, monkeypatch: pytest.MonkeyPatch) -> Clock:
        """Let a store that is far away be waited for by this clock."""
        clock = cls()
        for module in ("copying", "throttle"):
            monkeypatch.setattr(f"midstream.state.{module}.time", clock)
        return clock
