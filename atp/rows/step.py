"""The checkpoints of handlers: Step."""

from typing import Any

from django.db import models

from ..payload import codec
from ..words.options import MAX_IDENTIFIER
from .fields import InstantField
from .instance import Instance


class Step(models.Model):
    """A part of a handler by its name, with the result that later attempts are given.

    ``attempt`` is the last that began it. A step that has no ``finished`` was begun, and
    nothing is known of its result. Only a sleep has ``until``, and no result.
    """

    # Whoever writes it has locked the Task, so the Instance is there.
    instance = models.ForeignKey(
        Instance, models.CASCADE, related_name="steps", db_index=False, db_constraint=False
    )
    name = models.CharField(max_length=MAX_IDENTIFIER)
    attempt = models.IntegerField()
    started = InstantField()
    finished = InstantField(null=True)
    until = InstantField(null=True, help_text="Of a sleep: when it is over.")
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
        """The result as the function returned it; None of one that has none."""
        return None if self.data is None else codec.decode(codec.Payload(self.format, self.data))
