"""The contract of every sink: stage -> commit record -> publish, repeatable.

An epoch's rows reach a sink in two steps. `stage` makes them durable where no reader sees them. Then the engine
writes the commit record, which names what was staged, and only then `publish` makes them visible. A crash
between the two is repaired by publishing again; so a publish that is repeated must change nothing. An epoch
that is run again before its commit is staged again, under another run; what the first run staged is never
published, only cleaned.

An epoch is known by its number and the id of its commit: after a checkpoint was restored from a copy the same
numbers come again with other rows, and a sink that remembers must not take the one for the other.

A sink that keeps to this has each committed epoch exactly once. One that cannot (a screen, a user's
function) says so in `guarantee`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession

from midstream.checkpoint.records import Delivered, Staged
from midstream.errors import SinkError


@dataclass(frozen=True, slots=True)
class Staging:
    """Where, and for which epoch, rows are to be staged."""

    sink: str  # operator id of the sink
    job: str  # stable over restarts
    epoch: int
    run: str  # unique per run of the epoch: a re-run stages again, under another name
    spool: str  # a directory of this (sink, epoch, run) alone, not yet existing: local path or URI


class Sink(ABC):
    """Takes the rows of committed epochs.

    The engine promises: `open` comes first, in every process; `stage` may be called several times for an
    epoch, `publish` only for the one run that the commit record names, epochs in ascending order, each as
    often as crashes require; `clean` for what is published, and for runs that never committed. Calls never
    overlap.

    A sink promises what its `guarantee` says, that it can be pickled, and that no secret is in the pickled
    form or in `describe()`. It does not promise that its rows keep their order.
    """

    guarantee: ClassVar[str]
    remembers: ClassVar[bool] = False  # it knows, in any process, what was published to it

    def open(self, spark: SparkSession, sink: str, job: str) -> None:  # noqa: B027  most sinks need nothing
        """Check the target, and create what the sink needs there; raise a `SinkError` that says what to do."""

    @abstractmethod
    def stage(self, df: DataFrame, staging: Staging) -> Staged:
        """Make the epoch's rows durable, invisible and replaceable; refuse here what publish could not take.

        What fails here fails the epoch, which can be re-run under another plan. What fails in `publish` is
        committed already, and stops the job until its cause is removed.
        """

    @abstractmethod
    def publish(self, staged: Staged, spark: SparkSession) -> None:
        """Make the rows visible; a second call changes nothing.

        A sink that remembers may be called again even after `clean`; others are not.

        Raises:
            OtherHistoryError: the sink has this epoch, or a later one, of another history.
            LostRowsError: what was staged is gone, and was not published.
        """

    def published(self, sink: str, job: str) -> Delivered | None:
        """Return the newest epoch with rows that was published; only called where the sink remembers."""
        raise NotImplementedError(f"{type(self).__name__} says that it remembers, but has no published()")

    @abstractmethod
    def clean(self, what: Staging | Staged) -> None:
        """Remove what an epoch staged: `Staged` once published, `Staging` for a run that never committed."""

    @abstractmethod
    def describe(self) -> str:
        """Text that identifies the configuration: equal for equal configurations, without secrets."""

    def __repr__(self) -> str:
        """Show the configuration, without secrets."""
        return self.describe()


class OtherHistoryError(SinkError):
    """A sink has rows of an epoch with this number, or a later one, that another history of the job published."""


class LostRowsError(SinkError):
    """Rows of a committed epoch are gone before they were published."""


def refuse_other_history(sink: str, where: str, found: Delivered, wanted: Staged) -> None:
    """Refuse to publish an epoch where the sink has it, or a later one, from another history."""
    if found.epoch == wanted.epoch and found.commit in ("", wanted.commit):
        return
    raise OtherHistoryError(
        f"sink {sink!r} cannot publish epoch {wanted.epoch} (commit {wanted.commit}): {where} has epoch {found.epoch} "
        f"of commit {found.commit or 'unknown'}. The checkpoint was restored from a copy, and its history "
        "differs: restore the sink to the same moment, or remove its newer epochs; docs/operations.md says how"
    )


class Secret:
    """A value that is neither shown nor pickled: what comes back from a pickle is empty, hence false."""

    def __init__(self, value: str = "") -> None:
        """Wrap `value`."""
        self.value = value

    def __bool__(self) -> bool:
        """Tell whether the value is still there."""
        return bool(self.value)

    def __repr__(self) -> str:
        """Show that there is something, not what."""
        return "'***'"

    def __reduce__(self) -> tuple[type[Secret], tuple[()]]:
        """Leave the value out of the pickled form."""
        return Secret, ()


_SECRET_NAME = re.compile("secret|passw|token|credential|key|sas", re.IGNORECASE)


def hide_secrets(options: Mapping[str, str]) -> dict[str, str | Secret]:
    """Wrap the values of those options whose name says that they are secret."""
    return {name: Secret(value) if _SECRET_NAME.search(name) else value for name, value in options.items()}


def reveal_secrets(options: Mapping[str, str | Secret]) -> dict[str, str]:
    """Unwrap for use; secrets lost to a pickle are left out, so that the environment can provide them."""
    plain = {name: value.value if isinstance(value, Secret) else value for name, value in options.items()}
    return {name: value for name, value in plain.items() if value or not isinstance(options[name], Secret)}


def call(name: str, *positional: Any, **named: Any) -> str:
    """Write a configuration as the call that makes it, without what is None, empty or secret."""
    shown = [repr(value) for value in positional]
    for key, value in sorted(named.items()):
        if isinstance(value, Mapping):
            value = {k: v for k, v in sorted(value.items()) if not isinstance(v, Secret)}
        if value not in (None, (), {}):
            shown.append(f"{key}={value!r}")
    return f"{name}({', '.join(shown)})"
