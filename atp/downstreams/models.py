"""The table Downstream: services that handlers call, and the rate of these calls."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db import models

from ..fields import InstantField
from ..options import MAX_IDENTIFIER
from .protection import Protection, State, Window

_PLAIN = ("per_second", "tokens", "last_max", "trips", "ceiling", "floor")
_TIMES = ("refilled", "adjusted_at", "decreased_at", "not_before")


class Downstream(models.Model):
    """A service that several Types may call, and the rate of the calls from all daemons.

    Registering a Type creates the row. ``state`` is the state of a circuit breaker, in which
    *closed* means healthy. While the breaker is closed, no daemon writes the row. The other columns
    are those of :class:`.Protection`; the rules are in ``atp.downstreams.protection``.
    """

    name = models.CharField(max_length=MAX_IDENTIFIER, unique=True)
    state = models.CharField(
        max_length=9,
        default=State.CLOSED.value,
        choices=[(each.value, each.value) for each in State],
    )
    per_second = models.FloatField(default=0.0, help_text="Calls a second, while throttled.")
    tokens = models.FloatField(default=0.0)
    refilled = InstantField(null=True)
    last_max = models.FloatField(default=0.0, help_text="The rate at the last refusal.")
    window = models.JSONField(default=dict, help_text="Calls in the last 5 s.")
    adjusted_at = InstantField(null=True)
    decreased_at = InstantField(null=True)
    trips = models.PositiveIntegerField(default=0, help_text="Outages in a row.")
    not_before = InstantField(null=True, help_text="Handlers make no calls before this time.")
    # No foreign key: it is read only while the state is half-open.
    probe = models.BigIntegerField(null=True, help_text="The key of the Instance that probes.")
    ceiling = models.FloatField(null=True, help_text="The highest rate, set by hand.")
    floor = models.FloatField(null=True, help_text="The lowest rate, set by hand.")
    who = models.CharField(max_length=200, blank=True, default="")
    since = InstantField(help_text="When the state changed.")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def protection(self) -> Protection:
        """The row as a :class:`.Protection`."""
        values: dict[str, Any] = {name: getattr(self, name) for name in _PLAIN}
        values |= {name: _seconds_of(getattr(self, name)) for name in _TIMES}
        window = Window.read(self.window)
        return Protection(state=State(self.state), probe=self.probe, window=window, **values)

    def take(self, protection: Protection) -> None:
        """Copy a Protection into the columns, without saving the row."""
        self.state, self.probe = protection.state.value, protection.probe
        self.window = protection.window.written()
        for name in _PLAIN:
            setattr(self, name, getattr(protection, name))
        for name in _TIMES:
            setattr(self, name, _time_of(getattr(protection, name)))


def _seconds_of(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()


def _time_of(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
