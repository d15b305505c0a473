"""Enqueueing on PostgreSQL: one statement for up to a thousand Instances."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias
from uuid import UUID

from django.db import DataError, OperationalError
from django.db.models.base import ModelState

from ... import options
from ...fields import uuid7_number as uuid_number
from ...fields import uuid7_numbers as uuids_of
from ...models import HOOKED, Instance
from ...payload.codec import JSON, Payload
from ...states import State
from ..common.enqueueing import Enqueueing as ORMEnqueueing
from ..common.enqueueing import hooked
from ..values import Enqueued, Registration, Submission
from .sessions import session_of
from .statements import Fixed, array, cursor_of, execute, refuse_characters, texts

if TYPE_CHECKING:
    from . import PostgreSQLStore

CHUNK = 1000
# So many characters of inputs fit into a notice, whatever they are. A notice has 8,000 bytes, of
# which Type, identifier and collection may take a fourth.
MOST_HANDED = 1200
# Values that most Instances lack: they are no parameters of the statement that enqueues one then.
_SELDOM = ("identifier", "due", "start_before", "own", "waits")
# For an Instance that lacks these three there are statements without columns for them.
_RARE = ("identifier", "own", "waits")
# The values that most Instances have: a form of the statement contains all of them but the inputs.
_USUAL = Submission(Payload(JSON, ""))[1:-1]
_SAYS = dict(zip(Submission._fields[1:-1], _USUAL, strict=True)) | {"who": "", "format": JSON}
_FIXED = {inline: frozenset((_SAYS | {"tell": inline}).items()) for inline in (True, False)}
# The arguments of Enqueueing._instance_of.
_Facts: TypeAlias = tuple[int, int, Submission, int, datetime]


class Enqueueing(ORMEnqueueing):
    """Writes up to CHUNK Instances, with all their rows, by one statement."""

    store: "PostgreSQLStore"

    def enqueue(
        self, registration: Registration, submissions: Sequence[Submission], *, who: str = ""
    ) -> Sequence[Instance]:
        if not submissions:
            return []
        submissions = hooked(registration, submissions)
        if any(submission.unique is not None for submission in submissions):
            return super().enqueue(registration, submissions, who=who)
        if len(submissions) == 1 and _is_alone(submissions[0]):
            made = self._make_one(registration, submissions[0], who)
            return made or super().enqueue(registration, submissions, who=who)
        try:
            with self.store.atomic():
                self.keep_hooks(registration, submissions)
                parts = [
                    self._make(registration, part, who) or _not_all()
                    for part in _chunks(submissions)
                ]
        except _NotAllMade:
            # To find or refuse Instances by their identifiers takes more than one look.
            return super().enqueue(registration, submissions, who=who)
        except OperationalError as error:
            if self.store.connection.in_atomic_block or not self.store.is_deadlock(error):
                raise
            return super().enqueue(registration, submissions, who=who)
        return Enqueued(list(chain.from_iterable(parts)), self._instance_of)

    def enqueue_hooks(
        self, registration: Registration, submissions: Sequence[Submission], *, who: str = ""
    ) -> Sequence[Instance]:
        parts = [self._make(registration, part, who, locks=False) for part in _chunks(submissions)]
        return Enqueued(list(chain.from_iterable(parts)), self._instance_of)

    def _make_one(
        self, registration: Registration, submission: Submission, who: str
    ) -> list[Instance]:
        """Insert one Instance and return it in a list.

        The list is empty if its identifier is taken, or if its Type is not registered yet.
        """
        uuid = uuid_number()
        connection = self.store.connection
        inline = not connection.in_atomic_block
        parameters: dict[str, Any] = {
            "type": registration.identifier,
            "uuid": f"{uuid:032x}",
            "inputs": submission.inputs.data,
        }
        fixed: Fixed = _FIXED[inline]
        is_plain = True
        if who or not _is_usual(submission):
            parameters |= _unusual(submission, who)
            seldom = [(name, None) for name in _SELDOM if parameters[name] is None]
            fixed = frozenset((("tell", inline), *seldom))
            is_plain = all(parameters[name] is None for name in _RARE)
        hands = inline and self._may_hand(submission) and self._is_known()
        name = "enqueue_handing" if hands else "enqueue_one"
        if is_plain:
            name += "_plain"
        try:
            with cursor_of(connection, again=True) as cursor:
                execute(cursor, name, parameters, fixed=fixed)
                row = cursor.fetchone()
        except DataError as error:
            refuse_characters(error)
            raise
        if row is None:
            return []
        if not inline:
            self.store.tell()
        key, type_id, epoch = row[0].split()
        created = datetime.fromtimestamp(float(epoch), UTC)
        return [self._instance_of(int(key), uuid, submission, int(type_id), created)]

    def _may_hand(self, submission: Submission) -> bool:
        length = len(submission.inputs.data) + len(submission.own or "")
        return super()._may_hand(submission) and length <= MOST_HANDED

    def _is_known(self) -> bool:
        """Return whether this connection has executed statements of this store before.

        For a new connection, the server reads the catalogue first. Planning the handing statement
        then takes longer than waking a daemon that claims.
        """
        connection = self.store.connection
        return connection.connection is not None and bool(session_of(connection).uses)

    def _make(
        self,
        registration: Registration,
        submissions: Sequence[Submission],
        who: str,
        *,
        locks: bool = True,
    ) -> list[_Facts]:
        """Insert Instances and return the facts about each.

        Returns nothing if an identifier is taken, although some Instances may be written, or if the
        Type is not registered yet. With ``locks``, nobody can unregister the Type meanwhile.
        """
        uuids = uuids_of(len(submissions))
        inline = not self.store.connection.in_atomic_block
        identifiers = [submission.identifier for submission in submissions]
        waits = [submission.waits for submission in submissions]
        owns = [submission.own for submission in submissions]
        if not locks:
            name = "enqueue_hooks"
        elif any(identifiers) or any(owns) or waits.count(None) < len(waits):
            name = "enqueue"
        else:
            name = "enqueue_plain"
        with cursor_of(self.store.connection) as cursor:
            execute(
                cursor,
                name,
                {
                    "type": registration.identifier,
                    "uuids": texts([f"{uuid:032x}" for uuid in uuids]),
                    "named": any(identifiers),
                    "identifiers": texts(identifiers),
                    "collections": texts([submission.collection for submission in submissions]),
                    "priorities": array([submission.priority for submission in submissions]),
                    "dues": array([_epoch(submission.due) for submission in submissions]),
                    "start_befores": array(
                        [_epoch(submission.start_before) for submission in submissions]
                    ),
                    "waits": array(waits),
                    "owns": texts(owns),
                    "whos": texts([submission.created_by for submission in submissions]),
                    "formats": texts([submission.inputs.format for submission in submissions]),
                    "inputs": texts([submission.inputs.data for submission in submissions]),
                    "who": who,
                    "tell": inline,
                },
                prepared=False,
            )
            type_id, epoch, keys, _ = cursor.fetchone()
        if keys is None or len(keys) < len(submissions):
            return []
        if not inline:
            self.store.tell()
        created = datetime.fromtimestamp(epoch, UTC)
        return list(zip(keys, uuids, submissions, repeat(type_id), repeat(created), strict=False))

    def _instance_of(
        self, key: int, uuid: int, submission: Submission, type_id: int, created: datetime
    ) -> Instance:
        # Made as Django restores pickled objects: setting the fields one by one takes several times
        # as long.
        instance = Instance.__new__(Instance)
        state = ModelState()
        state.adding, state.db = False, self.store.alias
        fields = vars(instance)
        fields |= _NEW
        fields["_state"] = state
        fields["id"] = key
        fields["type_id"] = type_id
        fields["uuid"] = UUID(int=uuid)
        fields["created"] = created
        if not _is_usual(submission):
            fields["identifier"] = submission.identifier
            fields["collection"] = submission.collection
            fields["priority"] = submission.priority
            fields["start_before"] = submission.start_before
            fields["created_by"] = submission.created_by
            fields["own"] = options.read_own_options(submission.own)
        return instance


# The fields of every new Instance.
_NEW = {
    field.attname: None if field.null else field.get_default()
    for field in Instance._meta.concrete_fields
} | {"state": State.ACCEPTED, "is_new": True}


class _NotAllMade(Exception):
    """Some Instance was not written, since its identifier is taken."""


def _is_alone(submission: Submission) -> bool:
    """Return whether an Instance alone is written: it is no node, and has no hooks of its own."""
    return submission.waits is None or (submission.waits == HOOKED and not submission.has_hooks)


def _is_usual(submission: Submission) -> bool:
    """Return whether the statement contains all values of the submission except its inputs."""
    return submission[1:-1] == _USUAL and submission[0][0] == JSON


def _unusual(submission: Submission, who: str) -> dict[str, Any]:
    """Return the parameters of a submission with unusual values."""
    return {
        "identifier": submission.identifier,
        "due": _epoch(submission.due),
        "start_before": _epoch(submission.start_before),
        "collection": submission.collection,
        "priority": submission.priority,
        "created_by": submission.created_by,
        "who": submission.created_by or who,
        "format": submission.inputs.format,
        "own": submission.own,
        "waits": submission.waits,
    }


def _not_all() -> NoReturn:
    raise _NotAllMade


def _chunks(submissions: Sequence[Submission]) -> Iterator[list[Submission]]:
    rest = iter(submissions)
    while part := list(islice(rest, CHUNK)):
        yield part


def _epoch(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()
