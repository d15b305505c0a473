"""The values of a Task on its way through the store: frozen, with named fields.

A Type as it is registered, an Instance to be enqueued, a claimed Task, the transitions and the
progress of its attempt, what its steps keep; and hooks as data. Times are aware datetimes. A daemon
is named by its uuid, an Instance by its integer key.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from functools import cache
from operator import eq
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias, get_args
from uuid import UUID

from .. import options
from ..conf import settings
from ..models import Instance, Kind
from ..options import HOOKS
from ..payload import codec
from ..payload.codec import JSON, Payload
from ..states import Event, Reason, State

if TYPE_CHECKING:
    from ..models import Type


# A Type: as it is registered, and as its attempts need it.


@dataclass(frozen=True, kw_only=True)
class Registration:
    """The parameters of a Type, as registration writes them."""

    identifier: str
    handler: str
    timeout: timedelta | None
    max_restarts: int
    max_retries: int
    backoff: timedelta
    backoff_max: timedelta
    retention: timedelta | None
    serializer: str
    max_memory: int | None
    downstream: str = ""
    owner: str = ""
    runbook: str = ""
    sensitive: list[str] | None = None
    needs: dict[str, str] | None = None
    resources: dict[str, int] | None = None
    # In the format of :mod:`atp.store.values`.
    hooks: list[dict[str, Any]] | None = None
    # The former identifiers of the Type.
    formerly: tuple[str, ...] = field(default=(), compare=False)
    # The Types of these hooks, and of hooks in options: they are registered together with it.
    hook_types: tuple[Registration, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def of(cls, type: Type) -> Self:
        """Return the parameters in the row of a Type."""
        return cls(**{name: getattr(type, name) for name in _columns()})

    @classmethod
    def of_all(cls, registrations: Iterable[Self]) -> Self:
        """Return one of several registrations of a Type, with the Types of all their hooks."""
        first, *others = registrations
        types = {each.identifier: each for one in (first, *others) for each in one.hook_types}
        if len(types) == len(first.hook_types):
            return first
        return replace(first, hook_types=tuple(types.values()))

    def columns(self) -> dict[str, Any]:
        """Return the columns of the Type, by name. ``asdict`` would copy each value."""
        return {name: getattr(self, name) for name in _columns()}


_NO_COLUMNS = ("formerly", "hook_types")


@cache
def _columns() -> tuple[str, ...]:
    return tuple(each.name for each in fields(Registration) if each.name not in _NO_COLUMNS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameters:
    """The parameters of a Type that an attempt of one of its Instances needs."""

    type: str
    timeout: timedelta | None
    max_retries: int
    backoff: timedelta
    backoff_max: timedelta
    max_restarts: int
    max_memory: int | None


# An attempt, from its claim to its recorded end.


@dataclass
class Pause:
    """The ``number``-th pause of an attempt, ``since`` a time on the uptime clock.

    ``is_frozen``: the supervisor has stopped the worker. ``is_wanted``: an operator still wants
    the pause. ``is_over``: the handler is ready to go on. ``may_go``: the dispatcher has told
    the attempt to go on.
    """

    number: int
    since: float
    is_frozen: bool = False
    is_wanted: bool = False
    is_over: bool = False
    may_go: bool = field(default=False, init=False)

    @property
    def wants_to_go(self) -> bool:
        """Whether the attempt waits for a place to go on, and no operator wants it paused."""
        if self.may_go or self.is_wanted:
            return False
        return self.is_over


class Attempt:
    """One attempt of an Instance, from the claim of its Task to its recorded end.

    The store makes it when a daemon claims the Task: the arguments are what the attempt needs, by
    name. The dispatcher holds it until the database has its end, and notes in it how far it has
    got. A worker gets a copy of what the store has said (`packed` in daemon/protocol.py), and makes
    the handler's Context from it.

    ``key`` is the pair of Instance and ``number``: no two attempts share both. The uuid and the
    inputs are text, since most attempts need no other form of them. Attempts of one claim share the
    ``parameters`` of their Type. ``own`` has the settings of this Instance alone, written by
    :mod:`atp.options`; mostly None. ``time`` is the time of the claim, on the database's clock.
    ``limited``: it counts towards a limit, so its end makes room for another. ``waited``: the
    seconds for which its Task had been due when it was claimed. ``guard``: how its Downstream let
    it through, "rate" or "probe"; "" if the Downstream is closed. A worker does not get these four:
    there ``time`` is None, and the others have their defaults.
    """

    # The names of the arguments, in their order.
    CLAIMED = (
        *("instance", "uuid_text", "number", "format", "data", "identifier", "collection"),
        *("priority", "retries", "restarts", "lost", "own", "parameters", "time"),
        *("limited", "waited", "guard"),
    )

    # What the dispatcher notes. An attempt is made for every task: to save time, the usual values
    # are attributes of the class.

    # When it began to wait or was assigned to its worker, on the uptime clock; its place in the
    # order of claims; how long it is expected to run, in seconds.
    since: float = 0.0
    place: int = 0
    expected: float = 0.0
    # Its worker gets no other task beside it. ``alone``: the same, and its start is recorded first.
    single: bool = False
    alone: bool = False
    # The devices that it may use, by name.
    devices: tuple[str, ...] = ()
    # Its number among the tasks of its worker, which is that of its start token.
    serial: int = 0
    # When its worker has started it, on the uptime clock.
    started: float | Any = None
    # Its start is recorded, or about to be; the time of that start, on the database's clock.
    start_known: bool = False
    began: datetime | None = None
    # Its worker has committed its end.
    concluded: bool = False
    # If it was asked to end: the event with which it shall end, and the reason.
    ask: str = ""
    why: str = ""
    # Whether it was asked to pause; its current pause; the length of its earlier pauses, in
    # seconds.
    is_to_pause: bool = False
    pause: Pause | Any = None
    paused: float = 0.0
    # The seconds of its run time that earlier periods of usage have counted.
    counted: float = 0.0

    def __init__(
        self,
        instance: int,
        uuid_text: str,
        number: int,
        format: str,
        data: str,
        identifier: str | None,
        collection: str,
        priority: int,
        retries: int,
        restarts: int,
        lost: int,
        own: str | None,
        parameters: Parameters,
        time: datetime | None,
        limited: bool = False,
        waited: float = 0.0,
        guard: str = "",
    ) -> None:
        self.instance = instance
        self.uuid_text = uuid_text
        self.number = number
        self.format = format
        self.data = data
        self.identifier = identifier
        self.collection = collection
        self.priority = priority
        self.retries = retries
        self.restarts = restarts
        self.lost = lost
        self.own = own
        self.parameters = parameters
        self.time = time
        self.limited = limited
        self.waited = waited
        self.guard = guard
        self.key = instance, number
        self.type = parameters.type

    @property
    def uuid(self) -> UUID:
        return UUID(self.uuid_text)

    @property
    def inputs(self) -> Payload:
        return Payload(self.format, self.data)

    @property
    def timeout(self) -> timedelta | None:
        """The time-out of the Instance, or else of its Type."""
        given = None if self.own is None else options.own_timeout(json.loads(self.own))
        return self.parameters.timeout if given is None else given

    @property
    def max_retries(self) -> int:
        """The maximum of retries of the Instance, or else of its Type."""
        given = None if self.own is None else json.loads(self.own).get(options.OWN_MAX_RETRIES)
        return self.parameters.max_retries if given is None else given

    @property
    def carried(self) -> Mapping[str, Any] | None:
        """The values that carriers saved for the handler at the enqueue, by carrier."""
        return None if self.own is None else json.loads(self.own).get(options.CARRIED)

    def run_time(self, now: float) -> float:
        """Return the seconds that it has run until ``now``, on the uptime clock, without pauses."""
        if self.started is None:
            return 0.0
        until = now if self.pause is None else self.pause.since
        return until - self.started - self.paused


# The outcome of a delivery of moves or notes.


class Refused(list):
    """The entries that were refused.

    ``known`` describes the others, which had been written before: pairs of (Instance, attempt,
    event) and the key of the LogRecord.
    """

    def __init__(self, entries: Sequence[Any] = ()) -> None:
        super().__init__(entries)
        self.known: list[tuple[tuple[int, int | None, str], int]] = []


@dataclass(frozen=True, kw_only=True)
class Delivered:
    """The outcome of a delivery: the refused entries, and the keys of locked Instances.

    ``waited`` tells whether a statement waited in vain for a lock of another session.
    """

    refused: Sequence[Any] = field(default_factory=list)
    locked: frozenset[int] = frozenset()
    waited: bool = False


# Instances that have just been enqueued: a sequence that creates each object on demand.


class Enqueued(Sequence[Instance]):
    """Instances that have just been enqueued; each object is created when it is first accessed.

    Most callers look at few of many Instances, or at none. To create an object takes longer than
    to enqueue the Instance.
    """

    def __init__(self, facts: list[Any], make: Callable[..., Instance]) -> None:
        self._items = facts
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    @property
    def keys(self) -> list[int]:
        """The keys of all Instances; no object is created."""
        return [item.pk if isinstance(item, Instance) else item[0] for item in self._items]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        item = self._items[index]
        if not isinstance(item, Instance):
            item = self._items[index] = self._make(*item)
        return item

    def __eq__(self, other: Any) -> bool:
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} Instances>"


# Hooks as data: each enqueues a Task when an Instance ends.
#
# The row of a Type has hooks for all its Instances; an Instance may have more in its column
# ``own``. A hook names a Type. Its inputs are the facts of the end, and inputs of its own.

# The parameters that declare hooks, each with the state of the end that enqueues them.
HOOK_STATES = {"on_finished": State.FINISHED, "on_failed": State.FAILED}
# The inputs that every hook gets: facts of the end.
HOOK_FACTS = ("uuid", "type", "state", "reason")
# The facts of the Instance that a hook gets if its handler has a parameter of this name.
MORE_HOOK_FACTS = ("identifier", "collection")


@dataclass(frozen=True, kw_only=True)
class Hook:
    """One hook: the Type of the Task that it enqueues, and the options of that enqueue.

    ``inputs`` are the hook's own, the text of a JSON object; ``own`` is text that
    :mod:`atp.options` writes. ``more`` are names of MORE_HOOK_FACTS, separated by spaces. A version
    that does not know them may have written the same hook without: it is the same hook.
    """

    on: str
    type: str
    inputs: str = ""
    priority: int = 0
    collection: str = ""
    own: str = ""
    more: str = field(default="", compare=False)

    def entry(self) -> dict[str, Any]:
        """Return the hook as a dict to store, without values that are defaults."""
        return {
            each.name: value
            for each in fields(self)
            if (value := getattr(self, each.name)) != each.default
        }

    def payload(self, ended: object) -> Payload:
        """Return the inputs of the hook: its own, and facts, which are attributes of ``ended``."""
        inputs = json.loads(self.inputs or "{}")
        inputs |= {name: getattr(ended, name) for name in (*HOOK_FACTS, *self.more.split())}
        return Payload(JSON, json.dumps(inputs, ensure_ascii=False, separators=(",", ":")))


def read_hooks(entries: Iterable[Mapping[str, Any]] | None) -> list[Hook]:
    """Return hooks that were stored, without the keys that a newer version has added."""
    known = {each.name for each in fields(Hook)}
    return [
        Hook(**{name: value for name, value in entry.items() if name in known})
        for entry in entries or ()
    ]


def hooks_of_end(state: str, *entries: Iterable[Mapping[str, Any]] | None) -> list[Hook]:
    """Return the hooks in these stored lists that are for an end in this state, each once."""
    found = [
        hook for each in entries for hook in read_hooks(each) if HOOK_STATES.get(hook.on) == state
    ]
    return list(dict.fromkeys(found))


# The messages of one attempt: all up to a limit, beyond that only the first and the last.

# Beyond the limit this many messages a second are sent at once. More of them are held
# back for the rest of the second; then only the last of them are sent.
MESSAGES_AT_ONCE = 100


def count_kept_messages() -> tuple[int, int]:
    """Return how many of an attempt's first messages are kept, and how many of its last."""
    first = settings.MAX_LOG_RECORDS // 5
    return first, max(settings.MAX_LOG_RECORDS - first, 1)


