"""Enqueueing on PostgreSQL: one statement, however many."""

from datetime import UTC, datetime

from ...models import Instance
from ...states import State
from ...uuids import uuid7
from ..orm.enqueueing import Enqueueing as ORMEnqueueing
from .statements import statement


class Enqueueing(ORMEnqueueing):
    def enqueue(self, registration, requests, *, who=""):
        if not requests:
            return []
        # What is to be found, or refused, by its identifier takes more than one look.
        if any(request.identifier is not None for request in requests):
            return super().enqueue(registration, requests, who=who)
        uuids = [uuid7() for _ in requests]
        rows = self._insert_all(registration, requests, uuids, who)
        if not rows:
            self._type_id(registration)
            rows = self._insert_all(registration, requests, uuids, who)
        made = [None] * len(requests)
        for place, key, type_id, epoch in rows:
            request = requests[place]
            instance = Instance(
                pk=key,
                type_id=type_id,
                uuid=uuids[place],
                state=State.ACCEPTED,
                collection=request.collection,
                priority=request.priority,
                start_before=request.start_before,
                created_by=request.created_by,
                created=datetime.fromtimestamp(epoch, UTC),
            )
            instance._state.adding = False
            instance._state.db = self.alias
            instance.is_new = True
            made[place] = instance
        return made

    def _insert_all(self, registration, requests, uuids, who):
        parameters = {
            "type": registration.identifier,
            "uuids": [str(uuid) for uuid in uuids],
            "identifiers": [None] * len(requests),
            "collections": [request.collection for request in requests],
            "priorities": [request.priority for request in requests],
            "dues": [_epoch(request.due) for request in requests],
            "start_befores": [_epoch(request.start_before) for request in requests],
            "whos": [request.created_by for request in requests],
            "formats": [request.inputs.format for request in requests],
            "inputs": [request.inputs.data for request in requests],
            "who": who,
        }
        with self.connection.cursor() as cursor:
            cursor.execute(statement("enqueue"), parameters)
            return cursor.fetchall()


def _epoch(time):
    return None if time is None else time.timestamp()
