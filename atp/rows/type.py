"""The registered parameters of a kind of task."""

from __future__ import annotations

from django.db import models

from ..payload import codec
from ..words.options import MAX_ADDRESS, MAX_IDENTIFIER
from .fields import InstantField


class Type(models.Model):
    """The registered parameters of a kind of task (RFC 14). Written by registration only."""

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
        null=True, help_text="The hooks to enqueue when an Instance ends; see atp.payload.hooks."
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


def families(types: models.QuerySet[Type]) -> dict[int, frozenset[int]]:
    """Return, by key, the keys of the Types that are one Type under its current and former names.

    They share unique keys and identifiers. Types that were never renamed are left out.
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
