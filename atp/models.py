"""All models: Type, Instance, Inputs, Response, LogRecord and Task (RFC 14), and ATP's own.

Django finds the models in this module, and other code imports them from it. Packages such as
``atp.schedules`` define the models of their own feature. Only the store writes Task,
``Instance.state`` and LogRecord; all other code only reads them.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core.files import File
from django.core.files.storage import storages
from django.db import connections, models
from django.db.models import F, Q, TextChoices
from django.utils.http import parse_header_parameters

from . import fields, options
from .commands import Mode, mode_after
from .conf import MAX_RELEASE, settings
from .deadletters.models import ErrorGroup, Failure
from .downstreams.models import Downstream
from .exceptions import UnknownInstance, WaitInTransaction, WaitTimeout
from .fields import InstantField, uuid7
from .graphs.models import Edge, Failing, Graph, Node, Undo
from .options import MAX_ADDRESS, MAX_IDENTIFIER, MAX_SUBJECT
from .payload import codec
from .payload import json as tagged_json
from .querysets import (
    DaemonQuerySet,
    InstanceQuerySet,
    LogQuerySet,
    TaskQuerySet,
    no_daemon_suffix,
    refuse_removal,
)
from .schedules.models import Schedule, Slot
from .states import TERMINAL, Event, Reason, State
from .tailers.models import Cursor, Tailer

__all__ = [
    "Cursor",
    "Daemon",
    "Downstream",
    "Edge",
    "ErrorGroup",
    "Failing",
    "Failure",
    "Gate",
    "Graph",
    "Inputs",
    "Instance",
    "Limit",
    "LogRecord",
    "Node",
    "Response",
    "Schedule",
    "Slot",
    "SpareLease",
    "Statistic",
    "Step",
    "Tailer",
    "Task",
    "Type",
    "Uncounted",
    "Undo",
    "Usage",
]

MAX_DETAIL = 64


class Type(models.Model):
    """A kind of task, with its registered parameters (RFC 14). Only registration writes it."""

    identifier = models.CharField(max_length=MAX_IDENTIFIER, unique=True)
    handler = models.CharField(
        max_length=255,
        help_text="For display: a daemon runs the function that its own code declares.",
    )
    timeout = models.DurationField(null=True, help_text="A running attempt is killed after this.")
    max_restarts = models.PositiveIntegerField(help_text="Attempts that may be lost while running.")
    max_retries = models.PositiveIntegerField(help_text="Attempts that may raise and be retried.")
    backoff = models.DurationField(help_text="Delay before the first retry.")
    backoff_max = models.DurationField(help_text="Longest delay before a retry.")
    retention = models.DurationField(null=True, help_text="Terminal Instances are kept this long.")
    serializer = models.CharField(max_length=16, default=codec.JSON)
    max_memory = models.PositiveBigIntegerField(
        null=True, help_text="In bytes; an attempt is killed when its processes take more."
    )
    late_writes = models.PositiveIntegerField(
        db_default=0, help_text="Results refused, because their Task had been taken away."
    )
    registered = InstantField(help_text="When the parameters were last changed.")
    hooks = models.JSONField(
        null=True,
        help_text="The hooks to enqueue when an Instance ends; see atp.store.values.",
    )
    downstream = models.CharField(
        max_length=MAX_IDENTIFIER,
        blank=True,
        default="",
        db_default="",
        help_text="The name of the downstream that its handler calls.",
    )
    owner = models.CharField(
        max_length=MAX_IDENTIFIER,
        blank=True,
        default="",
        db_default="",
        help_text="Who looks after it.",
    )
    runbook = models.CharField(
        max_length=MAX_ADDRESS,
        blank=True,
        default="",
        db_default="",
        help_text="The address of a page that says what to do about its failures.",
    )

    sensitive = models.JSONField(
        null=True, help_text="Names of the arguments that are masked wherever inputs are shown."
    )
    needs = models.JSONField(
        null=True, help_text="The labels that a daemon must have to run it, by name."
    )
    resources = models.JSONField(
        null=True, help_text="The amounts of resources that each of its attempts takes, by name."
    )
    family = models.CharField(
        max_length=MAX_IDENTIFIER,
        blank=True,
        default="",
        db_default="",
        help_text="The same word on the rows of all names of a Type that was renamed.",
    )

    class Meta:
        ordering = ["identifier"]

    def __str__(self) -> str:
        return self.identifier


def group_renamed_types(types: models.QuerySet[Type]) -> dict[int, frozenset[int]]:
    """Map each row of a renamed Type to all rows of that Type, by primary key.

    A renamed Type has one row for its current name and one for each former name. These rows share
    unique keys and identifiers. Types that were never renamed are left out.
    """
    rows = list(types.exclude(family="").values_list("pk", "identifier", "family"))
    groups: dict[str, frozenset[str]] = {}
    for _, *names in rows:
        group = frozenset().union(*(groups.get(name, {name}) for name in names))
        groups |= dict.fromkeys(group, group)
    keys = {name: key for key, name, _ in rows}
    return {
        key: frozenset(keys[name] for name in groups[own] if name in keys)
        for own, key in keys.items()
    }


# Gates and limits, which operators set.


class Gate(models.Model):
    """A shut gate, which stops daemons from claiming the Tasks of a lane, a Type, or the queue.

    An open gate has no row. If ``type`` is null, the gate is for the whole queue. If only
    ``collection`` is null, the gate is for all lanes of the Type.
    """

    subject = models.CharField(max_length=MAX_SUBJECT, unique=True)
    type = models.ForeignKey(Type, models.CASCADE, null=True, db_index=False)
    collection = models.CharField(max_length=MAX_IDENTIFIER, null=True)
    mode = models.CharField(max_length=4, choices=[("hold", "hold"), ("drop", "drop")])
    reason = models.CharField(max_length=200, blank=True, default="")
    who = models.CharField(max_length=200, blank=True, default="")
    since = InstantField()
    until = InstantField(null=True, help_text="When the gate opens by itself.")

    # After an operator has set this Gate: the shut Gate that it replaced, or None.
    was: Gate | None = None

    class Meta:
        ordering = ["subject"]

    def __str__(self) -> str:
        return self.subject


class Limit(models.Model):
    """The limits of a lane or a Type, for all daemons together; and the weight of a Type.

    A lane or Type without limits and weight has no row. The rate limit had ``tokens`` tokens left
    at the time ``refilled``. Registration writes the limits that code declares, unless an operator
    has set others (``is_set``).
    """

    subject = models.CharField(max_length=MAX_SUBJECT, unique=True)
    type = models.ForeignKey(Type, models.CASCADE, db_index=False, related_name="limits")
    collection = models.CharField(max_length=MAX_IDENTIFIER, null=True)
    max_running = models.PositiveIntegerField(
        null=True, help_text="Tasks that may be claimed at a time."
    )
    max_running_per_collection = models.PositiveIntegerField(
        null=True, help_text="Tasks of each lane of the Type that may be claimed at a time."
    )
    rate = models.CharField(
        max_length=32,
        blank=True,
        default="",
        help_text='Tasks that may start in a time, as "100/m".',
    )
    per_second = models.FloatField(null=True, help_text="The rate in tasks a second.")
    burst = models.PositiveIntegerField(
        default=1, help_text="Tasks that may start at once after a pause."
    )
    weight = models.FloatField(
        default=1.0, help_text="The share of the Type relative to other Types."
    )
    max_waiting = models.PositiveIntegerField(
        null=True, help_text="Tasks that may wait at a time; with more, enqueues are refused."
    )
    max_wait = models.DurationField(
        null=True, help_text="Enqueues are refused only if the oldest due Task has waited longer."
    )
    tokens = models.FloatField(default=0.0)
    refilled = InstantField(null=True)
    is_set = models.BooleanField(default=False, help_text="Whether an operator has set the limits.")
    who = models.CharField(max_length=200, blank=True, default="")
    since = InstantField()

    class Meta:
        ordering = ["subject"]

    def __str__(self) -> str:
        return self.subject


# Running daemons and their leases.


class Daemon(models.Model):
    """One running atpd.

    On SQLite, where all daemons run on one host, the lease is a file lock, and ``lock`` is its
    name. On other databases ``lock`` is empty, and the lease ends at ``lease_until``. The daemon
    listens on ``channel`` for Tasks that other processes hand to it. The name of the channel is a
    secret, because whoever knows it can hand the daemon a Task. ``signatures`` maps the identifier
    of each Type to a short hash of its handler's signature. ``misfits`` maps the identifiers to the
    keys of Instances whose inputs were recently incompatible with that handler.
    """

    uuid = models.UUIDField(unique=True)
    host = models.CharField(max_length=255)
    pid = models.PositiveIntegerField()
    version = models.CharField(max_length=32)
    types = models.JSONField(default=list, help_text="Identifiers of the Types it serves.")
    release = models.CharField(
        max_length=MAX_RELEASE,
        blank=True,
        default="",
        db_default="",
        help_text="The release of the project.",
    )
    signatures = models.JSONField(
        default=dict, db_default={}, help_text="Hashes of handlers' signatures, by Type."
    )
    misfits = models.JSONField(
        default=dict, db_default={}, help_text="Instances whose inputs did not fit, by Type."
    )
    labels = models.JSONField(
        default=dict, db_default={}, help_text="The labels of its host, by name."
    )
    capacity = models.JSONField(
        default=dict, db_default={}, help_text="The resources of its host: amounts by name."
    )
    engine = models.JSONField(
        default=dict, db_default={}, help_text="What is known of the engine of its executor."
    )
    workers = models.JSONField(default=list, help_text="For each worker: pid, Instance, start.")
    lock = models.CharField(max_length=255, blank=True, default="")
    lease_until = InstantField()
    idle = models.BooleanField(default=False)
    channel = models.CharField(
        max_length=63,
        blank=True,
        default="",
        db_default="",
        help_text="The channel for Tasks that are handed to the daemon.",
    )
    mode = models.CharField(
        max_length=8, choices=Mode, default=Mode.RUNNING, db_default=Mode.RUNNING
    )
    request = models.CharField(
        max_length=16,
        blank=True,
        default="",
        help_text="The order that it has been given: quiet or stop.",
    )
    started = InstantField()
    seen = InstantField()
    counted = models.BigIntegerField(
        null=True, help_text="Key of the last of its own LogRecords that Statistic counts."
    )
    signed_until = models.BigIntegerField(
        null=True,
        help_text="Later LogRecords with its host and pid are those of its successor.",
    )

    objects = DaemonQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"

    @property
    def aim(self) -> Mode:
        """The Mode that the daemon has once it has obeyed ``request``; STOPPING is final."""
        return mode_after(self.mode, self.request)


class SpareLease(models.Model):
    """A second row for a daemon's lease, on databases where a lease ends at a time.

    If another session has locked the daemon's own row, the daemon renews this row instead. The
    lease ends at the later of the two times.
    """

    daemon = models.OneToOneField(
        Daemon,
        models.CASCADE,
        primary_key=True,
        db_constraint=False,
        related_name="spare_lease",
    )
    until = InstantField()

    def __str__(self) -> str:
        return f"spare lease of {self.daemon_id}"


# Instances, and waiting for their end.


class WaitPauses:
    """Computes the growing pauses between reads of an Instance, while a caller waits for its end.

    ``timeout`` is the longest wait in seconds; None waits for ever.
    """

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._pause = 0.01

    def pause(self, instance: Instance) -> float:
        """Return the next pause in seconds. Raises WaitTimeout if the timeout has passed."""
        left = None if self._deadline is None else self._deadline - time.monotonic()
        if left is not None and left <= 0:
            raise WaitTimeout(f"{instance.uuid} is still {instance.state} after {self._timeout} s.")
        pause, self._pause = self._pause, min(self._pause * 1.5, 0.5)
        return pause if left is None else min(pause, left)


class Instance(models.Model):
    """An accepted request to run the handler of a Type with certain inputs."""

    type = models.ForeignKey(
        Type, models.PROTECT, related_name="instances", db_index=False, db_constraint=False
    )
    uuid = models.UUIDField(default=uuid7, unique=True, editable=False)
    identifier = models.CharField(
        max_length=MAX_IDENTIFIER, null=True, help_text="The caller's idempotency key."
    )
    state = models.CharField(max_length=9, choices=State)
    reason = models.CharField(max_length=9, choices=Reason, blank=True, default="")
    collection = models.CharField(max_length=MAX_IDENTIFIER, blank=True, default="")
    priority = models.SmallIntegerField(default=0)
    attempt = models.IntegerField(default=0, help_text="Number of claims so far, for fencing.")
    restarts = models.IntegerField(default=0, help_text="Attempts lost while running.")
    retries = models.IntegerField(default=0, help_text="Attempts that raised.")
    lost = models.IntegerField(default=0, help_text="Attempts lost in all.")
    progress = models.FloatField(null=True, help_text="From 0 to 1; null when unknown.")
    progress_message = models.CharField(max_length=200, blank=True, default="")
    start_before = InstantField(null=True)
    created_by = models.CharField(max_length=200, blank=True, default="")
    created = InstantField()
    started = InstantField(null=True, help_text="When the last attempt started.")
    finished = InstantField(null=True)
    # It is last because it is null in most rows, and then takes no space.
    own = models.JSONField(null=True, help_text="Values for this Instance alone; see atp.options.")

    error = models.ForeignKey(
        ErrorGroup, models.DO_NOTHING, null=True, db_index=False, db_constraint=False,
        related_name="+", help_text="The error group of a dead letter.",
    )  # fmt: skip

    objects = InstanceQuerySet.as_manager()

    # True if the enqueue that returned it created it; False if one with its identifier existed.
    is_new = False

    class Meta:
        permissions = [
            ("enqueue", "Can enqueue Instances"),
            ("operate", "Can operate: redrive, cancel, pause, change"),
            ("control", "Can control gates, limits, downstreams, schedules, tailers, daemons"),
        ]
        # Except for partial indexes on terminal rows, no index has a column that changes while
        # the Instance is live: so PostgreSQL can update a live row without touching an index.
        indexes = [
            # Instances of a Type, newest first; and whether it has any, before it is unregistered.
            models.Index(F("type"), F("id").desc(), name="atp_instance_of_type"),
            # Retention: the oldest terminal Instances of a Type. The condition is on
            # "finished", which is null while the Instance is live. It cannot be on the state:
            # PostgreSQL treats a column in a condition as indexed.
            models.Index(
                fields=["type", "finished"],
                condition=Q(finished__isnull=False),
                name="atp_instance_terminal",
            ),
            # Lists, newest first. Each index begins with the column that sorts the list, or
            # with a column for which each list has one value, so that the rows come in order.
            # The other columns that select a list follow, so that the database compares them
            # without reading the row. It reads the indexes backwards, because an index that
            # grows at its end costs less than one in the opposite order.
            #
            # FINISHED Instances, also of one Type or collection, however many newer Instances
            # are live or FAILED.
            models.Index(
                fields=["id", "type", "collection"],
                condition=Q(finished__isnull=False, reason=""),
                name="atp_instance_newest_finished",
            ),
            # FAILED Instances, also of one reason, Type or collection; and the overview's newest
            # failures. While nothing fails, this index and the next one cost nothing.
            models.Index(
                fields=["id", "reason", "type", "collection"],
                condition=Q(finished__isnull=False, reason__gt=""),
                name="atp_instance_failed",
            ),
            # FAILED Instances of a Type whose Instances seldom fail.
            models.Index(
                fields=["type", "id"],
                condition=Q(finished__isnull=False, reason__gt=""),
                name="atp_instance_failed_of_type",
            ),
            # The number of failures of a Type for each reason.
            models.Index(
                fields=["type", "reason", "id"],
                condition=Q(finished__isnull=False, reason__gt=""),
                name="atp_instance_failed_reason",
            ),
            # The Instances of a collection, also of one Type.
            models.Index(
                fields=["collection", "id", "type"],
                condition=Q(collection__gt=""),
                name="atp_instance_collection",
            ),
            # The dead letters of an error group.
            models.Index(
                fields=["error", "id", "type", "collection"],
                condition=Q(error__isnull=False),
                name="atp_instance_of_error",
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["type", "identifier"],
                condition=Q(identifier__isnull=False),
                name="atp_instance_identifier",
            ),
            *fields.INSTANCE_CONSTRAINTS,
        ]

    def __str__(self) -> str:
        return str(self.uuid)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Delete this row as Django does. Raises IllegalTransition if the Instance is live.

        :func:`atp.queue.delete` can cancel a live Instance first.
        """
        rows = type(self).objects.using(kwargs.get("using") or self._state.db)
        live = rows.filter(pk=self.pk).live().first()
        if live is not None:
            raise refuse_removal(live)
        return super().delete(*args, **kwargs)

    delete.alters_data = True  # type: ignore[attr-defined]

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def is_under_way(self) -> bool:
        """True if an attempt has started and has not ended: RUNNING or PAUSED."""
        return self.state in (State.RUNNING, State.PAUSED)

    @property
    def timeout(self) -> timedelta | None:
        """The Instance's own time-out; None if the time-out of its Type applies."""
        return options.own_timeout(self.own or {})

    @property
    def max_retries(self) -> int | None:
        """The Instance's own number of retries; None if the number of its Type applies."""
        return (self.own or {}).get(options.OWN_MAX_RETRIES)

    @property
    def unique(self) -> str | None:
        """The key that no other live Instance of the Type may have; None if it has no key."""
        return (self.own or {}).get(options.UNIQUE)

    @property
    def hook_of(self) -> str | None:
        """The uuid of the Instance whose end enqueued this hook; None if it is not a hook."""
        return (self.own or {}).get(options.HOOK_OF)

    @property
    def is_hooked(self) -> bool:
        """True if the Instance or its Type has hooks; False if the Instance is itself a hook."""
        return self.hook_of is None and bool(self.type.hooks or (self.own or {}).get(options.HOOKS))

    @property
    def carried(self) -> dict[str, Any]:
        """The values that the carriers saved for the handler at the enqueue, by carrier name."""
        return (self.own or {}).get(options.CARRIED) or {}

    @property
    def tried_again(self) -> int:
        """The number of attempts that raised or were lost while running.

        It leaves out claims that a daemon handed back before the start.
        """
        return self.retries + self.restarts

    @property
    def log(self) -> LogQuerySet[LogRecord]:
        """The LogRecords about this Instance, oldest first."""
        return self.logrecord_set.in_order()

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until this Instance is terminal, and return it with its final fields.

        ``timeout`` is in seconds; None waits for ever. Raises WaitTimeout. Raises WaitInTransaction
        inside a transaction, which would never see the end.

        The row may be removed during the wait. If the Type keeps no FINISHED Instances, the
        Instance then counts as FINISHED, because FAILED ones are kept; it has no Response and no
        log. For other Types, this raises UnknownInstance.
        """
        self._refuse_in_transaction()
        waiting = WaitPauses(timeout)
        while not self.is_terminal:
            time.sleep(self._reload_and_pause(waiting))
        return self

    async def await_end(self, timeout: float | None = None) -> Self:
        """Wait for the end as :meth:`wait` does, but without blocking a thread."""
        await sync_to_async(self._refuse_in_transaction)()
        waiting = WaitPauses(timeout)
        while not self.is_terminal:
            await asyncio.sleep(await sync_to_async(self._reload_and_pause)(waiting))
        return self

    def _refuse_in_transaction(self) -> None:
        database = self._state.db or settings.DATABASE
        if not self.is_terminal and connections[database].in_atomic_block:
            raise WaitInTransaction("wait() inside a transaction would never return: commit first.")

    def _reload_and_pause(self, waiting: WaitPauses) -> float:
        """Read the fields again; return the seconds until the next read. Raises WaitTimeout."""
        self._refresh()
        try:
            return 0.0 if self.is_terminal else waiting.pause(self)
        except WaitTimeout as error:
            raise WaitTimeout(f"{error}{no_daemon_suffix()}") from None

    def _refresh(self) -> None:
        """Read the fields again. Raises UnknownInstance if the row was removed.

        But if the Type keeps no FINISHED Instances, an Instance without a row counts as FINISHED.
        """
        try:
            self.refresh_from_db()
        except Instance.DoesNotExist:
            if self.type.retention != timedelta(0):
                raise UnknownInstance(
                    f"There is no Instance {self.uuid} any more: it was purged or deleted, so ATP "
                    "does not know how it ended."
                ) from None
            self.state, self.progress = State.FINISHED, 1.0


# The log: transitions, messages of handlers, actions of operators.


class Kind(TextChoices):
    """The kind of a LogRecord that is not a transition. For a transition, the kind is its Event."""

    # About an Instance.
    MESSAGE = "message", "a message of its handler"
    LEFT_OUT = "left_out", "messages of its handler were left out here"
    ASK = "ask", "its holder was asked to cancel, release, pause or resume it, or for its stack"
    STACK = "stack", "the stack of its attempt: the detail says what it was taken for"
    CHANGE = "change", "priority, due time or collection were changed"
    LATE = "late", "an attempt wrote after its Task had been taken away: the write was refused"
    REFUSED = "refused", "another write was refused, because the attempt had ended"
    STEP = "step", "a step was repeated: an earlier attempt had begun it and kept no result"
    UNCLAIMED = "unclaimed", "due for long and not claimed"
    FREED = "freed", "every Instance that it waited for, in its graph or schedule, has ended"
    HOOK = "hook", "its end enqueued a hook: the detail is the uuid of the hook"
    # About an Instance, a Type or a daemon.
    MENDED = "mended", "a scan repaired rows that did not fit together"
    # About a Type, a lane or the whole queue.
    GATE = "gate", "a gate was set: hold, drop or open"
    LIMITS = "limits", "limits were set: by an operator, or by the code"
    FULL = "full", "too many waited: the detail is the number of enqueues refused or delayed"
    SESSION = "session", "a session of the database was ended, because others waited for it"
    # About a Type.
    REGISTERED = "registered", "the Type was registered"
    PARAMETERS = "parameters", "the parameters of the Type were changed"
    UNREGISTERED = "unregistered", "the Type was unregistered"
    REMOVED = "removed", "Instances of the Type were removed: the detail is their number"
    CURSOR = "cursor", "an operator set the position of a tailer: the detail is the shard"
    GAP = "gap", "a tailer passed over records: the detail is their number, if it is known"
    SOURCE = "source", "what a tailer cannot read changed: the detail is how much that is"
    # About a downstream.
    DOWNSTREAM = "downstream", "the state of the downstream changed, or an operator set it"
    # About a schedule.
    SCHEDULE = "schedule", "a schedule was declared, set, paused, run …: the detail is the verb"
    # About a daemon, by its uuid.
    STARTED = "started", "the daemon joined the queue"
    REJOINED = "rejoined", "the daemon joined again, under a new identity"
    LEFT = "left", "the daemon left the queue"
    LOST = "lost", "the daemon was found lost"
    ORDER = "order", "the daemon got an order: quiet, resume or stop"


# The store writes a record of one of these kinds when it removes the row of a daemon.
DEPARTURES = (Kind.LEFT, Kind.LOST)


def lost_detail(daemon: UUID, seen: datetime) -> str:
    """Return the detail of a daemon's loss: its uuid, and the time of its last renewal."""
    return f"{daemon} {seen.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


