"""Changes and notes that are not recorded in the database yet.

They wait here in order, leave in batches, and stay until the database has acknowledged
them.
"""

from collections import deque
from dataclasses import replace

from ... import states
from ...states import Event, State
from ...store.values import Move, Note
from ..system.processes import uptime

BATCH = 1000
# An attempt goes on after these events: the state shows whether they have been written.
_WITHIN = states.events(lambda row: row.continues)
_OF_PAUSES = _WITHIN - {Event.START}
# As long as more is about to come, a batch is waited for: until there are so many,
# or the first has waited so long, in seconds.
ENOUGH, LINGER = 200, 0.01


class UnrecordedChanges:
    """A queue of moves and notes, those of one Instance in order."""

    def __init__(self):
        self._entries = deque()
        self._since = 0.0
        self._sent = []
        # Entries by pair of Instance and attempt that wait until a lock of others is gone.
        self._aside = {}
        # Pairs of Instance and attempt whose Task may not be this daemon's any more.
        self._doubtful = set()
        # Largest batch; None is BATCH.
        self.limit = None

    def __len__(self):
        aside = sum(map(len, self._aside.values()))
        return len(self._entries) + len(self._sent) + aside

    def add(self, *entries):
        """Append moves or notes."""
        if not self._entries:
            self._since = uptime()
        self._entries.extend(self._apart(entries) if self._aside else entries)

    @property
    def waits(self):
        """Whether there are entries that have not been sent."""
        return bool(self._entries)

    def is_ripe(self, *, more_comes):
        """Whether it is time to write what waits here."""
        if not self._entries:
            return False
        many = len(self._entries) >= ENOUGH
        return many or not more_comes or uptime() - self._since >= LINGER

    def take(self):
        """Return the next batch: either all moves or all notes. Empty if nothing waits.

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
            if kind is Move and entry.event in _OF_PAUSES:
                # One of an attempt at a time: of two nobody could tell whether both are written.
                if _key(entry) in held:
                    break
                held.add(_key(entry))
            self._sent.append(self._entries.popleft())
        return merged(self._sent) if kind is Note else list(self._sent)

    def acknowledge(self, locked=()):
        """The batch that was sent is in the database, but for the Instances that are locked.

        The entries of those wait until :meth:`readmit`.
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
    def has_aside(self):
        """Whether entries wait until a lock of others is gone."""
        return bool(self._aside)

    def set_aside(self, keys):
        """Let the entries of these attempts wait apart, those that are still to come too."""
        for key in keys:
            self._aside.setdefault(key, [])
        self._entries = deque(self._apart(self._entries))

    def readmit(self, keys=None):
        """Let entries that wait apart be written next: those of these attempts, or all."""
        wanted = [key for key in self._aside if keys is None or key in keys]
        again = [entry for key in wanted for entry in self._aside.pop(key)]
        self._entries.extendleft(reversed(again))

    def aside(self):
        """Return the keys of the attempts whose entries wait apart."""
        return set(self._aside)

    def _apart(self, entries):
        """Put those entries apart that are to wait there; returns the others."""
        others = []
        for entry in entries:
            self._aside.get(_key(entry), others).append(entry)
        return others

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

    def keep(self, kept, keys=None):
        """After an identity was renewed: forget what is recorded already.

        ``kept`` is the state by pair of Instance and attempt of what this daemon
        still holds. What it does not hold is written all the same: either it has been
        before, and its acknowledgement got lost; or it is refused, and the refusal kept.
        With ``keys`` only what is to be written of those is looked at.
        """
        entries, reached = deque(), dict(kept)
        for each in self._entries:
            entry, key = each, _key(each)
            if keys is not None and key not in keys:
                pass
            elif key not in kept:
                self._doubtful.add(key)
            elif isinstance(entry, Move) and entry.event in _WITHIN:
                transition = states.transition(entry.event, State(reached[key]))
                if transition is None:
                    continue  # it has been written
                reached[key] = transition.target
            else:
                entry = _without_start(entry, reached[key])
            entries.append(entry)
        self._entries = entries

    def doubt(self, key):
        """The entries of this attempt may come too late, or have been written already."""
        self._doubtful.add(key)

    def is_doubtful(self, entry):
        """Whether it was known beforehand that the entry may be refused."""
        return _key(entry) in self._doubtful

    def keys(self):
        """Return the keys of all attempts that have entries here."""
        return {_key(entry) for entry in (*self._sent, *self._entries)} | self.aside()


def _key(entry):
    return entry.instance, entry.attempt


def _without_start(entry, state):
    """Return the entry without the start that it has with it, if that has been written."""
    if isinstance(entry, Move) and entry.started is not None and state != "SCHEDULED":
        return entry._replace(started=None)
    return entry


def merged(notes):
    """Merge the notes of each attempt: all messages and files, the last progress."""
    by_key = {}
    for note in notes:
        key = _key(note)
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
            left_out=max(before.left_out, note.left_out),
            again=before.again or note.again,
            transactional=note.transactional,
        )
    return list(by_key.values())
