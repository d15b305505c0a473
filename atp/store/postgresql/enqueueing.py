"""Enqueueing on PostgreSQL: one statement for up to a thousand."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain, islice, repeat
from operator import eq
from uuid import UUID

from django.db.models.base import ModelState

from ...codec import JSON, Payload
from ...models import Instance
from ...states import State
from ...uuids import number as uuid_number
from ...uuids import numbers as uuids_of
from ..handing import Handing
from ..orm.enqueueing import Enqueueing as ORMEnqueueing
from ..values import Request
from .arrays import array, texts
from .cursors import cursor_of
from .statements import execute

CHUNK = 1000
# So many characters of inputs fit into a notice, whatever they are: it has 8,000 bytes,
# of which Type, identifier and collection may take a fourth.
MOST_HANDED = 1200
# What most do not have, and is then not part of the statement that enqueues one.
_SELDOM = ("identifier", "due", "start_before")
# What most are: the statement that enqueues one such says all but the inputs itself.
_USUAL = Request(Payload(JSON, ""))[1:-1]
_SAYS = dict(zip(Request._fields[1:-1], _USUAL, strict=True)) | {"who": "", "format": JSON}
_FIXED = {inline: frozenset((_SAYS | {"tell": inline}).items()) for inline in (True, False)}

_WITHOUT_IDENTIFIERS = frozenset({("identifiers", None)})


class Enqueueing(Handing, ORMEnqueueing):
    def enqueue(self, registration, requests, *, who=""):
        if not requests:
            return []
        if len(requests) == 1:
            made = self._make_one(registration, requests[0], who)
            return made or super().enqueue(registration, requests, who=who)
        try:
            with self.atomic():
                parts = [
                    self._make(registration, part, who) or _not_all() for part in _chunks(requests)
                ]
        except _NotAllMade:
            # What is to be found, or refused, by its identifier takes more than one look.
            return super().enqueue(registration, requests, who=who)
        return Enqueued(list(chain.from_iterable(parts)), self._instance_of)

    def _make_one(self, registration, request, who):
        """Insert an Instance and return it in a list, empty if its identifier is taken.

        So too if the Type is not registered yet.
        """
        uuid = uuid_number()
        connection = self.connection
        inline = not connection.in_atomic_block
        parameters = {
            "type": registration.identifier,
            "uuid": f"{uuid:032x}",
            "inputs": request.inputs.data,
        }
        fixed = _FIXED[inline]
        if who or not _is_usual(request):
            parameters |= _unusual(request, who)
            seldom = [(name, None) for name in _SELDOM if parameters[name] is None]
            fixed = frozenset((("tell", inline), *seldom))
        name = "enqueue_handing" if inline and self._may_hand(request) else "enqueue_one"
        with cursor_of(connection, again=True) as cursor:
            execute(cursor, name, parameters, fixed=fixed)
            row = cursor.fetchone()
        if row is None:
            return []
        if not inline:
            self.tell()
        key, type_id, epoch = row[0].split()
        created = datetime.fromtimestamp(float(epoch), UTC)
        return [self._instance_of(int(key), uuid, request, int(type_id), created)]

    def _may_hand(self, request):
        return super()._may_hand(request) and len(request.inputs.data) <= MOST_HANDED

    def _make(self, registration, requests, who):
        """Insert Instances and return what is to be known of each.

        Returns nothing, though some may be written, if one has an identifier
        that is taken, and if the Type is not registered yet.
        """
        uuids = uuids_of(len(requests))
        inline = not self.connection.in_atomic_block
        identifiers = [request.identifier for request in requests]
        fixed = frozenset() if any(identifiers) else _WITHOUT_IDENTIFIERS
        with cursor_of(self.connection) as cursor:
            execute(
                cursor,
                "enqueue",
                {
                    "type": registration.identifier,
                    "uuids": texts([f"{uuid:032x}" for uuid in uuids]),
                    "identifiers": texts(identifiers),
                    "collections": texts([request.collection for request in requests]),
                    "priorities": array([request.priority for request in requests]),
                    "dues": array([_epoch(request.due) for request in requests]),
                    "start_befores": array([_epoch(request.start_before) for request in requests]),
                    "whos": texts([request.created_by for request in requests]),
                    "formats": texts([request.inputs.format for request in requests]),
                    "inputs": texts([request.inputs.data for request in requests]),
                    "who": who,
                    "tell": inline,
                },
                prepared=False,
                fixed=fixed,
            )
            type_id, epoch, keys, _ = cursor.fetchone()
        if keys is None or len(keys) < len(requests):
            return []
        if not inline:
            self.tell()
        created = datetime.fromtimestamp(epoch, UTC)
        return list(zip(keys, uuids, requests, repeat(type_id), repeat(created), strict=False))

    def _instance_of(self, key, uuid, request, type_id, created):
        # As Django makes what was pickled: to set field by field takes several times as long.
        instance = Instance.__new__(Instance)
        state = ModelState()
        state.adding, state.db = False, self.alias
        fields = vars(instance)
        fields |= _NEW
        fields["_state"] = state
        fields["id"] = key
        fields["type_id"] = type_id
        fields["uuid"] = UUID(int=uuid)
        fields["created"] = created
        if not _is_usual(request):
            fields["identifier"] = request.identifier
            fields["collection"] = request.collection
            fields["priority"] = request.priority
            fields["start_before"] = request.start_before
            fields["created_by"] = request.created_by
        return instance


# What every Instance is that has just been made.
_NEW = {
    field.attname: None if field.null else field.get_default()
    for field in Instance._meta.concrete_fields
} | {"state": State.ACCEPTED, "is_new": True}


class Enqueued(Sequence):
    """Instances that have just been enqueued, each made when it is looked at.

    Of many, most callers look at few or none, and to make one takes longer
    than to enqueue it.
    """

    def __init__(self, facts, make):
        self._items = facts
        self._make = make

    def __len__(self):
        return len(self._items)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        item = self._items[index]
        if not isinstance(item, Instance):
            item = self._items[index] = self._make(*item)
        return item

    def __eq__(self, other):
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None

    def __repr__(self):
        return f"<{len(self)} Instances>"


class _NotAllMade(Exception):
    """Some of what was to be made has an identifier that is taken."""


def _is_usual(request):
    """Whether the statement can say all of it but the inputs."""
    return request[1:-1] == _USUAL and request[0][0] == JSON


def _unusual(request, who):
    """Return what the statement is told of a request that is not usual."""
    return {
        "identifier": request.identifier,
        "due": _epoch(request.due),
        "start_before": _epoch(request.start_before),
        "collection": request.collection,
        "priority": request.priority,
        "created_by": request.created_by,
        "who": request.created_by or who,
        "format": request.inputs.format,
    }


def _not_all():
    raise _NotAllMade


def _chunks(requests):
    rest = iter(requests)
    while part := list(islice(rest, CHUNK)):
        yield part


def _epoch(time):
    return None if time is None else time.timestamp()
