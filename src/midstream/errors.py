"""Errors, in seven kinds; each message says what happened, to what, and what to do next."""


class MidstreamError(Exception):
    """The root of every error that Midstream raises on purpose."""


class PlanError(MidstreamError):
    """A flow that cannot run as written: unknown ids or columns, a transform that would change its meaning."""


class SchemaError(MidstreamError):
    """Rows that do not fit the schema an operator declared for its output."""


class StateError(MidstreamError):
    """A value that does not fit its declared state type, or state that cannot be read."""


class CheckpointError(MidstreamError):
    """A checkpoint that cannot be used: unreadable, of another format, in use, or of another history."""


class SinkError(MidstreamError):
    """A sink that cannot be reached, or whose target does not fit."""


class JobError(MidstreamError):
    """A job that ended with an error: the cause is in the message and in `__cause__`."""


def first_line(error: BaseException) -> str:
    """Return the first line of a message, or the kind of an error without one: messages of Spark are long."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
