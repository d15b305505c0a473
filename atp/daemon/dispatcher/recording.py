"""The changes that are not in the database yet, and writing them in order."""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from django.db import DatabaseError, DataError, IntegrityError, InterfaceError

from ... import messages, states
from ...exceptions import LeaseLost
from ...states import Event, Reason, State
from ...store.values import Delivered, Move, ProgressUpdate
from .. import log
from ..database import DatabaseThread, Result
from ..processes import uptime
from ..protocol import Key
from .attempts import Attempts
from .lease import LOOK_AGAIN, Renewal
from .maintenance import Jobs

if TYPE_CHECKING:
    from .core import Core

# What is recorded: a batch has only Moves or only Notes.
Entry: TypeAlias = Move | ProgressUpdate
Batch: TypeAlias = list[Move] | list[ProgressUpdate]

# Recording: renewing the lease and writing Moves and Notes, in one thread.

RECORDING, LEAVING = "recording", "leaving"


class Recording:
    """The user of the recording thread; ``turn()`` starts the most urgent call in it."""

    def __init__(
        self,
        core: "Core",
        thread: DatabaseThread,
        attempts: Attempts,
        renewal: Renewal,
        jobs: Jobs,
    ) -> None:
        self._core = core
        self._thread = thread
        self._unrecorded: UnrecordedChanges = core.unrecorded
        self._attempts = attempts
        self._renewal = renewal
        self._jobs = jobs
        # The time since which entries wait for locks of other sessions, or None.
        self._locked_since: float | None = None

    def turn(self) -> None:
        """Renew if it is time, else do a job that is due, else write a batch."""
        if self._thread.busy:
            return
        if self._renewal.is_due():
            self._renewal.start(self._thread)
        elif not self._jobs.turn():
            unrecorded = self._unrecorded
            if unrecorded.has_aside and self._core.timers.due("locked", LOOK_AGAIN):
                unrecorded.readmit(unrecorded.aside() - self._core.identity.left)
            if unrecorded.is_ripe(more_comes=self._attempts.any()):
                self._deliver()

    def _deliver(self) -> None:
        core, limited = self._core, self._attempts.limited
        batch, careful = self._unrecorded.take(), core.caution.is_advised
        daemon = core.identity.holder

        def deliver() -> tuple[Sequence[Entry], Delivered]:
            delivered: Delivered = core.store.records.deliver(batch, daemon=daemon, careful=careful)
            done: Sequence[Entry] = batch
            if delivered.locked:
                done = [entry for entry in batch if entry.instance not in delivered.locked]
            lanes = limited.unstarted_lanes(done) if not delivered.refused else ()
            if lanes:
                core.store.limits.give_back(lanes, memory=core.memory)
            if limited.ends_any(done):
                # An idle daemon may start another attempt.
                core.store.tell()
            return done, delivered

        self._thread.submit(RECORDING, deliver, self._recorded)

    def leave(self, then: Callable[[bool], None]) -> None:
        """Give up the daemon's row."""
        daemon, store = self._core.identity.holder, self._core.store
        self._core.statistics.add_usage(self._attempts.usage.close())
        statistics = self._core.statistics
        counts = statistics.send(is_last=True)

        def leave() -> bool:
            statistics.add(store, daemon, counts)
            return store.daemons.leave(daemon)

        def left(result: Result[bool]) -> None:
            statistics.answered()
            then(result.value)

        self._thread.submit(LEAVING, leave, left)

    def _recorded(self, result: Result[tuple[Sequence[Entry], Delivered]]) -> None:
        batch, delivered = result.value
        refused = delivered.refused
        moves = [entry for entry in refused if isinstance(entry, Move)]
        surprises = [move for move in moves if not self._unrecorded.is_doubtful(move)]
        self._core.statistics.recorded(batch, refused)
        self._attempts.recorded(batch, refused)
        self._unrecorded.acknowledge(delivered.locked)
        self._note_locks(delivered)
        if surprises:
            # This daemon does not hold all the Tasks that it thinks it holds. The join of a
            # new identity corrects that.
            self._core.identity.lose()

    def _note_locks(self, delivered: Delivered) -> None:
        if delivered.waited or delivered.locked:
            self._core.caution.met(RECORDING)
        if delivered.locked and self._locked_since is None:
            self._locked_since = uptime()
            log.results_locked(count=len(delivered.locked))
        elif self._locked_since is not None and not self._unrecorded.has_aside:
            log.results_unlocked(seconds=uptime() - self._locked_since)
            self._locked_since = None

    def locked(self, result: Result[Any]) -> None:
        """Prepare to repeat a call that met another session's lock and has written nothing."""
        if result.doing == RECORDING:
            self._unrecorded.give_back()
        elif result.doing == LEAVING:
            self._core.statistics.answered()

    def failed(self, result: Result[Any]) -> None:
        """Put back a batch that may or may not be in the database; see :meth:`~.keep`."""
        if result.doing == RECORDING:
            # The batch may have taken too long: make the next ones smaller.
            self._unrecorded.give_back()
            self._unrecorded.shrink()


