"""The tables: the six of RFC 14, and Daemon; what operators set: Gate and Limit.

The store is the only code that writes Task, Instance.state or LogRecord;
everybody else reads. House plan, section 3, says what each table is for.

Where ``db_constraint`` is off, whoever writes the row writes or locks in the same
statement what it refers to; the database would look that up once more for each row.
"""

import time

from django.core.files.storage import storages
from django.db import connections, models
from django.db.models import F, Q

from . import codec, constraints
from .conf import settings
from .exceptions import WaitInTransaction, WaitTimeout
from .fields import InstantField
from .modes import Mode, aim
from .options import MAX_IDENTIFIER, MAX_SUBJECT
from .querysets import DaemonQuerySet, InstanceQuerySet, LogQuerySet, TaskQuerySet
from .states import TERMINAL, Reason, State
from .uuids import uuid7


class Type(models.Model):
    """The registered parameters of a kind of task (RFC 14). Written by registration only."""

    identifier = models.CharField(max_length=MAX_IDENTIFIER, unique=True)
    handler = models.CharField(
        max_length=255,
        help_text="For display: a daemon runs the function that its own code declares.",
    )
    timeout = models.DurationField(null=True, help_text="A running attempt is killed after this.")
    max_restarts = models.PositiveIntegerField(help_text="Attempts that may be lost while running.")
    max_retries = models.PositiveIntegerField(help_text="Attempts that may raise and try again.")
    backoff = models.DurationField(help_text="Delay before the first retry.")
    backoff_max = models.DurationField(help_text="Longest delay before a retry.")
    retention = models.DurationField(null=True, help_text="Terminal Instances are kept this long.")
    serializer = models.CharField(max_length=16, default=codec.JSON)
    max_memory = models.PositiveBigIntegerField(
        null=True, help_text="An attempt is killed when its processes have more resident, in bytes."
    )
    late_writes = models.PositiveIntegerField(
        db_default=0, help_text="Results refused, because their Task had been taken away."
    )
    registered = InstantField(help_text="When the parameters were last changed.")

    class Meta:
        ordering = ["identifier"]

    def __str__(self):
        return self.identifier


class Instance(models.Model):
    """One accepted request."""

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
    attempt = models.IntegerField(default=0, help_text="Claims so far; the fence.")
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

    objects = InstanceQuerySet.as_manager()

    # True on what an enqueue has just made, not on what it found by its identifier.
    is_new = False

    class Meta:
        permissions = [("operate", "Can operate: enqueue, redrive, release")]
        # No index holds a column that changes while the Instance is live,
        # except partial ones on terminal states: PostgreSQL can then update
        # it in place.
        indexes = [
            # Instances of a Type, newest first; and "is there any?" when it is unregistered.
            models.Index(F("type"), F("id").desc(), name="atp_instance_of_type"),
            # Retention: the oldest terminal ones of a Type. The condition names
            # "finished", which is null while live, and not the state, since a
            # column in a condition counts as indexed.
            models.Index(
                fields=["type", "finished"],
                condition=Q(finished__isnull=False),
                name="atp_instance_terminal",
            ),
            # Lists, newest first. Each begins with what it is sorted by, or with one
            # value that does not change, so that its rows come in their order; what
            # else lists are selected by stands behind, so that it is compared without
            # reading the row. They are walked backwards: an index that grows at its
            # end costs less than one that is kept in the opposite order.
            #
            # What has FINISHED, also of a Type or a collection, however many that are
            # live or FAILED lie in front.
            models.Index(
                fields=["id", "type", "collection"],
                condition=Q(finished__isnull=False, reason=""),
                name="atp_instance_newest_finished",
            ),
            # What has FAILED, also for a reason, of a Type or a collection; and the
            # overview's newest failures. Where nothing fails, it costs nothing, nor does
            # the next.
            models.Index(
                fields=["id", "reason", "type", "collection"],
                condition=Q(finished__isnull=False, reason__gt=""),
                name="atp_instance_failed",
            ),
            # What has FAILED of a Type that seldom does.
            models.Index(
                fields=["type", "id"],
                condition=Q(finished__isnull=False, reason__gt=""),
                name="atp_instance_failed_of_type",
            ),
            # A collection, also of a Type.
            models.Index(
                fields=["collection", "id", "type"],
                condition=Q(collection__gt=""),
                name="atp_instance_collection",
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["type", "identifier"],
                condition=Q(identifier__isnull=False),
                name="atp_instance_identifier",
            ),
            *constraints.OF_INSTANCE,
        ]

    def __str__(self):
        return str(self.uuid)

    @property
    def is_terminal(self):
        return self.state in TERMINAL

    @property
    def log(self):
        """Its LogRecords, oldest first."""
        return self.logrecord_set.in_order()

    def wait(self, timeout=None):
        """Wait until this is terminal and return it, with its fields as they are then.

        ``timeout`` is in seconds; None waits for ever. Raises WaitTimeout,
        and WaitInTransaction inside a transaction, which would never see it end.
        """
        database = self._state.db or settings.DATABASE
        if not self.is_terminal and connections[database].in_atomic_block:
            raise WaitInTransaction("wait() inside a transaction would never return: commit first.")
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.01
        while not self.is_terminal:
            self.refresh_from_db()
            left = None if deadline is None else deadline - time.monotonic()
            if self.is_terminal:
                break
            if left is not None and left <= 0:
                raise WaitTimeout(f"{self.uuid} is still {self.state} after {timeout} s.")
            time.sleep(pause if left is None else min(pause, left))
            pause = min(pause * 1.5, 0.5)
        return self


