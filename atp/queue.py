"""The public functions with which applications and operators use the queue.

The argument ``by`` is text for the log. It names the actor, and an interface such as the shell.
"""

from .authoring.task_type import declared, register, register_all, unregister
from .deadletters.operations import annotate, error_groups, get_error_group, mute, unmute
from .downstreams.operations import (
    downstream,
    downstreams,
    get_downstream,
    reset_downstream,
    trip_downstream,
)
from .graphs.operations import cancel_graph, get_graph, redrive_graph
from .operations.daemons import command, end_session, get_daemon, scan, suspicions
from .operations.enqueueing import Call, enqueue, enqueue_calls, enqueue_many
from .operations.gates import (
    declared_limits,
    drop,
    gates,
    hold,
    limit,
    limits,
    open_gate,
    scope_log,
    unlimit,
)
from .operations.instances import (
    aget,
    cancel,
    change,
    delete,
    get,
    inputs,
    pause,
    purge,
    redrive,
    release,
    response,
    resume,
    size,
    steps,
    take_stack,
    task,
    waiting,
)
from .operations.matching import Plan, cancel_matching, delete_matching, redrive_matching
from .operations.registry import get_type
from .reports.explaining.explain import explain
from .schedules.declaring import timing
from .schedules.operations import (
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
from .tailers.operations import cursors, forget_cursor, get_tailer, seek, tailers

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
    "take_stack",
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
    "end_session",
]
