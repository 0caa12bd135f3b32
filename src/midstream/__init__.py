"""Midstream changes a running stateful streaming job on Spark without stopping it."""

from midstream import sinks, sources
from midstream.aggregates import (
    Aggregator,
    aggregated,
    approx_distinct,
    count,
    first,
    last,
    max,
    mean,
    min,
    quantiles,
    sum,
)
from midstream.errors import (
    CheckpointError,
    JobError,
    MidstreamError,
    PlanError,
    SchemaError,
    SinkError,
    StateError,
)
from midstream.flow import Flow, KeyedStream, Stream, Trigger, available_now, every
from midstream.functions import Context, KeyedFunction, Timer, value
from midstream.functions import list_of as list
from midstream.functions import map_of as map
from midstream.job import Job, Status

__version__ = "0.1.0"

__all__ = [
    "Aggregator",
    "CheckpointError",
    "Context",
    "Flow",
    "Job",
    "JobError",
    "KeyedFunction",
    "KeyedStream",
    "MidstreamError",
    "PlanError",
    "SchemaError",
    "SinkError",
    "StateError",
    "Status",
    "Stream",
    "Timer",
    "Trigger",
    "aggregated",
    "approx_distinct",
    "available_now",
    "count",
    "every",
    "first",
    "last",
    "list",
    "map",
    "max",
    "mean",
    "min",
    "quantiles",
    "sinks",
    "sources",
    "sum",
    "value",
]
