"""Member: the daemon of a test. It has a row in the queue, and no process of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Self
from uuid import uuid4

from django.db import Error
from django.db.models import QuerySet

from ... import __version__
from ...daemon.options import hostname
from ...models import Task
from ...states import Event
from ...store import get_store
from ...store.memory import ClaimMemory
from ...store.values import Ask, Claimed, DaemonFacts, Move, Note

# In seconds, and longer than any test, since nobody renews this lease. No file lock stands for
# it: a database in memory has no folder for locks.
LEASE = 86400.0


class Member:
    """A daemon that serves the Types of these identifiers, and claims one Task at a time.

    At its end it hands back the Tasks that it still holds; if ``lost`` is set to a reason, they
    are lost instead. It plans no slots of schedules: how many are due depends on when the test
    runs.
    """

    def __init__(self, types: Sequence[str]) -> None:
        self.store = get_store()
        self.uuid = uuid4()
        self.name = f"{hostname()}:{os.getpid()}"
        self.lost = ""
        self._types = types
        # Those of the Types that have waiting Tasks: only these are claimed from.
        self._looked_at: list[str] = []
        self._memory = ClaimMemory()

    def __enter__(self) -> Self:
        facts = DaemonFacts(
            uuid=self.uuid,
            host=hostname(),
            pid=os.getpid(),
            version=__version__,
            types=tuple(self._types),
        )
        with self.store.as_guest():
            self.store.join(facts, lease=LEASE)
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        # The error that broke the transaction of a test must not be hidden by one that follows.
        with suppress(*([] if kind is None else [Error])), self.store.as_guest():
            self.store.leave(self.uuid, lost=self.lost)

    def claim(self) -> Claimed | None:
        """Claim the next due Task; return None if even the chores make none due."""
        with self.store.as_guest():
            while True:
                if claimed := self._claim_one():
                    return claimed
                if not self._finds_others() and not self._do_chores():
                    return None

    def _claim_one(self) -> Claimed | None:
        if not self._looked_at:
            return None
        types, memory = self._looked_at, self._memory
        claimed = self.store.claim(self.uuid, types, 1, free=1, memory=memory)
        return claimed[0] if claimed else None

    def _finds_others(self) -> bool:
        """Look which Types have waiting Tasks; return whether a Type is new among them.

        A project may have hundreds of Types, while a test uses one.
        """
        found = self._waiting().values_list("type__identifier", flat=True).distinct().order_by()
        before, self._looked_at = self._looked_at, sorted(set(found) & set(self._types))
        return not set(self._looked_at) <= set(before)

    def _waiting(self) -> QuerySet[Task]:
        return Task.objects.using(self.store.alias).waiting()

    def take(self, instance: int) -> Claimed | None:
        """Claim the Task of this Instance; return None if it cannot be claimed."""
        with self.store.as_guest():
            return self.store.take(self.uuid, instance)

    def _do_chores(self) -> bool:
        """Do the chores of a daemon; return whether a Task may have become due."""
        store, who = self.store, self.name
        done = store.miss(who=who)
        done += store.drop(who=who)
        if store.graphs.are_live():
            done += store.graphs.fail_dependants(who=who)
            before = self._waiting().count()
            after: int | None = None
            while after != 0:
                ended, after = store.graphs.end(after=after or 0, who=who)
                done += ended
            while store.graphs.undo(who=who):
                pass
            # The nodes that undo others.
            done += self._waiting().count() - before
        return bool(done)

    def start(self, claimed: Claimed) -> None:
        """Record that an attempt has started."""
        self.record(Move(event=Event.START, instance=claimed.instance, attempt=claimed.attempt))

    def record(self, move: Move) -> None:
        """Record a move of a Task that this daemon holds."""
        with self.store.as_guest():
            self.store.record([move._replace(who=self.name)], daemon=self.uuid)

    def note(self, notes: Sequence[Note]) -> None:
        """Write the notes of attempts."""
        if notes:
            with self.store.as_guest():
                self.store.note(notes, daemon=self.uuid)

    def asked(self, claimed: Claimed) -> Ask | None:
        """Return the Ask for the holder of this attempt, or None."""
        for ask in self.store.asked(self.uuid):
            if (ask.instance, ask.attempt) == claimed.key:
                return ask
        return None