class Messages:
    """Sends the messages of a handler to the daemon, through ``report(kind, …)``."""

    def __init__(self, report: Callable[..., object]) -> None:
        self._report = report
        self._count = self._left_out = self._sent = 0
        self._since = 0.0
        self._held: deque[tuple[int, str]] = deque(maxlen=count_kept_messages()[1])

    def add(self, level: int, text: str) -> None:
        self._count += 1
        if self._count <= settings.MAX_LOG_RECORDS:
            self._report("log", level, text)
            return
        self._held.append((level, text))
        now = time.monotonic()
        if now - self._since >= 1:
            self._since, self._sent = now, 0
        if self._sent < MESSAGES_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Send the messages held back; from time to time tell the daemon to remove middle ones."""
        self._sent += len(self._held)
        while self._held:
            self._report("log", *self._held.popleft())
        beyond = self._count - settings.MAX_LOG_RECORDS
        if beyond - self._left_out >= settings.MAX_LOG_RECORDS // 10:
            self._leave_out()

    def end(self) -> None:
        """Send all messages held back, because the handler has ended."""
        self.flush()
        if self._count - settings.MAX_LOG_RECORDS > self._left_out:
            self._leave_out()

    def _leave_out(self) -> None:
        """Tell the daemon how many messages in the middle to remove, in all."""
        self._left_out = self._count - settings.MAX_LOG_RECORDS
        self._report("left_out", self._left_out)


# The response of a finished attempt.


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseData:
    """The output of a finished attempt. ``data`` is None where it is stored as ``file``."""

    content_type: str
    data: bytes | None
    file: str = ""
    size: int = 0


# Moves: the events that happen to Instances.


class Failed(NamedTuple):
    """The cause of a dead letter; ``group`` is the key of its error group."""

    group: int
    type: str
    fingerprint: bytes
    version: int
    exception: str
    title: str


class Move(NamedTuple):
    """An event that happened to an Instance under an attempt.

    ``time`` None means the database's now. ``started`` is given if the start of the attempt has not
    been recorded yet: the start is then an event of its own, and comes first. ``delay`` is the time
    from now until a retry or a deferred Task is due. ``reason`` goes with ``fail``, ``response``
    with ``finish``. ``detail`` is data for the log, such as the class of the exception that the
    handler raised. ``transactional`` says that the attempt's writes are rolled back if the move
    comes too late. If ``kept`` is False, an Instance that FINISHED is removed with all its rows; if
    it has published files, the next purge removes it with those. ``failed`` is the cause of a dead
    letter. ``of`` is the daemon's own attempt to which the event happened. RFC 14 calls a
    move "changing of the task status". It is a plain tuple, as one is made for each attempt.
    """

    event: Event
    instance: int
    attempt: int | None = None
    time: datetime | None = None
    started: datetime | None = None
    who: str = ""
    message: str = ""
    level: int = logging.INFO
    reason: Reason | str = ""
    delay: timedelta | None = None
    response: ResponseData | None = None
    transactional: bool = False
    kept: bool = True
    detail: str = ""
    of: Attempt | None = None
    failed: Failed | None = None


# The notes of a running attempt: progress, messages, files.


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One message in an Instance's log, which is no transition.

    Its ``kind`` is MESSAGE, or STACK: then the record answers the command for the stack.
    """

    time: datetime
    level: int
    text: str
    kind: Kind = Kind.MESSAGE
    detail: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressUpdate:
    """Progress, messages and files that a running attempt reports between its transitions.

    ``left_out`` is the number of its messages that are not kept, between the first and the last
    ones (:func:`count_kept_messages`). ``again`` says that the note may have been written before,
    since its acknowledgement got lost. ``transactional`` is as in :class:`Move`.
    """

    instance: int
    attempt: int
    who: str = ""
    progress: float | None = None
    progress_message: str | None = None
    messages: tuple[Message, ...] = ()
    files: tuple[dict[str, Any], ...] = ()
    left_out: int = 0
    again: bool = False
    transactional: bool = False


