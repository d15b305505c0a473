"""Reading the workers' messages, the ends in their rings, and their slots of the page."""

from ... import messages as attempt_messages
from ...operations.registry import registry
from ...states import Event
from ...store.values import Message, Move, ProgressUpdate
from .. import journal
from ..shared import messages
from ..shared import outcome as outcomes
from ..shared.outcome import WORKERS_OWN, Kind
from ..shared.packing import unpacked_end
from ..system.processes import uptime
from .pool import LOOK_AFTER


class Reader:
    """The reader that turns the workers' reports on their attempts into Moves and Notes."""

    def __init__(self, core, attempts):
        self._core = core
        self._pool = core.pool
        self._page = core.page
        self._unrecorded = core.unrecorded
        self._downstreams = core.downstreams
        self._counters = core.counters
        self._queue = core.queue
        self._attempts = attempts
        self._times = attempts.times
        self._on_message = {
            messages.Retiring: self._on_retiring,
            messages.Ended: self._on_ended,
            messages.Look: self._on_look,
            messages.Progress: self._on_progress,
            messages.Logged: self._on_logged,
            messages.LeftOut: self._on_left_out,
            messages.Published: self._on_published,
            messages.Committed: self._on_committed,
            messages.Paused: self._on_paused,
            messages.Resuming: self._on_resuming,
            messages.Resumed: self._on_resumed,
        }

    def collect(self, link):
        """Read all messages and ends that a worker has sent so far."""
        # A handler's messages are in the channel before its end is in the ring.
        until = link.ring.written
        self._times.set()
        for message in link.channel.drain():
            self._on_message[type(message)](link, *message)
        who = self._attempts.who(link)
        for record in link.ring.read(until):
            self._ended(link, unpacked_end(record), who)

    def running(self, link):
        """Return the key of the attempt that a worker runs, or None."""
        running = self._page.read(link.slot)
        return None if running is None else running.key

    def look(self, link):
        """Note the attempt that a worker runs; kill the worker if the Task was taken away."""
        running = self._page.read(link.slot)
        if running is None:
            return
        if running.key in link.revoked:
            self._attempts.ending.kill(link, running.key, attempt_messages.task_taken_away())
        holding = link.assigned.get(running.key)
        if holding is None:
            return  # the attempt has just ended
        if holding.started is None:
            holding.started = running.started
            self._counters.started(holding, link)
        if not holding.start_known and uptime() - running.started >= LOOK_AFTER:
            self._attempts.start(holding, link, running.started)

    # The end of an attempt

    def _ended(self, link, end, who):
        """Handle the end of an attempt; an outcome of None: it finished and returned nothing."""
        instance, attempt, started, ended, _ = end
        key = instance, attempt
        holding = self._pool.ended(link, key, ended - started)
        self._queue.free()
        revoked = link.revoked.pop(key, None)
        if holding is None:
            if revoked is not None:
                self._attempts.usage.ended(revoked, ended - started - revoked.paused)
                self._unrecorded.doubt(key)
                self._record_end(revoked, link, end, who)
            return
        self._attempts.ending.forget(key)
        if holding.pause is not None:
            # The message that it has gone on may come after its end.
            self._attempts.pausing.over(holding, link, ended + self._times.clock)
        ran = ended - started - holding.paused
        self._attempts.usage.ended(holding, ran)
        move = self._record_end(holding, link, end, who)
        if move is not None:
            self._counters.ended(holding, move, ran)

    def _record_end(self, holding, link, end, who):
        """Add the Move of an attempt's end and return it; None if it was released or is gone."""
        _, _, started, ended, outcome = end
        if self._downstreams.names:
            outcome = self._downstreams.ended(holding.claimed, outcome)
        time = self._times.at_uptime(holding, ended)
        began = None
        if not holding.start_known:
            holding.began = began = self._times.at_uptime(holding, started)
        if outcome is None:
            instance, attempt = holding.key
            move = Move(Event.FINISH, instance, attempt, time, began, who, holding=holding)
            if not registry.keeps(holding.type):
                move = move._replace(kept=False)
            self._unrecorded.add(move)
            return move
        facts = {"who": who, "time": time, "started": began}
        if outcome.kind is Kind.MISFIT:
            self._core.misfits.add(holding.type, holding.claimed.instance)
        if outcome.kind is Kind.INTERRUPTED and holding.ask == Event.RELEASE:
            self._attempts.release(holding, holding.why, link, **facts)
            return None
        facts["holding"] = holding
        if holding.ask == Event.FAIL and outcome.kind in outcomes.CUT_SHORT:
            move = outcomes.cancelled(holding.why, holding.claimed, outcome, **facts)
        else:
            move = outcomes.move(outcome, holding.claimed, **facts)
        if outcome.kind in WORKERS_OWN:
            # Its last notes may come too late, and the end may be committed despite a cut.
            self._unrecorded.doubt(holding.key)
            if outcome.kind is Kind.GONE:
                self._counters.refused(move, holding)
                self._core.identity.lose()
                return None
            if outcome.kind is Kind.CONCLUDED:
                if holding.claimed.limited:
                    self._attempts.limited.recorded([move])
                return move
        self._unrecorded.add(move)
        return move

    def _on_retiring(self, link, why):
        link.is_retiring = True
        journal.worker_retired(worker=link.slot, pid=link.pid, why=why)

    def _on_ended(self, link, *end):
        self._ended(link, end, self._attempts.who(link))

    def _on_look(self, link):
        """Note that the worker is ready; :meth:`collect` reads the ring in any case."""
        if link.is_starting:
            link.is_starting = False
            # Tasks may wait for it.
            self._queue.free()

    # Messages of running attempts

    def _note(self, link, key, at, **facts):
        holding = link.assigned.get(key) or link.revoked.get(key)
        if holding is None:
            return
        if key in link.revoked:
            self._unrecorded.doubt(key)
        elif not holding.start_known:
            # This message shows that the attempt has started, a short time ago.
            running = self._page.read(link.slot)
            is_seen = running is not None and running.key == key
            started = running.started if is_seen else at - self._times.clock
            self._attempts.start(holding, link, started)
        instance, attempt = key
        facts |= {"transactional": registry.is_transactional(holding.type)}
        who = self._attempts.who(link)
        self._unrecorded.add(ProgressUpdate(instance=instance, attempt=attempt, who=who, **facts))

    def _on_progress(self, link, key, at, fraction, text):
        self._note(link, key, at, progress=fraction, progress_message=text)

    def _on_logged(self, link, key, at, level, text):
        if key in link.assigned:
            time = self._times.at(link.assigned[key], at)
            self._note(link, key, at, messages=(Message(time=time, level=level, text=text),))

    def _on_left_out(self, link, key, at, number):
        if key in link.assigned:
            self._note(link, key, at, left_out=number)

    def _on_published(self, link, key, at, file):
        self._note(link, key, at, files=(file,))

    def _on_committed(self, link, key, at):
        holding = link.assigned.get(key)
        if holding is not None:
            holding.concluded = True
            self._unrecorded.doubt(key)

    def _on_paused(self, link, key, at, number, text, is_own):
        self.look(link)
        if link.running is not None and not link.running.start_known:
            self._attempts.start(link.running, link, link.running.started)
        self._attempts.pausing.begun(link, key, at, number, text, is_own=is_own)

    def _on_resuming(self, link, key, at):
        self._attempts.pausing.ending(link, key)

    def _on_resumed(self, link, key, at):
        self._attempts.pausing.ended(link, key, at)