class Inputs(models.Model):
    """The serialized arguments of one Instance."""

    instance = models.OneToOneField(Instance, models.CASCADE, primary_key=True, db_constraint=False)
    format = models.CharField(max_length=8, default=codec.JSON)
    data = models.TextField()

    class Meta:
        verbose_name_plural = "inputs"

    def __str__(self):
        return f"inputs of {self.instance_id}"

    @property
    def value(self):
        """The arguments as written: a dict of keyword arguments, positional ones under "*"."""
        return codec.decode(codec.Payload(self.format, self.data))


class Response(models.Model):
    """The output of one Instance: content type and data, or a stored file when large.

    ``files`` describes the files that the handler published: a list of
    objects with ``name``, ``path`` (in Django's storage), ``content_type``,
    ``size`` (bytes) and ``attempt``.
    """

    instance = models.OneToOneField(
        Instance, models.CASCADE, primary_key=True, related_name="response"
    )
    content_type = models.CharField(max_length=127, blank=True, default="")
    data = models.BinaryField(null=True)
    file = models.CharField(max_length=255, blank=True, default="")
    size = models.PositiveBigIntegerField(default=0, help_text="Bytes of the output.")
    files = models.JSONField(default=list)

    def __str__(self):
        return f"response of {self.instance_id}"

    def open(self):
        """Return the stored output, when it is a file, as a binary file object."""
        return storages[settings.STORAGE].open(self.file)

    @property
    def body(self):
        """The raw output in bytes; None if the handler returned nothing."""
        if self.file:
            with self.open() as stored:
                return stored.read()
        return None if self.data is None else bytes(self.data)

    @property
    def value(self):
        """The output as the handler returned it: JSON decoded, text as str, else bytes."""
        body = self.body
        if body is None:
            return None
        kind = self.content_type.partition(";")[0].strip().lower()
        if kind == "application/json":
            return codec.from_json(body.decode())
        if kind == codec.PICKLE_CONTENT_TYPE:
            return codec.decode(codec.Payload(codec.PICKLE, body.decode()))
        return body.decode() if kind.startswith("text/") else body

    @property
    def stored_paths(self):
        """Paths of everything that this Response keeps in Django's storage."""
        return [self.file] * bool(self.file) + [entry["path"] for entry in self.files]


class LogRecord(models.Model):
    """One transition, message of a handler, or action of an operator.

    ``event`` is empty for messages. ``instance`` is null where it concerns a
    Type, a lane or a daemon, named by ``subject``; purging keeps those.
    """

    instance = models.ForeignKey(
        Instance, models.CASCADE, null=True, db_index=False, db_constraint=False
    )
    subject = models.CharField(max_length=255, blank=True, default="")
    time = InstantField()
    event = models.CharField(max_length=8, blank=True, default="")
    state = models.CharField(max_length=9, blank=True, default="", help_text="After the event.")
    attempt = models.IntegerField(null=True)
    level = models.SmallIntegerField(help_text="As in the logging module.")
    who = models.CharField(max_length=200, blank=True, default="")
    message = models.TextField(blank=True, default="")

    objects = LogQuerySet.as_manager()

    class Meta:
        indexes = [
            # The log of an Instance from any record on. Without the key in it, a long
            # log would be sorted for each page, or looked for in everybody's.
            models.Index(fields=["instance", "id"], name="atp_log_of_instance"),
            # What concerns a Type, a lane or a daemon.
            models.Index(
                fields=["subject"], condition=Q(instance__isnull=True), name="atp_log_subject"
            ),
        ]

    def __str__(self):
        return f"{self.time:%Y-%m-%d %H:%M:%S} {self.event or 'message'} {self.message[:60]}"


