"""Enqueueing in the portable store."""

import logging

from django.db import IntegrityError

from ...exceptions import DuplicateIdentifier
from ...models import Inputs, Instance, LogRecord, Task, Type
from ...states import Actor, Event, State
from ..values import Change
from .base import ORMBase
from .moves import Moves

# How often an enqueue looks again when its identifiers are being taken by others.
ATTEMPTS = 5
_KEPT = "SELECT id FROM atp_type WHERE identifier = %s FOR KEY SHARE"


class Enqueueing(ORMBase):
    def enqueue(self, registration, requests, *, who=""):
        is_alone = len(requests) == 1 and not self.connection.in_atomic_block
        for remaining in reversed(range(ATTEMPTS)):
            try:
                with self.atomic():
                    return self._enqueue(registration, requests, who, is_alone)
            except IntegrityError:
                # Somebody took one of the identifiers after we had looked.
                if not remaining or not any(r.identifier for r in requests):
                    raise
        raise AssertionError("unreachable")

    def _enqueue(self, registration, requests, who, is_alone):
        type_id = self._type_id(registration)
        now = self.now()
        existing = self._existing(type_id, requests)
        instances, new, redrive = [], [], {}
        for request in requests:
            taken = existing.get(request.identifier) if request.identifier is not None else None
            if taken is None:
                instance = self._instance(type_id, request, now)
                new.append((instance, request))
                instances.append(instance)
                if request.identifier is not None:
                    existing[request.identifier] = instance
                continue
            if request.existing == "raise" and taken.pk is None:
                raise DuplicateIdentifier(
                    f"The identifier {request.identifier!r} is given twice in one call."
                )
            if request.existing == "raise":
                raise DuplicateIdentifier(_duplicate(registration, request, taken), taken)
            if request.existing == "redrive" and taken.state == State.FAILED:
                redrive[taken] = request.created_by or who
            instances.append(taken)
        self._insert(new, type_id, now, who, is_alone)
        if redrive:
            self._redrive(redrive, now)
        return instances

    def _type_id(self, registration):
        """Return the key of the Type, which nobody unregisters until this is committed."""
        found = self._kept(registration)
        if not found:
            self.register([registration], update=False)
            found = self._kept(registration)
        return found[0].pk

    def _kept(self, registration):
        types = self.rows(Type)
        if self.connection.vendor == "postgresql":
            # Beside others who enqueue, which select_for_update() would not be.
            return types.raw(_KEPT, [registration.identifier])
        return types.select_for_update().filter(identifier=registration.identifier)

    def _existing(self, type_id, requests):
        identifiers = {r.identifier for r in requests if r.identifier is not None}
        if not identifiers:
            return {}
        found = self.rows(Instance).filter(type=type_id, identifier__in=identifiers)
        return {instance.identifier: instance for instance in found}

    @staticmethod
    def _instance(type_id, request, now):
        instance = Instance(
            type_id=type_id,
            identifier=request.identifier,
            state=State.ACCEPTED,
            collection=request.collection,
            priority=request.priority,
            start_before=request.start_before,
            created_by=request.created_by,
            created=now,
        )
        instance.is_new = True
        return instance

    def _insert(self, new, type_id, now, who, is_alone):
        """Write the Instances; ``is_alone`` tells that it is one, and nothing else is written."""
        if not new:
            return
        self.tell()
        self.rows(Instance).bulk_create([instance for instance, _ in new])
        self.rows(Inputs).bulk_create(
            [
                Inputs(instance=instance, format=request.inputs.format, data=request.inputs.data)
                for instance, request in new
            ]
        )
        self.rows(LogRecord).bulk_create(
            [
                LogRecord(
                    instance=instance,
                    time=now,
                    event=Event.ENQUEUE,
                    state=State.ACCEPTED,
                    attempt=0,
                    level=logging.INFO,
                    who=request.created_by or who,
                )
                for instance, request in new
            ]
        )
        self.rows(Task).bulk_create(
            [
                Task(
                    instance=instance,
                    type_id=type_id,
                    collection=request.collection,
                    priority=request.priority,
                    due_at=request.due or now,
                    start_before=request.start_before,
                )
                for instance, request in new
            ]
        )

    def _redrive(self, failed, now):
        moves = Moves(self, now).load([instance.pk for instance in failed])
        for instance, who in failed.items():
            change = Change(event=Event.REDRIVE, instance=instance.pk, who=who)
            moves.apply(change, actor=Actor.ANYONE)
        moves.write()
        for instance in failed:
            instance.refresh_from_db(using=self.alias)


def _duplicate(registration, request, taken):
    return (
        f"An Instance of {registration.identifier!r} with identifier {request.identifier!r} "
        f"exists already: {taken.uuid}, {taken.state}. Enqueue with existing='return' to get it, "
        "or existing='redrive' to run it again if it has failed."
    )
