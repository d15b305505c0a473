"""The public verbs: all calls with which an application or an operator uses the queue.

``by`` is text for the log: who acts, and through which channel.
"""

from .reports.explaining.explain import explain
from .reports.log import scope_log
from .verbs.changing import change
from .verbs.control.downstreams import (
    downstream,
    downstreams,
    get_downstream,
    reset_downstream,
    trip_downstream,
)
from .verbs.control.gates import drop, gates, hold, open_gate
from .verbs.control.limits import declared_limits, limit, limits, unlimit
from .verbs.control.tailers import cursors, forget_cursor, get_tailer, seek, tailers
from .verbs.counting import size, waiting
from .verbs.daemons import command, get_daemon
from .verbs.enqueueing import Call, enqueue, enqueue_calls, enqueue_many
from .verbs.graphs import cancel_graph, get_graph, redrive_graph
from .verbs.instances import (
    aget,
    cancel,
    get,
    inputs,
    pause,
    redrive,
    release,
    response,
    resume,
    steps,
    task,
)
from .verbs.matching.errors import annotate, error_groups, get_error_group, mute, unmute
from .verbs.matching.plan import Plan
from .verbs.matching.starting import cancel_matching, delete_matching, redrive_matching
from .verbs.registration import register, register_all, unregister
from .verbs.removal import delete, purge
from .verbs.scanning import scan, suspicions
from .verbs.schedule_specs import timing
from .verbs.schedules import (
    backfill_schedule,
    change_schedule,
    create_schedule,
    delete_schedule,
    get_schedule,
    leave_schedule,
    pause_schedule,
    resume_schedule,
    retire_schedules,
    run_schedule,
    schedules,
    slots,
)
from .verbs.types import declared, get_type

__all__ = [  # noqa: RUF022 (by noun)
    # Types
    "register",
    "register_all",
    "unregister",
    "get_type",
    "declared",
    # Enqueueing
    "Call",
    "enqueue",
    "enqueue_calls",
    "enqueue_many",
    # Instances
    "get",
    "aget",
    "inputs",
    "response",
    "steps",
    "task",
    "change",
    "redrive",
    "release",
    "pause",
    "resume",
    "cancel",
    "delete",
    "purge",
    # Dead letters, and all that matches
    "redrive_matching",
    "cancel_matching",
    "delete_matching",
    "Plan",
    "error_groups",
    "get_error_group",
    "mute",
    "unmute",
    "annotate",
    # Gates and limits
    "hold",
    "drop",
    "open_gate",
    "gates",
    "limit",
    "unlimit",
    "limits",
    "declared_limits",
    "scope_log",
    # Downstreams
    "downstream",
    "reset_downstream",
    "trip_downstream",
    "downstreams",
    "get_downstream",
    # Tailers
    "tailers",
    "get_tailer",
    "cursors",
    "seek",
    "forget_cursor",
    # Schedules
    "create_schedule",
    "change_schedule",
    "leave_schedule",
    "pause_schedule",
    "resume_schedule",
    "run_schedule",
    "backfill_schedule",
    "delete_schedule",
    "retire_schedules",
    "schedules",
    "get_schedule",
    "slots",
    "timing",
    # Graphs
    "get_graph",
    "cancel_graph",
    "redrive_graph",
    # Daemons
    "command",
    "get_daemon",
    # Counting, explaining and checking
    "size",
    "waiting",
    "explain",
    "scan",
    "suspicions",
]
