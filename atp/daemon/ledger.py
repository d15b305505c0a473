"""What has happened and is not yet in the database.

Changes and notes wait here in order, leave in batches, and stay until the
database has acknowledged them.
"""

from collections import deque
from dataclasses import replace

from .. import states
from ..states import Event, State
from ..store.values import Change, Note
from .processes import uptime

BATCH = 1000
_ON_HOLD = frozenset({Event.PAUSE, Event.RESUME})
# By these an attempt goes on: the state shows whether they have been written.
_WITHIN = _ON_HOLD | {Event.START}
# As long as more is about to come, a batch is waited for: until there are so many,
# or the first has waited so long, in seconds.
ENOUGH, LINGER = 200, 0.01


class Ledger:
    """A queue of changes and notes, those of one Instance in order."""

    def __init__(self):
        self._entries = deque()
        self._since = 0.0
        self._sent = []
        # Pairs of Instance and attempt whose Task may not be this daemon's any more.
        self._doubtful = set()
        # Largest batch; None is BATCH.
        self.limit = None

    def __len__(self):
        return len(self._entries) + len(self._sent)

    def add(self, *entries):
        """Append changes or notes."""
        if not self._entries:
            self._since = uptime()
        self._entries.extend(entries)

    @property
    def waits(self):
        """Whether something waits to be written that has not been sent."""
        return bool(self._entries)

    def is_ripe(self, *, more_comes):
        """Whether it is time to write what waits here."""
        if not self._entries:
            return False
        many = len(self._entries) >= ENOUGH
        return many or not more_comes or uptime() - self._since >= LINGER

    def take(self):
        """Return the next batch: either all changes or all notes. Empty if nothing waits.

        It counts as sent until :meth:`acknowledge` or :meth:`give_back`.
        """
        if self._sent or not self._entries:
            return []
        kind = type(self._entries[0])
        limit = self.limit or BATCH
        held = set()
        while self._entries and len(self._sent) < limit:
            entry = self._entries[0]
            if type(entry) is not kind:
                break
            if kind is Change and entry.event in _ON_HOLD:
                # One of an attempt at a time: of two nobody could tell whether both are written.
                if (entry.instance, entry.attempt) in held:
                    break
                held.add((entry.instance, entry.attempt))
            self._sent.append(self._entries.popleft())
        return merged(self._sent) if kind is Note else list(self._sent)

    def acknowledge(self):
        """The batch that was sent is in the database."""
        self._sent = []
        if not self._entries:
            self._doubtful.clear()
            self.limit = None

    def give_back(self):
        """The batch that was sent may not be in the database: it is first again."""
        again = [replace(e, again=True) if isinstance(e, Note) else e for e in self._sent]
        self._entries.extendleft(reversed(again))
        self._sent = []

    def shrink(self):
        """Let the next batches be half as large, until nothing waits any more."""
        self.limit = max(1, (self.limit or BATCH) // 2)

    def drop_first(self):
        """Forget the first entry that waits, and return it."""
        return self._entries.popleft()

    def put_first(self, entry):
        """Put an entry before all others that wait."""
        self._entries.appendleft(entry)

    def keep(self, kept):
        """After an identity was renewed: forget what is recorded already.

        ``kept`` is the state by pair of Instance and attempt of what this daemon
        still holds. What it does not hold is written all the same: either it has been
        before, and its acknowledgement got lost; or it is refused, and the refusal kept.
        """
        entries, reached = deque(), dict(kept)
        for each in self._entries:
            entry, key = each, (each.instance, each.attempt)
            if key not in kept:
                self._doubtful.add(key)
            elif isinstance(entry, Change) and entry.event in _WITHIN:
                move = states.transition(entry.event, State(reached[key]))
                if move is None:
                    continue  # it has been written
                reached[key] = move.target
            else:
                entry = _without_start(entry, reached[key])
            entries.append(entry)
        self._entries = entries

    def doubt(self, key):
        """What is to be written of this attempt may come too late, or have been written."""
        self._doubtful.add(key)

    def is_doubtful(self, entry):
        """Whether it was known beforehand that the entry may be refused."""
        return (entry.instance, entry.attempt) in self._doubtful

    def keys(self):
        """Pairs of Instance and attempt that something is still to be written of."""
        return {(e.instance, e.attempt) for e in (*self._sent, *self._entries)}


def _without_start(entry, state):
    """Return the entry without the start that it has with it, if that has been written."""
    if isinstance(entry, Change) and entry.started is not None and state != "SCHEDULED":
        return entry._replace(started=None)
    return entry


def merged(notes):
    """Merge the notes of each attempt: all messages and files, the last progress."""
    by_key = {}
    for note in notes:
        key = (note.instance, note.attempt)
        before = by_key.get(key)
        if before is None:
            by_key[key] = note
            continue
        newer = note.progress_message is not None
        by_key[key] = Note(
            instance=note.instance,
            attempt=note.attempt,
            who=note.who,
            progress=note.progress if newer else before.progress,
            progress_message=note.progress_message if newer else before.progress_message,
            messages=before.messages + note.messages,
            files=before.files + note.files,
            again=before.again or note.again,
            transactional=note.transactional,
        )
    return list(by_key.values())
