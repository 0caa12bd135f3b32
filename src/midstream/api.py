"""The public names: what `import midstream as ms` gives."""

from midstream import migration as strategies
from midstream import sinks, sources
from midstream.additions import add_source, branch, built
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
from midstream.changes import add_sink, insert, remove, remove_sink, remove_source, replace
from midstream.errors import (
    CheckpointError,
    JobError,
    MidstreamError,
    PlanError,
    SchemaError,
    SinkError,
    StateError,
)
from midstream.flow import Flow, KeyedStream, Stream
from midstream.functions import Context, KeyedFunction, Timer, value
from midstream.functions import list_of as list
from midstream.functions import map_of as map
from midstream.handle import Modification, ModificationError
from midstream.job import Job, Status
from midstream.joins import between
from midstream.modification import Cut, Phase
from midstream.operators import broadcast, key_by, map_arrow, transform, union, watermark, window
from midstream.places import MoveStatus, SlotState, SlotStatus
from midstream.relocation import drain, move, rebalance, rescale
from midstream.shadow import Shadow
from midstream.triggers import Trigger, available_now, every
from midstream.tuning import tune
from midstream.windows import count_window, session, sliding, tumbling

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
