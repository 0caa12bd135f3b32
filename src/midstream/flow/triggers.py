"""Triggers: they say when an epoch begins, and whether the input ends."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.durations import Duration, micros


@dataclass(frozen=True, slots=True)
class Trigger:
    """When an epoch begins."""

    interval: int = 1_000_000  # microseconds
    once: bool = False  # take what is there, then end
    end_of_input: bool = False  # nothing will ever follow: fire every timer


def every(interval: Duration) -> Trigger:
    """Begin an epoch at this interval, if there is something to do; 0 means as fast as possible."""
    return Trigger(interval=micros(interval))


def available_now(*, end_of_input: bool = False) -> Trigger:
    """Process what is there in as many epochs as the sources ask for, then end.

    With `end_of_input` the job is over for good: one last epoch runs in which the watermark passes the end of time,
    so that every event-time timer fires; processing-time timers that are not due do not.
    """
    return Trigger(interval=0, once=True, end_of_input=end_of_input)
