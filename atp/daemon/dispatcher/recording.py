"""Recording: renewing the lease and writing Moves and Notes, in one thread."""

from ...store.values import Move
from .. import journal
from ..membership.renewal import LOOK_AGAIN
from ..system.processes import uptime

RECORDING, LEAVING = "recording", "leaving"


class Recording:
    """The user of the recording thread; ``turn()`` starts the most urgent call in it."""

    def __init__(self, core, thread, attempts, renewal, chores):
        self._core = core
        self._thread = thread
        self._unrecorded = core.unrecorded
        self._attempts = attempts
        self._renewal = renewal
        self._chores = chores
        # The time since which entries wait for locks of other sessions, or None.
        self._locked_since = None

    def turn(self):
        """Renew if it is time, else do a chore that is due, else write a batch."""
        if self._thread.busy:
            return
        if self._renewal.is_due():
            self._renewal.start(self._thread)
        elif not self._chores.turn():
            unrecorded = self._unrecorded
            if unrecorded.has_aside and self._core.timers.due("locked", LOOK_AGAIN):
                unrecorded.readmit(unrecorded.aside() - self._core.identity.left)
            if unrecorded.is_ripe(more_comes=self._attempts.any()):
                self._deliver()

    def _deliver(self):
        core, limited = self._core, self._attempts.limited
        batch, careful = self._unrecorded.take(), core.caution.is_advised
        daemon = core.identity.current

        def deliver():
            delivered = core.store.records.deliver(batch, daemon=daemon, careful=careful)
            done = batch
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

    def leave(self, then):
        """Give up the daemon's row."""
        daemon, store = self._core.identity.current, self._core.store
        self._core.statistics.add_usage(self._attempts.usage.close())
        counts = self._core.statistics.send(is_last=True)

        def leave():
            is_added = counts is not None and store.statistics.add(daemon, counts)
            return store.daemons.leave(daemon), is_added

        def left(result):
            has_left, is_added = result.value
            self._core.statistics.answered(is_added)
            then(has_left)

        self._thread.submit(LEAVING, leave, left)

    def _recorded(self, result):
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

    def _note_locks(self, delivered):
        if delivered.waited or delivered.locked:
            self._core.caution.met(RECORDING)
        if delivered.locked and self._locked_since is None:
            self._locked_since = uptime()
            journal.results_locked(count=len(delivered.locked))
        elif self._locked_since is not None and not self._unrecorded.has_aside:
            journal.results_unlocked(seconds=uptime() - self._locked_since)
            self._locked_since = None

    def locked(self, result):
        """Prepare to repeat a call that met another session's lock and has written nothing."""
        if result.doing == RECORDING:
            self._unrecorded.give_back()
        elif result.doing == LEAVING:
            self._core.statistics.answered(False)

    def failed(self, result):
        """Put back a batch that may or may not be in the database; the next join tells."""
        if result.doing == RECORDING:
            # The batch may have taken too long: make the next ones smaller.
            self._unrecorded.give_back()
            self._unrecorded.shrink()
