"""The public names: what `import midstream as ms` gives."""

from midstream import sinks, sources
from midstream.checkpoint.records import Cut, Phase
from midstream.errors import CheckpointError, JobError, MidstreamError, PlanError, SchemaError, SinkError, StateError
from midstream.flow.builders import broadcast, key_by, map_arrow, transform, union, watermark, window
from midstream.flow.flow import Flow
from midstream.flow.joins import between
from midstream.flow.streams import KeyedStream, Stream
from midstream.flow.triggers import Trigger, available_now, every
from midstream.job.job import Job, Status
from midstream.modifications.additions import add_source, branch, built
from midstream.modifications.changes import add_sink, insert, remove, remove_sink, remove_source, replace
from midstream.modifications.entry import ModificationError
from midstream.modifications.handle import Modification
from midstream.modifications.relocations import drain, move, rebalance, rescale
from midstream.modifications.shadow import Shadow
from midstream.modifications.tuning import tune
from midstream.operators.aggregates.declare import (
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
from midstream.operators.functions.declare import Context, KeyedFunction, value
from midstream.operators.functions.declare import list_of as list
from midstream.operators.functions.declare import map_of as map
from midstream.placement import strategies
from midstream.placement.status import MoveStatus, SlotState, SlotStatus
from midstream.plan.windows import count_window, session, sliding, tumbling
from midstream.state.timers import Timer

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
    "MoveStatus",
    "Phase",
    "PlanError",
    "SchemaError",
    "Shadow",
    "SinkError",
    "SlotState",
    "SlotStatus",
    "StateError",
    "Status",
    "Stream",
    "Timer",
    "Trigger",
    "add_sink",
    "add_source",
    "aggregated",
    "approx_distinct",
    "available_now",
    "between",
    "branch",
    "broadcast",
    "built",
    "count",
    "count_window",
    "drain",
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
    "move",
    "quantiles",
    "rebalance",
    "remove",
    "remove_sink",
    "remove_source",
    "replace",
    "rescale",
    "session",
    "sinks",
    "sliding",
    "sources",
    "strategies",
    "sum",
    "transform",
    "tumbling",
    "tune",
    "union",
    "value",
    "watermark",
    "window",
]
