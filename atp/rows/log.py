"""The log: transitions, messages of handlers, actions of operators."""

from django.db import models
from django.db.models import Q, TextChoices

from ..states import Event
from .fields import InstantField
from .instance import Instance
from .querysets import LogQuerySet

MAX_DETAIL = 64


class Kind(TextChoices):
    """The kind of a LogRecord that is no transition; the kind of a transition is its Event."""

    # Of an Instance.
    MESSAGE = "message", "a message of its handler"
    LEFT_OUT = "left_out", "messages of its handler were left out here"
    ASK = "ask", "its holder was asked to cancel, release, pause or resume it"
    CHANGE = "change", "priority, due time or collection were changed"
    LATE = "late", "an attempt wrote after its Task had been taken away: the write was refused"
    REFUSED = "refused", "another write was refused, because the attempt had ended"
    STEP = "step", "a step was repeated: an earlier attempt had begun it and kept no result"
    UNCLAIMED = "unclaimed", "due for long and not claimed"
    FREED = "freed", "every Instance that it waited for, in its graph or schedule, has ended"
    HOOK = "hook", "its end enqueued a hook: the detail is the uuid of the hook"
    # Of an Instance, a Type or a daemon.
    MENDED = "mended", "a scan repaired rows that did not fit together"
    # Of a Type, a lane or everything.
    GATE = "gate", "a gate was set: hold, drop or open"
    LIMITS = "limits", "limits were set: by an operator, or by the code"
    FULL = "full", "too many waited: the detail is the number of enqueues refused or delayed"
    # Of a Type.
    REGISTERED = "registered", "the Type was registered"
    PARAMETERS = "parameters", "the parameters of the Type were changed"
    UNREGISTERED = "unregistered", "the Type was unregistered"
    REMOVED = "removed", "Instances of the Type were removed: the detail is their number"
    CURSOR = "cursor", "an operator set the position of a tailer: the detail is the shard"
    GAP = "gap", "a tailer passed over records: the detail is their number, if it is known"
    SOURCE = "source", "what a tailer cannot read changed: the detail is how much that is"
    # Of a downstream.
    DOWNSTREAM = "downstream", "the state of the downstream changed, or an operator set it"
    # Of a schedule.
    SCHEDULE = "schedule", "a schedule was declared, set, paused, run …: the detail is the verb"
    # Of a daemon, by its uuid.
    STARTED = "started", "the daemon joined the queue"
    REJOINED = "rejoined", "the daemon joined again, under a new identity"
    LEFT = "left", "the daemon left the queue"
    LOST = "lost", "the daemon was found lost"
    ORDER = "order", "the daemon got an order: quiet, resume or stop"


# The beginning of the detail of a deferral by a misfit; the signature of the handler follows.
_MISFIT = "misfit:"


def misfit(signature: str) -> str:
    """Return the detail of a deferral, because the inputs do not fit a handler's signature."""
    return f"{_MISFIT}{signature}"


def signature_in(detail: str) -> str | None:
    """Return the signature that :func:`misfit` wrote into a detail; None for another detail."""
    return detail.removeprefix(_MISFIT) if detail.startswith(_MISFIT) else None


# The kinds of the record that is written when the row of a daemon is removed.
DEPARTURES = (Kind.LEFT, Kind.LOST)


class LogRecord(models.Model):
    """One transition, message of a handler, or action of an operator.

    ``kind`` is an Event, or a :class:`Kind`. ``detail`` says more, as data: what was asked,
    the uuid of the daemon, the class of the exception that a handler raised (its first
    characters), or :func:`misfit`. ``message`` is for people, and no code compares it.
    ``instance`` is null if the record concerns a Type, a lane or a daemon, which ``subject``
    names; purging keeps such records.
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
    # Last, with a default of the database: statements that write many records leave it out.
    detail = models.CharField(max_length=MAX_DETAIL, blank=True, default="", db_default="")
    # Null in most, where it takes no room.
    counted = models.BooleanField(
        null=True, help_text="Whether the transaction that wrote it also counted it in Statistic."
    )

    objects = LogQuerySet.as_manager()

    class Meta:
        indexes = [
            # The log of an Instance from any record on. Without the key in the index, a
            # long log would be sorted for each page, or looked for among all logs.
            models.Index(fields=["instance", "id"], name="atp_log_of_instance"),
            # The records that concern a Type, a lane or a daemon.
            models.Index(
                fields=["subject"], condition=Q(instance__isnull=True), name="atp_log_subject"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.time:%Y-%m-%d %H:%M:%S} {self.kind} {self.message[:60]}"

    @property
    def event(self) -> str:
        """The Event, if it is a transition; else an empty string."""
        return self.kind if self.kind in Event else ""