class Daemon(models.Model):
    """One running atpd.

    ``lock`` is the name of the file lock that stands for its lease where all
    daemons share a host (SQLite); elsewhere it is empty and ``lease_until``
    counts. ``channel`` is where it hears of what it is handed: nobody else is to
    know, as that says it all.
    """

    uuid = models.UUIDField(unique=True)
    host = models.CharField(max_length=255)
    pid = models.PositiveIntegerField()
    version = models.CharField(max_length=32)
    types = models.JSONField(default=list, help_text="Identifiers of the Types it serves.")
    workers = models.JSONField(default=list, help_text="pid, Instance and since when, per worker.")
    lock = models.CharField(max_length=255, blank=True, default="")
    lease_until = InstantField()
    idle = models.BooleanField(default=False)
    channel = models.CharField(
        max_length=63,
        blank=True,
        default="",
        db_default="",
        help_text="Where it can be handed a Task.",
    )
    mode = models.CharField(
        max_length=8, choices=Mode, default=Mode.RUNNING, db_default=Mode.RUNNING
    )
    request = models.CharField(
        max_length=16, blank=True, default="", help_text="What it has been told: quiet or stop."
    )
    started = InstantField()
    seen = InstantField()

    objects = DaemonQuerySet.as_manager()

    def __str__(self):
        return f"{self.host}:{self.pid}"

    @property
    def aim(self):
        """The Mode that it is in, or that it has been told to go to."""
        return aim(self.mode, self.request)


class Task(models.Model):
    """The queue row of a live Instance. Narrow on purpose: this is the hot table.

    A waiting row says when it is due, a claimed one who holds it. What the
    claim filters by (type, collection, priority, start_before) is copied here
    from the Instance, so that it never has to look at a wider table.
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

    objects = TaskQuerySet.as_manager()

    class Meta:
        indexes = [
            # The claim: what is due in a lane, in claiming order; and the lanes of a Type.
            models.Index(
                F("type"),
                F("collection"),
                F("priority").desc(),
                F("due_at"),
                F("instance"),
                condition=Q(daemon__isnull=True),
                name="atp_task_claim",
            ),
            # What a daemon holds: expiry, reconciliation, requests; and of which lane, for
            # limits. It begins with the daemon, since there are few.
            models.Index(
                fields=["daemon", "type", "collection"],
                condition=Q(daemon__isnull=False),
                name="atp_task_held",
            ),
            # What has not been started in time.
            models.Index(
                fields=["start_before"],
                condition=Q(daemon__isnull=True, start_before__isnull=False),
                name="atp_task_missed",
            ),
        ]

    def __str__(self):
        return f"task of {self.instance_id}"


class Gate(models.Model):
    """What keeps Tasks from being claimed: of a lane, of a Type, or of everything.

    There is a row only where somebody has shut one. ``type`` null stands for
    everything, ``collection`` null for all lanes of the Type.
    """

    subject = models.CharField(max_length=MAX_SUBJECT, unique=True)
    type = models.ForeignKey(Type, models.CASCADE, null=True, db_index=False)
    collection = models.CharField(max_length=MAX_IDENTIFIER, null=True)
    mode = models.CharField(max_length=4, choices=[("hold", "hold"), ("drop", "drop")])
    reason = models.CharField(max_length=200, blank=True, default="")
    who = models.CharField(max_length=200, blank=True, default="")
    since = InstantField()
    until = InstantField(null=True, help_text="When it opens by itself.")

    # On what has just been set: the Gate that it replaced, if that was shut.
    was = None

    class Meta:
        ordering = ["subject"]

    def __str__(self):
        return self.subject


class Limit(models.Model):
    """How much of a lane, or of a Type, all daemons may do; and a Type's weight.

    There is a row only where something is limited, or weighted. ``tokens`` is what
    was left of the rate at ``refilled``. What code has declared is written by
    registration, as long as ``is_set`` does not say that an operator has set it.
    """

    subject = models.CharField(max_length=MAX_SUBJECT, unique=True)
    type = models.ForeignKey(Type, models.CASCADE, db_index=False, related_name="limits")
    collection = models.CharField(max_length=MAX_IDENTIFIER, null=True)
    max_running = models.PositiveIntegerField(null=True, help_text="Claimed at any time.")
    rate = models.CharField(max_length=32, blank=True, default="", help_text='As "100/m".')
    per_second = models.FloatField(null=True, help_text="The rate in tasks a second.")
    burst = models.PositiveIntegerField(default=1, help_text="At once, after a pause.")
    weight = models.FloatField(default=1.0, help_text="Share beside other Types.")
    tokens = models.FloatField(default=0.0)
    refilled = InstantField(null=True)
    is_set = models.BooleanField(default=False, help_text="By an operator.")
    who = models.CharField(max_length=200, blank=True, default="")
    since = InstantField()

    class Meta:
        ordering = ["subject"]

    def __str__(self):
        return self.subject
