"""The running daemons and their leases."""

from django.db import models

from ..conf.validation import MAX_RELEASE
from ..words.orders import Mode, aim
from .fields import InstantField
from .querysets import DaemonQuerySet


class Daemon(models.Model):
    """One running atpd.

    ``lock`` is the name of the file lock that stands for its lease where all
    daemons share a host (SQLite); elsewhere it is empty and ``lease_until``
    counts. ``channel`` is the name under which it listens for Tasks that are handed
    to it. The name is a secret: whoever knows it can hand the daemon a Task. ``signatures``
    are short hashes of the signatures of its handlers. ``misfits`` are the keys of Instances
    whose inputs recently did not fit its handlers. Both are by the identifier of the Type.
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
        """The Mode after the daemon obeys its order; a STOPPING daemon stays STOPPING."""
        return aim(self.mode, self.request)


class SpareLease(models.Model):
    """A second place for a daemon's lease, where leases are times.

    It is renewed while somebody else has locked the daemon's own row. The lease
    ends with the later of the two.
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