# What an attempt keeps while it runs: checkpoints of steps, positions of tailers.


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A step as an attempt finds it; ``payload`` is the result of a step that is done.

    ``left`` is the rest of a sleep, in seconds; at 0 the sleep is done.
    """

    is_done: bool
    payload: codec.Payload | None = None
    left: float = 0.0

    @property
    def value(self) -> Any:
        """The result of the step. Raises CorruptData."""
        return None if self.payload is None else codec.decode(self.payload)


# The longest message of a note, in characters.
MAX_NOTE = 2000

NoteKind: TypeAlias = Literal["lost", "skipped", "waiting"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """What an operator should know about a source: how many records of it make no Instance.

    ``kind`` is one of:

    - "lost": the source has removed these records, and nobody has read them.
    - "skipped": these records, files or folders are in the source, and the tailer cannot read
      them. Somebody has to act: to rename them, to move them, to change their permissions.
    - "waiting": these records are left for a later look. Nobody has to act.

    ``count`` is their number, None if it is unknown. ``message`` is a sentence for people, without
    a period at its end, that has the number and some of the names.

    A note counts in one of two ways. A note of :meth:`Reader.notes` describes the source as this
    look has found it: its count replaces that of the look before, and the same note again is no
    news. A note in ``CursorMove.notes`` is an event, which happens once: its count is added in
    the transaction that moves the cursor. So "lost" belongs to a move. "skipped" belongs to a move
    if the cursor passes the record over, as in a stream, and to a look if a later look finds it
    again, as in a directory.
    """

    kind: NoteKind
    count: int | None
    message: str

    def __post_init__(self) -> None:
        if self.kind not in get_args(NoteKind):
            raise ValueError(f"Note(kind={self.kind!r}): must be one of {get_args(NoteKind)}.")
        if self.count is not None and self.count < 0:
            raise ValueError(f"Note(count={self.count!r}): must be 0 or more, or None.")
        # Names in a source may be what no column of a database can hold.
        text = self.message.replace("\x00", "\N{REPLACEMENT CHARACTER}")
        text = " ".join(text.encode("utf-8", "replace").decode().split())
        object.__setattr__(self, "message", text[:MAX_NOTE])


@dataclass(frozen=True, kw_only=True, slots=True)
class CursorMove:
    """The move of a cursor, from one position to another; ``before`` is None for a new cursor.

    ``notes`` tell which records it passes over: they are counted if it is committed.
    """

    shard: str
    before: str | None
    after: str
    notes: Sequence[Note] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """The number of records that a tailer has settled, of Instances, and of rejected records.

    ``rejected_in_a_row`` is the new number of those rejected since one was mapped, None if it
    stays.
    """

    records: int
    enqueued: int = 0
    rejected: int = 0
    rejected_in_a_row: int | None = None


# A submission: the values of an Instance to be enqueued.


class Submission(NamedTuple):
    """One Instance to be enqueued, checked and serialized.

    ``due`` None means now. ``existing`` says what to do if the identifier is taken: "raise",
    "return" or "redrive"; or if the ``unique`` key is: "raise", "return", "replace" or
    "debounce". ``waits`` is the number of Edges that a node of a graph waits for; an Instance
    that is no node has -1 if it has hooks, else None. ``own`` are settings of this Instance
    alone, as :mod:`atp.options` writes them.
    """

    inputs: Payload
    identifier: str | None = None
    collection: str = ""
    priority: int = 0
    due: datetime | None = None
    start_before: datetime | None = None
    created_by: str = ""
    waits: int | None = None
    own: str | None = None
    unique: str | None = None
    existing: str = "raise"

    @property
    def has_hooks(self) -> bool:
        """Whether the Instance has hooks of its own."""
        return self.own is not None and HOOKS in json.loads(self.own)