# The detail of the record of a stack for which somebody asked. For a stack that was taken before a
# kill, the detail is the cause of the kill.
ASKED = "asked"
# The detail of a deferral for incompatible inputs: this, and the signature of the handler.
_MISFIT = "misfit:"


def incompatible_detail(signature: str) -> str:
    """Return the detail of a LogRecord for a deferral, as inputs do not fit this signature."""
    return f"{_MISFIT}{signature}"


def read_signature(detail: str) -> str | None:
    """Return the signature from a detail of :func:`incompatible_detail`; None for other details."""
    return detail.removeprefix(_MISFIT) if detail.startswith(_MISFIT) else None


class LogRecord(models.Model):
    """One transition, message of a handler, or action of an operator.

    ``kind`` is an Event or a :class:`Kind`. ``detail`` is for programs. Depending on the kind, it
    is the command, the uuid of the daemon, the result of ``lost_detail()``, the beginning of the
    class name of the exception that a handler raised, or the result of ``incompatible_detail()``.
    ``message`` is for people, and no code compares it. If the record is not about an Instance,
    ``instance`` is null, and ``subject`` names what it is about, such as a Type, a lane or a
    daemon. Purging keeps such records.
    """

    instance = models.ForeignKey(
        Instance, models.CASCADE, null=True, db_index=False, db_constraint=False
    )
    subject = models.CharField(max_length=255, blank=True, default="")
    time = InstantField()
    kind = models.CharField(max_length=16)
    state = models.CharField(
        max_length=9, blank=True, default="", help_text="The state after the event."
    )
    attempt = models.IntegerField(null=True)
    level = models.SmallIntegerField(help_text="As in the logging module.")
    who = models.CharField(max_length=200, blank=True, default="")
    message = models.TextField(blank=True, default="")
    # It is last and has a database default, so that statements for many records can omit it.
    detail = models.CharField(max_length=MAX_DETAIL, blank=True, default="", db_default="")
    # It is null in most rows, and then takes no space.
    counted = models.BooleanField(
        null=True, help_text="Whether the transaction that wrote it also counted it in Statistic."
    )

    objects = LogQuerySet.as_manager()

    class Meta:
        indexes = [
            # The log of an Instance, from any record on. Without the primary key in the index,
            # the database would sort a long log for each page, or search all logs.
            models.Index(fields=["instance", "id"], name="atp_log_of_instance"),
            # The records about a Type, a lane or a daemon.
            models.Index(
                fields=["subject"], condition=Q(instance__isnull=True), name="atp_log_subject"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.time:%Y-%m-%d %H:%M:%S} {self.kind} {self.message[:60]}"

    @property
    def event(self) -> str:
        """The Event if the record is a transition, else an empty string."""
        return self.kind if self.kind in Event else ""


# The arguments and the output of an Instance.


class Inputs(models.Model):
    """The serialized arguments of one Instance."""

    instance = models.OneToOneField(Instance, models.CASCADE, primary_key=True, db_constraint=False)
    format = models.CharField(max_length=8, default=codec.JSON)
    data = models.TextField()

    class Meta:
        verbose_name_plural = "inputs"

    def __str__(self) -> str:
        return f"inputs of {self.instance_id}"

    @property
    def value(self) -> Any:
        """The arguments: a dict of keyword arguments, with the positional ones under "*"."""
        return codec.decode(codec.Payload(self.format, self.data))

    @property
    def carried(self) -> dict[str, Any]:
        """The values that the carriers saved for the handler at the enqueue, by carrier name."""
        # Inputs exist for a moment after their Instance; Inputs that are not stored have none.
        rows = Instance.objects.using(self._state.db or settings.DATABASE)
        instance = None if self.pk is None else rows.filter(pk=self.pk).first()
        return {} if instance is None else instance.carried


class Response(models.Model):
    """The output of one Instance: its content type, and its data or, if large, a stored file.

    ``files`` describes the files that the handler published: a list of objects with ``name``,
    ``path`` (in Django's storage), ``content_type``, ``size`` (bytes) and ``attempt``.
    """

    instance = models.OneToOneField(
        Instance, models.CASCADE, primary_key=True, related_name="response"
    )
    content_type = models.CharField(max_length=127, blank=True, default="")
    data = models.BinaryField(null=True)
    file = models.CharField(max_length=255, blank=True, default="")
    size = models.PositiveBigIntegerField(default=0, help_text="Bytes of the output.")
    files = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"response of {self.instance_id}"

    def open(self) -> File:
        """Open the output as a binary file. The output must be stored as a file (``file``)."""
        return storages[settings.STORAGE].open(self.file)

    @property
    def body(self) -> bytes | None:
        """The raw output in bytes; None if the handler returned nothing."""
        if self.file:
            with self.open() as stored:
                return stored.read()
        return None if self.data is None else bytes(self.data)

    @property
    def value(self) -> Any:
        """The output as the handler returned it: decoded JSON, text as str, anything else as bytes.

        Text that cannot be decoded by its charset (default: UTF-8) is returned as bytes, too.
        """
        body = self.body
        if body is None:
            return None
        if self.is_pickle:
            return codec.decode(codec.Payload(codec.PICKLE, body.decode()))
        kind = self._media_type
        if kind == "application/json":
            return tagged_json.from_json(body.decode())
        return self._decode_text(body) if kind.startswith("text/") else body

    def _decode_text(self, body: bytes) -> str | bytes:
        """Return text, decoded by the charset of the content type; the bytes if decoding fails."""
        try:
            charset = parse_header_parameters(self.content_type)[1].get("charset", "utf-8")
            return body.decode(charset)
        except (LookupError, ValueError):
            return body

    @property
    def is_pickle(self) -> bool:
        """True if the output is a pickle, which :attr:`value` has to load."""
        return self._media_type == codec.PICKLE_CONTENT_TYPE

    @property
    def _media_type(self) -> str:
        return self.content_type.partition(";")[0].strip().lower()

    @property
    def stored_paths(self) -> list[str]:
        """The paths of all files in Django's storage that belong to this Response."""
        return [self.file] * bool(self.file) + [entry["path"] for entry in self.files]


# Statistics: the numbers of events by minute and Type, and what the workers of daemons did.

# The number of buckets of a histogram. The first is for durations of less than a millisecond. The
# upper bound of each next bucket is twice as large; the last bucket has no upper bound.
BUCKETS = 24
# The start of the rows of totals.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def failure_column(reason: Reason | str) -> str:
    """Return the name of the column that counts the failures for this reason."""
    return f"failed_{reason.lower()}"


FAILURE_COLUMNS = tuple(failure_column(reason.value) for reason in Reason)
# Columns of numbers; columns of lists of BUCKETS numbers.
COUNTS = ("started", "finished", "retried", "deferred", "lost", *FAILURE_COLUMNS, "wall_us")
HISTOGRAMS = ("wait", "run")
# The type of the rows that add up all Types. The identifier of a Type is never empty.
ALL_TYPES = ""


def bucket_of(microseconds: int) -> int:
    """Return the index of a histogram's bucket for a duration in microseconds."""
    if microseconds < 1000:
        return 0
    place = (microseconds // 1000).bit_length()
    return place if place < BUCKETS else BUCKETS - 1


class Span(models.IntegerChoices):
    """The length of the period that a Statistic or Usage covers, in seconds; 0 is all time."""

    MINUTE = 60, "a minute"
    HOUR = 3600, "an hour"
    TOTAL = 0, "all before"


class Statistic(models.Model):
    """Counts the events of one Type in one period, by the times of their LogRecords.

    Rows are inserted and never updated. There may be several rows for one Type and period, and
    readers add them up. A maintenance job replaces several rows by one, in one transaction.
    ``type`` is the identifier of the Type instead of a reference, so that the counts outlive its
    registration. ``wait`` and ``run`` are histograms of durations: from due to start, and from
    start to end.

    The rows whose ``type`` is :data:`ALL_TYPES` repeat the events of all Types, so that a chart of
    the queue reads one row for each period. Readers that add up Types leave these rows out.
    """

    span = models.PositiveSmallIntegerField(choices=Span)
    start = InstantField()
    type = models.CharField(max_length=MAX_IDENTIFIER)
    started = models.BigIntegerField(default=0)
    finished = models.BigIntegerField(default=0)
    retried = models.BigIntegerField(default=0)
    deferred = models.BigIntegerField(default=0)
    lost = models.BigIntegerField(default=0)
    failed_error = models.BigIntegerField(default=0)
    failed_fatal = models.BigIntegerField(default=0)
    failed_stale = models.BigIntegerField(default=0)
    failed_cancelled = models.BigIntegerField(default=0)
    failed_dropped = models.BigIntegerField(default=0)
    failed_missed = models.BigIntegerField(default=0)
    failed_upstream = models.BigIntegerField(default=0)
    wall_us = models.BigIntegerField(default=0, help_text="All runs together, in microseconds.")
    wait = models.JSONField(default=list, help_text="Numbers of starts, by bucket.")
    run = models.JSONField(default=list, help_text="Numbers of ends, by bucket.")

    class Meta:
        indexes = [
            # The counts of all Types since a time; and the rows that a maintenance job replaces.
            models.Index(fields=["span", "start", "type"], name="atp_statistic_key"),
            # The history of one Type.
            models.Index(fields=["type", "span", "start"], name="atp_statistic_of_type"),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.start:%Y-%m-%d %H:%M}"


class Usage(models.Model):
    """What the workers of one daemon did in one period: a minute, or later an hour.

    A daemon writes a row after each minute, and one when it ends. Its first and its last row cover
    only a part of a minute. Rows are inserted and never updated. There may be several rows for one
    daemon and period, and readers add them up, but of ``memory`` they take the largest. A
    maintenance job replaces the minutes by hours after 2 days, and removes the hours after 90 days.

    ``capacity_us`` is the number of workers that the daemon may have at work, times the
    microseconds for which it ran, also while it was quiet or stopping. ``busy_us`` is the time for
    which attempts ran, as measured and not sampled, in microseconds. The time for which an attempt
    was paused does not count. A daemon that is killed loses what it has not written: a minute and a
    few seconds at most.

    ``memory`` is in bytes. Each sample adds up the memory of all worker processes, and counts
    memory that they share in each of them. Processes that handlers start are not in it. It is 0 if
    nothing was measured.
    """

    span = models.PositiveSmallIntegerField(choices=Span)
    start = InstantField()
    daemon = models.UUIDField(help_text="The uuid that the daemon had when it wrote the row.")
    name = models.CharField(max_length=300, help_text="Its host and pid, as HOST:PID.")
    capacity_us = models.BigIntegerField(help_text="Microseconds of workers, busy or idle.")
    busy_us = models.BigIntegerField(help_text="Microseconds of workers that ran attempts.")
    ended = models.BigIntegerField(help_text="Attempts that ended.")
    memory = models.BigIntegerField(default=0, help_text="The largest sample, in bytes.")

    class Meta:
        indexes = [models.Index(fields=["span", "start"], name="atp_usage_start")]

    def __str__(self) -> str:
        return f"{self.name} {self.start:%Y-%m-%d %H:%M}"


class Uncounted(models.Model):
    """A range of LogRecords that a daemon left uncounted in Statistic when its identity ended.

    ``daemon`` is the uuid of that identity. The range has the records that ``who`` or one of its
    workers signed, with primary keys greater than ``after`` and up to ``until``. It leaves out
    those that are already counted.
    """

    daemon = models.UUIDField(unique=True)
    who = models.CharField(max_length=200)
    after = models.BigIntegerField()
    until = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.who} {self.after}-{self.until}"


# Steps and Tasks.


class Step(models.Model):
    """The checkpoint of a named part of a handler, with the result for later attempts.

    ``attempt`` is the last attempt that began the step. If ``finished`` is null, that attempt began
    the step and stored no result. Only a sleep has ``until``; a sleep has no result.
    """

    # Without a constraint: the store locks the Task before it writes, so the Instance exists.
    instance = models.ForeignKey(
        Instance, models.CASCADE, related_name="steps", db_index=False, db_constraint=False
    )
    name = models.CharField(max_length=MAX_IDENTIFIER)
    attempt = models.IntegerField()
    started = InstantField()
    finished = InstantField(null=True)
    until = InstantField(null=True, help_text="When a sleep is over; null for other steps.")
    format = models.CharField(max_length=8, default=codec.JSON)
    data = models.TextField(null=True)

    class Meta:
        ordering = ["instance", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["instance", "name"], name="atp_step_once"),
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.instance_id}"

    @property
    def value(self) -> Any:
        """The result as the function returned it; None if the step has none."""
        return None if self.data is None else codec.decode(codec.Payload(self.format, self.data))


