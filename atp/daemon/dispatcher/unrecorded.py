"""Moves and Notes that are not recorded in the database yet.

They wait here in order, are sent in batches, and stay until the database has acknowledged
them.
"""

from collections import deque
from dataclasses import replace

from ... import states
from ...states import Event, State
from ...store.values import Move, ProgressUpdate
from ..system.processes import uptime

BATCH = 1000
# The attempt goes on after these events. Its state shows whether they have been recorded.
_WITHIN = states.events(lambda row: row.continues)
_OF_PAUSES = _WITHIN - {Event.START}
# While more entries are about to come, a batch waits until it has ENOUGH entries, or until the
# first has waited for LINGER seconds.
ENOUGH, LINGER = 200, 0.01


class UnrecordedChanges:
    """A queue of Moves and Notes, which keeps the order of those of one Instance."""

    def __init__(self):
        self._entries = deque()
        self._since = 0.0
        self._sent = []
        # The entries that wait for a lock of another session, by pair of Instance and attempt.
        self._aside = {}
        # The pairs of Instance and attempt whose Task this daemon may not hold any more.
        self._doubtful = set()
        # The size of the largest batch; None is BATCH.
        self.limit = None

    def __len__(self):
        aside = sum(map(len, self._aside.values()))
        return self.pending + aside

    @property
    def pending(self):
        """The number of entries that wait for nothing but the next batches."""
        return len(self._entries) + len(self._sent)

    def add(self, *entries):
        """Append Moves or Notes."""
        if not self._entries:
            self._since = uptime()
        self._entries.extend(self._apart(entries) if self._aside else entries)

    @property
    def waits(self):
        """Whether there are entries that have not been sent."""
        return bool(self._entries)

    def is_ripe(self, *, more_comes):
        """Tell whether it is time to write a batch."""
        if not self._entries:
            return False
        many = len(self._entries) >= ENOUGH
        return many or not more_comes or uptime() - self._since >= LINGER

    def take(self):
        """Return the next batch, of Moves alone or of Notes alone; empty if no entry waits.

        The batch counts as sent until :meth:`acknowledge` or :meth:`give_back`.
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
                # Take one per attempt: of two, the state would not show whether both are recorded.
                if _key(entry) in held:
                    break
                held.add(_key(entry))
            self._sent.append(self._entries.popleft())
        return merged(self._sent) if kind is ProgressUpdate else list(self._sent)

    def acknowledge(self, locked=()):
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
    def has_aside(self):
        """Whether entries wait for locks of other sessions."""
        return bool(self._aside)

    def overfull(self, most):
        """Return the keys of the attempts that have ``most`` entries or more apart."""
        return {key for key, entries in self._aside.items() if len(entries) >= most}

    def set_aside(self, keys):
        """Let the entries of these attempts wait apart, future ones included."""
        for key in keys:
            self._aside.setdefault(key, [])
        self._entries = deque(self._apart(self._entries))

    def readmit(self, keys=None):
        """Put entries that wait apart first in the queue: all, or those of these attempts."""
        wanted = [key for key in self._aside if keys is None or key in keys]
        again = [entry for key in wanted for entry in self._aside.pop(key)]
        self._entries.extendleft(reversed(again))

    def aside(self):
        """Return the keys of the attempts whose entries wait apart."""
        return set(self._aside)

    def _apart(self, entries):
        """Put the entries of attempts that wait apart there; return the other entries."""
        others = []
        for entry in entries:
            self._aside.get(_key(entry), others).append(entry)
        return others

    def give_back(self):
        """Put the batch that was sent first again, because it may not be in the database."""
        again = [replace(e, again=True) if isinstance(e, ProgressUpdate) else e for e in self._sent]
        self._entries.extendleft(reversed(again))
        self._sent = []

    def shrink(self):
        """Halve the size of the next batches, until no entry waits any more."""
        self.limit = max(1, (self.limit or BATCH) // 2)

    def drop_first(self):
        """Remove and return the first waiting entry."""
        return self._entries.popleft()

    def put_first(self, entry):
        """Put an entry before all other waiting entries."""
        self._entries.appendleft(entry)

    def keep(self, kept, keys=None):
        """After the join of a new identity, forget the entries that are recorded already.

        ``kept`` has the states of the attempts that this daemon still holds, by pair of
        Instance and attempt. Entries of other attempts are written all the same. Either they
        were recorded before and the acknowledgement got lost, or the database refuses them and
        keeps the refusal. If ``keys`` is given, look at the entries of these attempts only.
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
                    continue  # the entry has been recorded
                reached[key] = transition.target
            else:
                entry = _without_start(entry, reached[key])
            entries.append(entry)
        self._entries = entries

    def doubt(self, key):
        """Note that entries of this attempt may come too late, or may be recorded already."""
        self._doubtful.add(key)

    def is_doubtful(self, entry):
        """Tell whether a refusal of the entry would be no surprise."""
        return _key(entry) in self._doubtful

    def keys(self):
        """Return the keys of all attempts that have entries here."""
        return {_key(entry) for entry in (*self._sent, *self._entries)} | self.aside()


def _key(entry):
    return entry.instance, entry.attempt


def _without_start(entry, state):
    """Return the entry without the start that it includes, if the start has been recorded."""
    if isinstance(entry, Move) and entry.started is not None and state != "SCHEDULED":
        return entry._replace(started=None)
    return entry


def merged(notes):
    """Merge the Notes of each attempt into one: all messages and files, and the last progress."""
    by_key = {}
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
