"""The checkpoints of handlers: Step."""

from typing import Any

from django.db import models

from ..payload import codec
from ..words.options import MAX_IDENTIFIER
from .fields import InstantField
from .instance import Instance


class Step(models.Model):
    """The checkpoint of a named part of a handler, with the result that later attempts get.

    ``attempt`` is the last attempt that began the step. A step without ``finished`` was begun,
    and nothing is known of its result. Only a sleep has ``until``; a sleep has no result.
    """

    # Whoever writes it has locked the Task, so the Instance is there.
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
        """The result as the function returned it; None if there is none."""
        return None if self.data is None else codec.decode(codec.Payload(self.format, self.data))
