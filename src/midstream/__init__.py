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
from midstream.changes import add_sink, insert, remove, remove_sink, replace
from midstream.errors import (
    CheckpointError,
    JobError,
    MidstreamError,
    PlanError,
    SchemaError,
    SinkError,
    StateError,
)
from midstream.flow import Flow, KeyedStream, Stream, Trigger, available_now, branch, every
from midstream.functions import Context, KeyedFunction, Timer, value
from midstream.functions import list_of as list
from midstream.functions import map_of as map
from midstream.job import Job, Status
from midstream.modification import Cut, Phase
from midstream.modifications import Modification, ModificationError
from midstream.operators import key_by, map_arrow, transform, watermark

__version__ = "0.1.0"

__all__ = [
    "Aggregator",
    "CheckpointError",
    "Context",
    "Cut",
    "Flow",
    "Job",
    "JobError",
    "KeyedFunction",
    "KeyedStream",
    "MidstreamError",
    "Modification",
    "ModificationError",
    "Phase",
    "PlanError",
    "SchemaError",
    "SinkError",
    "StateError",
    "Status",
    "Stream",
    "Timer",
    "Trigger",
    "add_sink",
    "aggregated",
    "approx_distinct",
    "available_now",
    "branch",
    "count",
    "every",
    "first",
    "insert",
    "key_by",
    "last",
    "list",
    "map",
    "map_arrow",
    "max",
    "mean",
    "min",
    "quantiles",
    "remove",
    "remove_sink",
    "replace",
    "sinks",
    "sources",
    "sum",
    "transform",
    "value",
    "watermark",
]