# Finding the one Move or Note that cannot be written, so that the others can be.


class Unrecordable:
    """The treatment of entries that cannot be written: drop their texts, but keep their events."""

    def __init__(self, core: "Core") -> None:
        self._core = core
        self._unrecorded: UnrecordedChanges = core.unrecorded

    def can_isolate(self, result: Result[Any]) -> bool:
        """Tell whether the data of a batch caused the failure, and not the database.

        If so, look for the entry at fault: write the entries one by one from now on, and give
        up the one that fails alone.
        """
        if result.doing != RECORDING or not _is_of_the_data(result.error):
            return False
        self._unrecorded.give_back()
        if self._unrecorded.limit != 1:
            self._unrecorded.limit = 1
        else:
            self._give_up(self._unrecorded.drop_first(), result.error)
            self._unrecorded.limit = None
        return True

    def _give_up(self, entry: Entry, error: BaseException | None) -> None:
        """Replace an entry by its bare event, without the handler's texts; drop a Note."""
        bare = isinstance(entry, Move) and bare_of(entry, type(error).__name__)
        event = entry.event if isinstance(entry, Move) else "note"
        log.unrecordable(event=event, instance=entry.instance, error=error)
        if bare and bare != entry:
            self._unrecorded.put_first(bare)
        elif bare:
            # Even the bare event failed: the join of the next identity expires the Task.
            self._core.identity.lose()


def bare_of(move: Move, error: str) -> Move:
    """Return the Move without the texts and values of its handler; a FINISH becomes a FAIL."""
    words = messages.not_stored(error)
    if move.event == Event.FINISH:
        return move._replace(
            event=Event.FAIL,
            reason=Reason.ERROR,
            level=logging.ERROR,
            message=words,
            response=None,
        )
    return move._replace(message=words, failed=None)


def _is_of_the_data(error: BaseException | None) -> bool:
    if isinstance(error, (DataError, IntegrityError)):
        return True
    return not isinstance(error, (DatabaseError, InterfaceError, LeaseLost, OSError))


# Moves and Notes that are not recorded in the database yet.
#
# They wait here in order, are sent in batches, and stay until the database has acknowledged
# them.

BATCH = 1000
# The attempt goes on after these events. Its state shows whether they have been recorded.
_WITHIN = states.events(lambda row: row.continues)
_OF_PAUSES = _WITHIN - {Event.START}
# While more entries are about to come, a batch waits until it has ENOUGH entries, or until the
# first has waited for LINGER seconds.
ENOUGH, LINGER = 200, 0.01


