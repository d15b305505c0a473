"""Instance: one accepted request to run a handler, and the wait for its end."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from asgiref.sync import sync_to_async
from django.db import connections, models
from django.db.models import F, Q

from ..conf import settings
from ..exceptions import UnknownInstance, WaitInTransaction, WaitTimeout
from ..payload import own
from ..states import TERMINAL, Reason, State
from ..words.backoff import Pauses
from ..words.options import MAX_IDENTIFIER
from ..words.uuids import uuid7
from . import constraints
from .error import ErrorGroup
from .fields import InstantField
from .querysets import InstanceQuerySet, none_alive, refuse_removal
from .type import Type

if TYPE_CHECKING:
    from .log import LogRecord
    from .querysets import LogQuerySet


class Instance(models.Model):
    """One accepted request to run the handler of a Type with certain inputs."""

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
    # Last: where it is null, as in most, it takes no room.
    own = models.JSONField(
        null=True, help_text="Values for this Instance alone; see atp.payload.own."
    )

    error = models.ForeignKey(
        ErrorGroup, models.DO_NOTHING, null=True, db_index=False, db_constraint=False,
        related_name="+", help_text="The error group of a dead letter.",
    )  # fmt: skip

    objects = InstanceQuerySet.as_manager()

    # True if the enqueue that returned this made it, False if it was found by its identifier.
    is_new = False

    class Meta:
        permissions = [
            ("enqueue", "Can enqueue Instances"),
            ("operate", "Can operate: redrive, cancel, pause, change"),
            ("control", "Can control gates, limits, downstreams, schedules, tailers, daemons"),
        ]
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
            # Lists, newest first. Each index begins with the column that sorts the
            # list, or with one value that does not change, so its rows come in order.
            # The other columns that select a list stand behind: they are compared
            # without reading the row. The indexes are walked backwards, because an
            # index that grows at its end costs less than one in the opposite order.
            #
            # The FINISHED ones, also of a Type or a collection, however many live or
            # FAILED ones lie in front.
            models.Index(
                fields=["id", "type", "collection"],
                condition=Q(finished__isnull=False, reason=""),
                name="atp_instance_newest_finished",
            ),
            # The FAILED ones, also for a reason, of a Type or a collection; and the
            # overview's newest failures. Where nothing fails, this index and the next
            # one cost nothing.
            models.Index(
                fields=["id", "reason", "type", "collection"],
                condition=Q(finished__isnull=False, reason__gt=""),
                name="atp_instance_failed",
            ),
            # The FAILED ones of a Type whose Instances seldom fail.
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
            *constraints.OF_INSTANCE,
        ]

    def __str__(self) -> str:
        return str(self.uuid)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Remove this row as Django does. Raises IllegalTransition if the Instance is live.

        :func:`atp.queue.delete` can cancel a live Instance first.
        """
        found = type(self).objects.using(kwargs.get("using") or self._state.db)
        live = found.filter(pk=self.pk).live().first()
        if live is not None:
            raise refuse_removal(live)
        return super().delete(*args, **kwargs)

    delete.alters_data = True  # type: ignore[attr-defined]

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def is_under_way(self) -> bool:
        """Whether an attempt has started and has not ended."""
        return self.state in (State.RUNNING, State.PAUSED)

    @property
    def timeout(self) -> timedelta | None:
        """The Instance's own time-out; None if it has that of its Type."""
        return own.timeout(self.own or {})

    @property
    def max_retries(self) -> int | None:
        """The Instance's own number of retries; None if it has that of its Type."""
        return (self.own or {}).get(own.MAX_RETRIES)

    @property
    def unique(self) -> str | None:
        """The key that no other live Instance of the Type may have; None if there is no key."""
        return (self.own or {}).get(own.UNIQUE)

    @property
    def hook_of(self) -> str | None:
        """The uuid of the Instance whose end enqueued this hook; None if this is no hook."""
        return (self.own or {}).get(own.HOOK_OF)

    @property
    def is_hooked(self) -> bool:
        """Whether the Instance or its Type has hooks. A hook itself never has any."""
        return self.hook_of is None and bool(self.type.hooks or (self.own or {}).get(own.HOOKS))

    @property
    def carried(self) -> dict[str, Any]:
        """The values that the enqueue saved for the handler, by carrier; empty if it saved none."""
        return (self.own or {}).get(own.CARRIED) or {}

    @property
    def tried_again(self) -> int:
        """The number of attempts that raised or were lost while running.

        Claims that were handed back before they started do not count.
        """
        return self.retries + self.restarts

    @property
    def log(self) -> LogQuerySet[LogRecord]:
        """Its LogRecords, oldest first."""
        return self.logrecord_set.in_order()

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until this Instance is terminal, and return it with its final fields.

        ``timeout`` is in seconds; None waits for ever. Raises WaitTimeout, and
        WaitInTransaction inside a transaction, which would never see the end.
        If the row is gone and the Type keeps no FINISHED Instances, the Instance counts as
        FINISHED, because FAILED ones are kept; it then has no Response and no log.
        For other Types a row that was purged or deleted raises UnknownInstance.
        """
        self._refuse_in_transaction()
        waiting = Pauses(timeout)
        while not self.is_terminal:
            time.sleep(self._look(waiting))
        return self

    async def await_end(self, timeout: float | None = None) -> Self:
        """Await the end as :meth:`wait` does, without keeping a thread meanwhile."""
        await sync_to_async(self._refuse_in_transaction)()
        waiting = Pauses(timeout)
        while not self.is_terminal:
            await asyncio.sleep(await sync_to_async(self._look)(waiting))
        return self

    def _refuse_in_transaction(self) -> None:
        database = self._state.db or settings.DATABASE
        if not self.is_terminal and connections[database].in_atomic_block:
            raise WaitInTransaction("wait() inside a transaction would never return: commit first.")

    def _look(self, waiting: Pauses) -> float:
        """Read the fields again, and return the seconds until the next look. Raises WaitTimeout."""
        self._refresh()
        try:
            return 0.0 if self.is_terminal else waiting.pause(self)
        except WaitTimeout as error:
            raise WaitTimeout(f"{error}{none_alive()}") from None

    def _refresh(self) -> None:
        """Read the fields again. A row that is gone is FINISHED if its Type keeps no such rows."""
        try:
            self.refresh_from_db()
        except Instance.DoesNotExist:
            if self.type.retention != timedelta(0):
                raise UnknownInstance(
                    f"There is no Instance {self.uuid} any more: it was purged or deleted, and how "
                    "it has ended is not known."
                ) from None
            self.state, self.progress = State.FINISHED, 1.0
