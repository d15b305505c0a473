"""Recording: the lease, the Types, what has happened, what is asked."""

import logging

from django.db import DatabaseError, DataError, IntegrityError, InterfaceError

from .. import queue as verbs
from ..conf import settings
from ..exceptions import LeaseLost
from ..modes import Mode
from ..registry import registry
from ..states import Event, Reason
from ..store.values import Change
from . import journal
from .processes import uptime

RECORDING = "recording"
# What is asked of running Tasks is read at least this often, in seconds: whoever cancels
# one should not wait much longer than its grace.
ASK_EVERY = 0.5
# A daemon that has been at work for so long, in seconds, is not called idle any more.
TELL_BUSY_AFTER = 0.1


class Recording:
    """Works in the recording thread; ``turn()`` starts the most urgent call."""

    def __init__(
        self, thread, store, identity, ledger, attempts, timers, tell, claiming, listening, duty
    ):
        self._thread = thread
        self._store = store
        self._identity = identity
        self._ledger = ledger
        self._attempts = attempts
        self._timers = timers
        self._tell = tell
        self._claiming = claiming
        self._listening = listening
        self._duty = duty
        self.registered = False
        # What the daemon's row says of it, and since when it has had something to do.
        self._told_idle, self._told_mode, self._told_channel = None, Mode.RUNNING, ""
        self._may_be_handed, self._handings, self._unheard_since = False, 0, None
        self._busy_since = 0.0

    def turn(self):
        """Renew when it is time, see what is asked now and then, else write what has happened."""
        if self._thread.busy:
            return
        daemon = self._identity.current
        if self._timers.due("renew", settings.RENEW_EVERY) or self._is_news():
            self._renew(daemon)
        elif not self.registered:
            self._thread.submit("registering Types", self._register, self._set_registered)
        elif self._attempts.any() and self._timers.due("asked", self._ask_every()):
            self._thread.submit("reading requests", lambda: self._store.asked(daemon), self._asked)
        elif self._ledger.is_ripe(more_comes=self._attempts.any()):
            batch = self._ledger.take()
            write = self._record if isinstance(batch[0], Change) else self._store.note
            self._thread.submit(
                RECORDING, lambda: (batch, write(batch, daemon=daemon)), self._recorded
            )

    @staticmethod
    def _ask_every():
        return min(settings.POLL_EVERY, ASK_EVERY)

    def joined(self):
        """The daemon has another row, of which nothing has been told."""
        self._may_be_handed, self._unheard_since = False, None
        self._told_idle, self._told_mode, self._told_channel = None, Mode.RUNNING, ""

    def handed(self):
        """An enqueue has handed over a Task: since then the row does not say idle any more."""
        self._handings += 1
        self._told_idle = self._may_be_handed = False

    def may_be_handed(self):
        """Whether an enqueue may hand over something, or has, of which nobody has heard yet."""
        return self._may_be_handed

    def may_have_missed_handing(self):
        """Whether what the row named for handing over to cannot be heard any more.

        What went there is held under this identity, and only another one makes sure of it.
        """
        told = self._told_channel
        return self._identity.current is not None and told not in ("", self._listening.channel)

    def leave(self, then):
        """Give up the daemon's row."""
        daemon = self._identity.current
        self._thread.submit("leaving", lambda: self._store.leave(daemon), then)

    def _mode(self):
        """What the row may say: quiet only once no claim is on its way any more."""
        mode = self._duty.mode
        return Mode.RUNNING if mode is Mode.QUIET and self._claiming.is_claiming else mode

    def _is_news(self):
        """Whether it is worth a word what the daemon does, or that it has nothing to do.

        Who enqueues notifies only if one has nothing; each notice costs the
        server a lock, so this is taken back after a while of work.
        """
        mode = self._mode()
        # One that stops with nothing to wait for is gone before anybody looks.
        if mode is not self._told_mode and (mode is not Mode.STOPPING or self._attempts.any()):
            return True
        if self._claiming.is_idle():
            self._busy_since = uptime()
            channel = self._listening.channel
            return self._told_idle is not True or self._told_channel != channel
        return self._told_idle is True and uptime() - self._busy_since >= TELL_BUSY_AFTER

    def _renew(self, daemon):
        workers, idle, mode = self._attempts.workers(), self._claiming.is_idle(), self._mode()
        channel = self._listening.channel
        if self._told_channel not in ("", channel):
            return  # it was lost just now; the next turn will find that
        # From now on something may be handed over there.
        self._told_channel = channel
        handings = self._handings
        self._may_be_handed = self._may_be_handed or idle
        self._timers.later("renew", settings.RENEW_EVERY)

        def renewed(result):
            self._identity.renewed(result.value.time, result.sent, result.received)
            self._tell("lease", self._identity.lease_until)
            if idle and not self._told_idle:
                # What was enqueued before this was known, nobody has told of.
                self._attempts.news.call()
            self._may_be_handed = idle or result.value.unheard
            if not result.value.unheard:
                self._unheard_since = None
            elif self._unheard_since is None:
                self._unheard_since = uptime()
            elif uptime() - self._unheard_since >= settings.RENEW_EVERY:
                # Its listener goes on, and does not see it.
                journal.channel_lost()
                self._identity.lose()
            # What was handed over meanwhile came after this, or did it before: then it is
            # said once more.
            self._told_idle = idle and handings == self._handings
            self._told_mode = mode
            self._duty.obey(result.value.request)

        self._thread.submit(
            "renewing the lease",
            lambda: self._store.renew(
                daemon,
                lease=settings.LEASE,
                workers=workers,
                idle=idle,
                mode=mode,
                channel=channel,
            ),
            renewed,
        )

    def _register(self):
        served = [registry.get(identifier) for identifier in self._identity.types]
        verbs.register(*served, by=self._identity.name)

    def _set_registered(self, result):
        self.registered = True

    def _record(self, batch, *, daemon):
        refused = self._store.record(batch, daemon=daemon)
        if self._attempts.frees_limited(batch):
            # Whoever is idle may start another.
            self._store.tell()
        return refused

    def _recorded(self, result):
        batch, refused = result.value
        if self._attempts.frees_limited(batch):
            self._attempts.freed_limited(batch)
        changes = [entry for entry in refused if isinstance(entry, Change)]
        surprises = [change for change in changes if not self._ledger.is_doubtful(change)]
        self._attempts.recorded(batch, refused)
        self._ledger.acknowledge()
        if surprises:
            # What this daemon thinks it holds and what it holds are not the
            # same: a new identity makes them so.
            self._identity.lose()

    def _asked(self, result):
        for asked in result.value:
            self._attempts.heard(asked)

    # What cannot be written

    def can_isolate(self, result):
        """Whether a failure lies in what was to be written, not in the database.

        Then the entry is looked for: from now on they are written one by
        one, and the one that fails alone is given up.
        """
        if result.doing != RECORDING or not _is_of_the_data(result.error):
            return False
        self._ledger.give_back()
        if self._ledger.limit != 1:
            self._ledger.limit = 1
        else:
            self._give_up(self._ledger.drop_first(), result.error)
            self._ledger.limit = None
        return True

    def _give_up(self, entry, error):
        """Leave an entry out; the event itself is written all the same, in bare words."""
        bare = isinstance(entry, Change) and bare_of(entry, type(error).__name__)
        event = entry.event if isinstance(entry, Change) else "note"
        journal.unrecordable(event=event, instance=entry.instance, error=error)
        if bare and bare != entry:
            self._ledger.put_first(bare)
        elif bare:
            # Not even that: under the next identity the Task is expired.
            self._identity.lose()


def bare_of(change, error):
    """Return the change with nothing in it that a handler has said."""
    words = f"what was said here could not be stored: {error}"
    if change.event == Event.FINISH:
        return change._replace(
            event=Event.FAIL,
            reason=Reason.ERROR,
            level=logging.ERROR,
            message=words,
            response=None,
        )
    return change._replace(message=words)


def _is_of_the_data(error):
    if isinstance(error, (DataError, IntegrityError)):
        return True
    return not isinstance(error, (DatabaseError, InterfaceError, LeaseLost, OSError))