class UnrecordedChanges:
    """A queue of Moves and Notes, which keeps the order of those of one Instance."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._since = 0.0
        # All Moves, or all Notes.
        self._sent: list[Any] = []
        # The entries that wait for a lock of another session, by pair of Instance and attempt.
        self._aside: dict[Key, list[Entry]] = {}
        # The pairs of Instance and attempt whose Task this daemon may not hold any more.
        self._doubtful: set[Key] = set()
        # The size of the largest batch; None is BATCH.
        self.limit: int | None = None

    def __len__(self) -> int:
        aside = sum(map(len, self._aside.values()))
        return self.pending + aside

    @property
    def pending(self) -> int:
        """The number of entries that wait for nothing but the next batches."""
        return len(self._entries) + len(self._sent)

    def add(self, *entries: Entry) -> None:
        """Append Moves or Notes."""
        if not self._entries:
            self._since = uptime()
        self._entries.extend(self._apart(entries) if self._aside else entries)

    @property
    def waits(self) -> bool:
        """Whether there are entries that have not been sent."""
        return bool(self._entries)

    def is_ripe(self, *, more_comes: bool) -> bool:
        """Tell whether it is time to write a batch."""
        if not self._entries:
            return False
        many = len(self._entries) >= ENOUGH
        return many or not more_comes or uptime() - self._since >= LINGER

    def take(self) -> Batch:
        """Return the next batch, of Moves alone or of Notes alone; empty if no entry waits.

        The batch counts as sent until :meth:`acknowledge` or :meth:`give_back`.
        """
        if self._sent or not self._entries:
            return []
        kind = type(self._entries[0])
        limit = self.limit or BATCH
        held: set[Key] = set()
        while self._entries and len(self._sent) < limit:
            entry = self._entries[0]
            if type(entry) is not kind:
                break
            if kind is Move and entry.event in _OF_PAUSES:  # type: ignore[union-attr]
                # Take one per attempt: of two, the state would not show whether both are recorded.
                if _key(entry) in held:
                    break
                held.add(_key(entry))
            self._sent.append(self._entries.popleft())
        return merged(self._sent) if kind is ProgressUpdate else list(self._sent)

    def acknowledge(self, locked: Collection[int] = ()) -> None:
        """Forget the batch that was sent, except for the entries of ``locked`` Instances.

        Those entries are not recorded, and wait until :meth:`readmit`.
        """
        if locked:
            unwritten = [entry for entry in self._sent if entry.instance in locked]
            self._entries.extendleft(reversed(unwritten))
            self.set_aside(_key(entry) for entry in unwritten)
        self._sent = []
        if not self._entries and not self._aside:
            self._doubtful.clear()
            self.limit = None

    # Locked Instances

    @property
    def has_aside(self) -> bool:
        """Whether entries wait for locks of other sessions."""
        return bool(self._aside)

    def overfull(self, most: int) -> set[Key]:
        """Return the keys of the attempts that have ``most`` entries or more apart."""
        return {key for key, entries in self._aside.items() if len(entries) >= most}

    def set_aside(self, keys: Iterable[Key]) -> None:
        """Let the entries of these attempts wait apart, future ones included."""
        for key in keys:
            self._aside.setdefault(key, [])
        self._entries = deque(self._apart(self._entries))

    def readmit(self, keys: Collection[Key] | None = None) -> None:
        """Put entries that wait apart first in the queue: all, or those of these attempts."""
        wanted = [key for key in self._aside if keys is None or key in keys]
        again = [entry for key in wanted for entry in self._aside.pop(key)]
        self._entries.extendleft(reversed(again))

    def aside(self) -> set[Key]:
        """Return the keys of the attempts whose entries wait apart."""
        return set(self._aside)

    def _apart(self, entries: Iterable[Entry]) -> list[Entry]:
        """Put the entries of attempts that wait apart there; return the other entries."""
        others: list[Entry] = []
        for entry in entries:
            self._aside.get(_key(entry), others).append(entry)
        return others

    def give_back(self) -> None:
        """Put the batch that was sent first again, because it may not be in the database."""
        again = [replace(e, again=True) if isinstance(e, ProgressUpdate) else e for e in self._sent]
        self._entries.extendleft(reversed(again))
        self._sent = []

    def shrink(self) -> None:
        """Halve the size of the next batches, until no entry waits any more."""
        self.limit = max(1, (self.limit or BATCH) // 2)

    def drop_first(self) -> Entry:
        """Remove and return the first waiting entry."""
        return self._entries.popleft()

    def put_first(self, entry: Entry) -> None:
        """Put an entry before all other waiting entries."""
        self._entries.appendleft(entry)

    def keep(self, kept: Mapping[Key, str], keys: Collection[Key] | None = None) -> None:
        """After the join of a new identity, forget the entries that are recorded already.

        ``kept`` has the states of the attempts that this daemon still holds, by pair of
        Instance and attempt. Entries of other attempts are written all the same. Either they
        were recorded before and the acknowledgement got lost, or the database refuses them and
        logs them as too late. If ``keys`` is given, look at the entries of these attempts only.
        """
        entries: deque[Entry] = deque()
        reached = dict(kept)
        for each in self._entries:
            entry, key = each, _key(each)
            if keys is not None and key not in keys:
                pass
            elif key not in kept:
                self._doubtful.add(key)
            elif isinstance(entry, Move) and entry.event in _WITHIN:
                transition = states.transition(entry.event, State(reached[key]))
                if transition is None:
                    continue  # the entry has been recorded
                reached[key] = transition.target
            else:
                entry = _without_start(entry, reached[key])
            entries.append(entry)
        self._entries = entries

    def doubt(self, key: Key) -> None:
        """Note that entries of this attempt may come too late, or may be recorded already."""
        self._doubtful.add(key)

    def is_doubtful(self, entry: Entry) -> bool:
        """Tell whether a refusal of the entry would be no surprise."""
        return _key(entry) in self._doubtful

    def keys(self) -> set[Key]:
        """Return the keys of all attempts that have entries here."""
        return {_key(entry) for entry in (*self._sent, *self._entries)} | self.aside()


def _key(entry: Any) -> Key:
    return entry.instance, entry.attempt


def _without_start(entry: Entry, state: str) -> Entry:
    """Return the entry without the start that it includes, if the start has been recorded."""
    if isinstance(entry, Move) and entry.started is not None and state != "SCHEDULED":
        return entry._replace(started=None)
    return entry


def merged(notes: Iterable[ProgressUpdate]) -> list[ProgressUpdate]:
    """Merge the Notes of each attempt into one: all messages and files, and the last progress."""
    by_key: dict[Key, ProgressUpdate] = {}
    for note in notes:
        key = _key(note)
        before = by_key.get(key)
        if before is None:
            by_key[key] = note
            continue
        newer = note.progress_message is not None
        by_key[key] = ProgressUpdate(
            instance=note.instance,
            attempt=note.attempt,
            who=note.who,
            progress=note.progress if newer else before.progress,
            progress_message=note.progress_message if newer else before.progress_message,
            messages=before.messages + note.messages,
            files=before.files + note.files,
            left_out=max(before.left_out, note.left_out),
            again=before.again or note.again,
            transactional=note.transactional,
        )
    return list(by_key.values())