# The due time of a node that waits for others. It is a valid time in every time zone.
BLOCKED = datetime(9999, 1, 1, tzinfo=UTC)
# ``waits`` of a Task that is not a node, but has hooks to be enqueued at its end.
HOOKED = -1


class Task(models.Model):
    """The queue row of a live Instance. Daemons write it most often, so it has few columns.

    A waiting row says when the Task is due; a claimed row says which daemon holds it. The columns
    by which a claim selects Tasks (type, collection, priority, start_before) are copies of the
    Instance's columns, so that a claim never has to read a wider table.

    If a node of a graph waits for other nodes, ``waits`` is their number, and the Task is due at
    ``BLOCKED``. A claim treats it like any Task that is due in the future. If ``waits`` is not
    null, the store has more to do at the end of the Instance: it frees the nodes that wait for this
    one, or enqueues its hooks.
    """

    instance = models.OneToOneField(Instance, models.CASCADE, primary_key=True, db_constraint=False)
    type = models.ForeignKey(Type, models.PROTECT, db_index=False, db_constraint=False)
    collection = models.CharField(max_length=MAX_IDENTIFIER, blank=True, default="")
    priority = models.SmallIntegerField(default=0)
    due_at = InstantField()
    start_before = InstantField(null=True)
    daemon = models.ForeignKey(
        Daemon,
        models.PROTECT,
        null=True,
        db_index=False,
        db_constraint=False,
        related_name="tasks",
    )
    attempt = models.IntegerField(default=0)
    request = models.CharField(max_length=16, blank=True, default="")
    # They are last because they are null in most rows, and then take no space.
    waits = models.IntegerField(
        null=True,
        help_text="Edges of its node that are not satisfied; -1 if it is no node, and has hooks.",
    )
    unique_key = models.CharField(
        max_length=MAX_IDENTIFIER, null=True, help_text="No other Task of its Type has it."
    )

    objects = TaskQuerySet.as_manager()

    class Meta:
        indexes = [
            # For claims: the waiting Tasks of a lane in claiming order; and the lanes of a Type.
            models.Index(
                F("type"),
                F("collection"),
                F("priority").desc(),
                F("due_at"),
                F("instance"),
                condition=Q(daemon__isnull=True),
                name="atp_task_claim",
            ),
            # The Tasks that a daemon holds, for expiry, reconciliation and commands; and their
            # lanes, for limits. The daemon comes first, because there are few daemons.
            models.Index(
                fields=["daemon", "type", "collection"],
                condition=Q(daemon__isnull=False),
                name="atp_task_held",
            ),
            # The Tasks that no daemon started in time.
            models.Index(
                fields=["start_before"],
                condition=Q(daemon__isnull=True, start_before__isnull=False),
                name="atp_task_missed",
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["type", "unique_key"],
                condition=Q(unique_key__isnull=False),
                name="atp_task_unique",
            ),
        ]

    def __str__(self) -> str:
        return f"task of {self.instance_id}"

    @property
    def is_blocked(self) -> bool:
        """True if this Task is for a node that waits for other nodes of its graph."""
        return self.waits is not None and self.waits > 0
