"""Reading and counting what the workers say."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ... import messages, states
from ...conf import settings
from ...operations.registry import registry
from ...states import Event, Reason
from ...store.common.incompatible import is_misfit
from ...store.counts import COUNTED, Counts, UsagePeriod
from ...store.facts import Lost
from ...store.protocol import Store
from ...store.values import Attempt, Message, Move, ProgressUpdate
from .. import log, outcomes, protocol
from ..descendants import in_use
from ..outcomes import WORKERS_OWN, Kind, Outcome
from ..processes import uptime
from ..protocol import Key, unpacked_end
from ..shared_memory import Page, Running
from .downstreams import Downstreams
from .pool import LOOK_AFTER, Pool, WorkerLink

if TYPE_CHECKING:
    from .attempts import Attempts
    from .core import Core
    from .lease import Identity

# Counters of finished and failed attempts, and the log lines of each.

_LOSING = states.events(lambda transition: transition.loses)


class Counters:
    """The counters since the start and since the last summary, and the log lines of attempts."""

    def __init__(self) -> None:
        self._since = uptime()
        self._lately = {"finished": 0, "failed": 0}
        self._in_all = dict(self._lately)
        # Whether an Instance has become a dead letter since dead letters were last counted.
        self.has_failures = False
        self.look_at_log()

    def look_at_log(self) -> None:
        """Find out whether the log tells of starts and finished attempts; not for each anew."""
        self._tells_of_started = log.tells("started")
        self._tells_of_finished = log.tells("finished")

    def _count(self, name: str, by: int = 1) -> None:
        self._lately[name] += by
        self._in_all[name] += by

    def started(self, attempt: Attempt, link: WorkerLink) -> None:
        if self._tells_of_started:
            log.started(attempt=attempt.number, worker=link.slot, **_names(attempt))

    def ended(self, attempt: Attempt, move: Move, seconds: float) -> None:
        """Count and log the Move that follows from a handler's end, after ``seconds``."""
        if move.event is Event.FINISH:
            self.finished(attempt, seconds)
            return
        why = move.message.rstrip().rpartition("\n")[2]
        if is_misfit(move):
            log.misfit(why=why, **_names(attempt))
        elif move.event == Event.FAIL:
            self._count("failed")
            self.has_failures = True
            reason: Any = move.reason
            log.failed(reason=reason.value, why=why, **_names(attempt))
        elif move.event in _LOSING:
            self.expired(attempt, why)
        else:
            delay: Any = move.delay
            # A handler that defers itself has planned that.
            is_planned = move.event == Event.DEFER and move.level < logging.WARNING
            tell = log.deferred if is_planned else log.retried
            tell(why=f"{why} (in {delay.total_seconds():.1f} s)", **_names(attempt))

    def finished(self, attempt: Attempt, seconds: float = 0.0) -> None:
        """Count and log a handler that finished after ``seconds``."""
        self._lately["finished"] += 1
        self._in_all["finished"] += 1
        if self._tells_of_finished:
            log.finished(seconds=seconds, **_names(attempt))

    def expired(self, attempt: Attempt, why: str) -> None:
        """Count and log an attempt that was lost in this daemon."""
        stale = states.is_stale(
            restarts=attempt.restarts + 1,
            lost=attempt.lost + 1,
            max_restarts=attempt.parameters.max_restarts,
        )
        lost = Lost(type=attempt.type, uuid=attempt.uuid, attempt=attempt.number, stale=stale)
        self.lost([lost], why)

    def lost_worker(self, attempt: Attempt, move: Move) -> None:
        """Count and log the Move of an attempt whose worker died."""
        if move.event == Event.EXPIRE:
            self.expired(attempt, move.message)
        elif move.event == Event.FAIL:
            self.ended(attempt, move, 0.0)

    def lost(self, attempts: Iterable[Lost], why: str) -> None:
        """Count and log attempts that were taken away; a ``stale`` one's Instance has failed."""
        for each in attempts:
            log.expired(attempt=each.attempt, why=why, type=each.type, instance=each.uuid)
            if each.stale:
                self._count("failed")
                self.has_failures = True
                message = "attempts were lost more often than allowed"
                log.failed(
                    reason=Reason.STALE.value, why=message, type=each.type, instance=each.uuid
                )

    def missed(self, count: int) -> None:
        """Count and log Instances that were not started before their ``start_before``."""
        self._count("failed", count)
        log.missed(count=count)

    @staticmethod
    def released(attempt: Attempt, why: str) -> None:
        log.released(attempt=attempt.number, why=why, **_names(attempt))

    @staticmethod
    def refused(entry: Move | ProgressUpdate, attempt: Attempt | None) -> None:
        """Log that an entry was refused, because this daemon no longer holds the Task."""
        names = _names(attempt) if attempt else {"type": "", "instance": entry.instance}
        log.refused(event=getattr(entry, "event", "note"), attempt=entry.attempt, **names)

    def summarize(self, seconds: float) -> None:
        """Log the counts since the last summary, unless they are all zero."""
        if any(self._lately.values()):
            log.summary(seconds=seconds, **self._lately)
            self._lately = dict.fromkeys(self._lately, 0)

    def tell_stopped(self) -> None:
        """Log that the daemon has stopped, and its counts since the start."""
        log.daemon_stopped(seconds=uptime() - self._since, **self._in_all)


def _names(attempt: Attempt) -> dict[str, Any]:
    return {"type": attempt.type, "instance": attempt.uuid}


# Misfits: Instances whose inputs did not fit this daemon's handlers lately.

# The most Instances that are remembered, and the time until they are forgotten, in seconds.
MOST, FORGET_AFTER = 1000, 3600.0
# After a misfit this daemon leaves the Type to other daemons for this long, in seconds. It knows
# first when the Instance is due again, and would claim it before the others. If it gets the same
# Instance again, it leaves the Type for POLL_EVERY longer: by then the others have looked.
LEAVE_FOR = 0.3


class Misfits:
    """The keys of misfit Instances, with the identifiers of their Types, for the daemon's row.

    If ``leaves`` is true, the Type is left to other daemons for a moment after each misfit.
    """

    def __init__(self, *, leaves: bool = True) -> None:
        self._types: dict[int, tuple[str, float]] = {}
        self._leaves = leaves
        # The time until which each Type is left to other daemons, on the uptime clock.
        self._left: dict[str, float] = {}

    def add(self, type: str, instance: int) -> None:
        """Add an Instance whose inputs did not fit; if there are too many, drop the oldest."""
        now = uptime()
        is_first = self._types.pop(instance, None) is None
        self._types[instance] = type, now
        if self._leaves:
            until = now + LEAVE_FOR + (0.0 if is_first else settings.POLL_EVERY)
            self._left[type] = max(until, self._left.get(type, until))
        if len(self._types) > MOST:
            del self._types[next(iter(self._types))]

    def claimable(self, types: tuple[str, ...]) -> tuple[str, ...]:
        """Return the given Types without those that are left to other daemons now."""
        if not self._left:
            return types
        now = uptime()
        self._left = {type: until for type, until in self._left.items() if until > now}
        return tuple(type for type in types if type not in self._left)

    def by_type(self) -> dict[str, list[int]]:
        """Return a dict of lists: the keys of misfit Instances by the identifier of their Type."""
        limit = uptime() - FORGET_AFTER
        found: defaultdict[str, list[int]] = defaultdict(list)
        for instance, (type, at) in list(self._types.items()):
            if at < limit:
                del self._types[instance]
            else:
                found[type].append(instance)
        return dict(found)


# Reading the workers' messages, the ends in their rings, and their slots of the page.

# The values of an end, as :func:`.messages.unpacked_end` returns them.
_End = tuple[int, int, float, float, Outcome | None]


class Reader:
    """The reader that turns the workers' reports on their attempts into Moves and Notes."""

    def __init__(self, core: "Core", attempts: "Attempts") -> None:
        self._core = core
        self._pool: Pool = core.pool
        self._page: Page = core.page
        self._unrecorded = core.unrecorded
        self._downstreams: Downstreams = core.downstreams
        self._counters: Counters = core.counters
        self._queue = core.queue
        self._attempts = attempts
        self._times = attempts.times
        # The messages that were read last.
        self._drained: list[Any] = []
        self._on_message: dict[type[Any], Callable[..., None]] = {
            protocol.Retiring: self._on_retiring,
            protocol.Ended: self._on_ended,
            protocol.Look: self._on_look,
            protocol.RunsOn: self._on_runs_on,
            protocol.Progress: self._on_progress,
            protocol.Logged: self._on_logged,
            protocol.LeftOut: self._on_left_out,
            protocol.Published: self._on_published,
            protocol.Committed: self._on_committed,
            protocol.Paused: self._on_paused,
            protocol.Resuming: self._on_resuming,
            protocol.Resumed: self._on_resumed,
        }

    def collect(self, link: WorkerLink) -> None:
        """Read all messages and ends that a worker has sent so far."""
        self.collect_ends({link: link.ring.written}, {link})

    def collect_ends(self, until: Mapping[WorkerLink, int], told: Container[WorkerLink]) -> None:
        """Read the ends of workers ``until`` these counts of bytes in their rings.

        The messages of those that have ``told`` something are read first. Look for these after the
        counts: a handler's messages are in the channel before its end is in the ring.
        """
        self._times.set()
        self._counters.look_at_log()
        for link, count in until.items():
            if link in told:
                self._drained = list(link.channel.drain())
                for message in self._drained:
                    self._on_message[type(message)](link, *message)
            who, records = self._attempts.who(link), link.ring.read(count)
            for record in records:
                self._ended(link, unpacked_end(record), who)
            if records:
                self._queue.free(loops=link.loop is not None)

    def running(self, link: WorkerLink) -> Key | None:
        """Return the key of the attempt that a worker runs, or None."""
        running = self._page.read(link.slot)
        return None if running is None else running.key

    def look(self, link: WorkerLink) -> None:
        """Note the attempt that a worker runs; kill the worker if the Task was taken away."""
        running = self._page.read(link.slot)
        if running is None:
            return
        if running.key in link.revoked:
            self._attempts.ending.kill(link, running.key, messages.task_taken_away())
        self.saw(link, running)

    def saw(self, link: WorkerLink, running: Running) -> None:
        """Note the start of the attempt that a worker runs, or ran when it died."""
        attempt = link.assigned.get(running.key)
        if attempt is None:
            return  # the attempt has just ended
        if attempt.started is None:
            attempt.started = running.started
            self._counters.started(attempt, link)
        if not attempt.start_known and uptime() - running.started >= LOOK_AFTER:
            self._attempts.start(attempt, link, running.started)

    # The end of an attempt

    def _ended(self, link: WorkerLink, end: _End, who: str) -> None:
        """Handle the end of an attempt; an outcome of None: it finished and returned nothing."""
        instance, number, started, ended, _ = end
        key = instance, number
        attempt = self._pool.ended(link, key, ended - started)
        if link.loop is not None:
            link.loop.ended(started, ended)
        revoked = link.revoked.pop(key, None) if link.revoked else None
        if attempt is None:
            if revoked is not None:
                self._attempts.usage.ended(revoked, ended - started - revoked.paused)
                self._unrecorded.doubt(key)
                self._record_end(revoked, link, end, who)
            return
        self._attempts.ending.forget(key)
        if attempt.pause is not None:
            # The message that it has gone on may come after its end.
            self._attempts.pausing.over(attempt, link, ended + self._times.clock)
        ran = ended - started - attempt.paused
        self._attempts.usage.ended(attempt, ran)
        move = self._record_end(attempt, link, end, who)
        if move is not None:
            self._counters.ended(attempt, move, ran)

    def _record_end(self, attempt: Attempt, link: WorkerLink, end: _End, who: str) -> Move | None:
        """Add the Move of an attempt's end and return it; None if it was released or is gone."""
        _, _, started, ended, outcome = end
        if self._downstreams.names:
            outcome = self._downstreams.ended(attempt, outcome)
        time = self._times.at_uptime(attempt, ended)
        began = None
        if not attempt.start_known:
            attempt.began = began = self._times.at_uptime(attempt, started)
        if outcome is None:
            instance, number = attempt.key
            move = Move(Event.FINISH, instance, number, time, began, who, of=attempt)
            if not registry.keeps(attempt.type):
                move = move._replace(kept=False)
            self._unrecorded.add(move)
            return move
        facts: dict[str, Any] = {"who": who, "time": time, "started": began}
        if outcome.kind is Kind.MISFIT:
            self._core.misfits.add(attempt.type, attempt.instance)
        if outcome.kind is Kind.INTERRUPTED and attempt.ask == Event.RELEASE:
            self._attempts.release(attempt, attempt.why, link, **facts)
            return None
        facts["of"] = attempt
        if attempt.ask == Event.FAIL and outcome.kind in outcomes.CUT_SHORT:
            move = outcomes.cancelled(attempt.why, attempt, outcome, **facts)
        else:
            move = outcomes.move(outcome, attempt, **facts)
        if outcome.kind in WORKERS_OWN:
            # Its last notes may come too late, and the end may be committed despite a cut.
            self._unrecorded.doubt(attempt.key)
            if outcome.kind is Kind.GONE:
                self._counters.refused(move, attempt)
                self._core.identity.lose()
                return None
            if outcome.kind is Kind.CONCLUDED:
                if attempt.limited:
                    self._attempts.limited.recorded([move])
                return move
        self._unrecorded.add(move)
        return move

    def _on_retiring(self, link: WorkerLink, why: str) -> None:
        link.is_retiring = True
        if link.loop is None:
            log.worker_retired(worker=link.slot, pid=link.pid, why=why)
        elif not link.loop.is_retiring:
            link.loop.is_retiring = True
            log.loop_retired(loop=link.loop.number, pid=link.pid, why=why)

    def _on_ended(self, link: WorkerLink, *end: Any) -> None:
        self._ended(link, end, self._attempts.who(link))
        self._queue.free(loops=link.loop is not None)

    def _on_look(self, link: WorkerLink) -> None:
        """Note that the worker is ready; :meth:`collect` reads the ring in any case."""
        if link.is_starting:
            link.is_starting = False
            # Tasks may wait for it.
            self._queue.free(loops=link.loop is not None)

    def _on_runs_on(self, link: WorkerLink, host: str) -> None:
        link.host = host

    # Messages of running attempts

    def _note(self, link: WorkerLink, key: Key, at: float, **facts: Any) -> None:
        attempt = link.assigned.get(key) or link.revoked.get(key)
        if attempt is None:
            return
        if key in link.revoked:
            self._unrecorded.doubt(key)
        elif not attempt.start_known:
            # This message shows that the attempt has started.
            started = self._started(link, attempt) or at - self._times.clock
            self._attempts.start(attempt, link, started)
        instance, number = key
        facts |= {"transactional": registry.is_transactional(attempt.type)}
        who = self._attempts.who(link)
        self._unrecorded.add(ProgressUpdate(instance=instance, attempt=number, who=who, **facts))

    def _started(self, link: WorkerLink, attempt: Attempt) -> float | None:
        """Return when an attempt has started, None if nothing tells."""
        running = self._page.read(link.slot)
        if running is not None and running.key == attempt.key:
            return running.started
        if attempt.started is not None:
            return attempt.started
        # It has ended, and its end is behind its messages.
        ends = [end for end in self._drained if isinstance(end, protocol.Ended)]
        ends += [protocol.Ended(*unpacked_end(record)) for record in link.ring.unread()]
        return next((end.started for end in ends if end[:2] == attempt.key), None)

    def _on_progress(
        self, link: WorkerLink, key: Key, at: float, fraction: float | None, text: str
    ) -> None:
        self._note(link, key, at, progress=fraction, progress_message=text)

    def _on_logged(self, link: WorkerLink, key: Key, at: float, level: int, text: str) -> None:
        if key in link.assigned:
            time = self._times.at(link.assigned[key], at)
            self._note(link, key, at, messages=(Message(time=time, level=level, text=text),))

    def _on_left_out(self, link: WorkerLink, key: Key, at: float, number: int) -> None:
        if key in link.assigned:
            self._note(link, key, at, left_out=number)

    def _on_published(self, link: WorkerLink, key: Key, at: float, file: dict[str, Any]) -> None:
        self._note(link, key, at, files=(file,))

    def _on_committed(self, link: WorkerLink, key: Key, at: float) -> None:
        attempt = link.assigned.get(key)
        if attempt is not None:
            attempt.concluded = True
            self._unrecorded.doubt(key)

    def _on_paused(
        self, link: WorkerLink, key: Key, at: float, number: int, text: str, is_own: bool
    ) -> None:
        self.look(link)
        if link.running is not None and not link.running.start_known:
            self._attempts.start(link.running, link, link.running.started)
        self._attempts.pausing.begun(link, key, at, number, text, is_own=is_own)

    def _on_resuming(self, link: WorkerLink, key: Key, at: float) -> None:
        self._attempts.pausing.ending(link, key)

    def _on_resumed(self, link: WorkerLink, key: Key, at: float) -> None:
        self._attempts.pausing.ended(link, key, at)


# The counts of the changes that this daemon has recorded, and the usage of its workers.
#
# Both wait here until they are added to Statistic and Usage.

# The counts are added once in this many seconds at most, since each time is a transaction. That
# also writes the position in the log up to which all is counted. There is something to add at least
# once a minute: the usage.
SEND_EVERY = 1.0


class Statistics:
    """The counts in memory; only the event loop uses them, except for :meth:`add`.

    If counts are lost here, because the daemon ends or takes another identity, other daemons
    count those records from the log. The usage is kept when the daemon takes another identity.
    """

    def __init__(self) -> None:
        self._counts = Counts()
        self._sent: Counts | None = None
        # Whether the database has added what was sent. The thread that adds it sets this: the call
        # that adds it may fail afterwards.
        self._is_added = False
        self._position, self._sent_at = 0, 0.0

    def restart(self, position: int) -> None:
        """Begin anew under another identity; others count the log records up to ``position``."""
        usage = self._counts.usage
        if self._sent is not None and not self._is_added:
            usage = [*self._sent.usage, *usage]
        self._counts, self._sent = Counts(), None
        self._counts.usage = usage
        self._position = position

    def add_usage(self, period: UsagePeriod) -> None:
        """Keep a UsagePeriod, to be added with the counts."""
        self._counts.usage.append(period)

    def recorded(
        self, batch: Iterable[Move | ProgressUpdate], refused: Collection[Move | ProgressUpdate]
    ) -> None:
        """Count a batch that was recorded, except for its ``refused`` entries."""
        known = dict(getattr(refused, "known", ()))
        # Any: a Move of an attempt has its time.
        counts: Any = self._counts
        runs: list[Any] = []
        for entry in batch:
            if not isinstance(entry, Move) or entry.of is None:
                continue
            if refused and entry in refused:
                continue
            if known and known.get(_key(entry), self._position + 1) <= self._position:
                continue  # the entry was recorded under an earlier identity
            attempt = entry.of
            type = attempt.type
            if entry.event is Event.FINISH and entry.started is attempt.began is not None:
                runs.append((type, entry.started, entry.time, _waited(attempt)))
                continue
            if entry.event == Event.START:
                counts.add(type, Event.START, entry.time, waited=_waited(attempt))
                continue
            if entry.started is not None:
                counts.add(type, Event.START, entry.started, waited=_waited(attempt))
            if entry.event in COUNTED and not is_misfit(entry):
                reason = str(entry.reason)
                counts.add(type, entry.event, entry.time, reason=reason, began=attempt.began)
        counts.add_runs(runs)

    def send(self, *, is_last: bool = False) -> Counts | None:
        """Return the counts to be added to the database now; None if they may wait."""
        is_due = self._counts and uptime() - self._sent_at >= SEND_EVERY
        if not (is_last or is_due):
            return None
        self._sent, self._counts, self._sent_at = self._counts, Counts(), uptime()
        self._is_added = False
        return self._sent

    def add(self, store: Store, daemon: UUID, counts: Counts | None) -> bool:
        """Add the counts that were sent to the database, on a thread that uses it."""
        if counts is not None:
            self._is_added = store.statistics.add(daemon, counts)
        return self._is_added

    def answered(self) -> None:
        """Forget the counts that were sent if the database has added them; else send them again."""
        if self._sent is not None and not self._is_added:
            self._counts.merge(self._sent)
        self._sent = None


def _waited(attempt: Any) -> float:
    return attempt.waited + (attempt.began - attempt.time).total_seconds()


def _key(move: Move) -> tuple[int, int | None, str]:
    return move.instance, move.attempt, str(move.event)


class UsageMeter:
    """Measures what the worker processes of this daemon do, from one period to the next.

    The attempts in loops are counted, but their time is not: mostly they wait. ``workers`` is the
    most processes at work. A paused attempt does not count as work. Only the
    event loop uses the meter.
    """

    def __init__(self, pool: Pool, identity: "Identity", workers: int) -> None:
        self._pool = pool
        self._identity = identity
        self._workers = workers
        self._begin()

    def _begin(self) -> None:
        self._since = uptime()
        # In seconds, attempts and bytes.
        self._busy, self._ended, self._memory = 0.0, 0, 0

    def ended(self, attempt: Attempt, seconds: float) -> None:
        """Count an attempt that has ended, and had run for so many seconds without its pauses."""
        if attempt.type not in self._pool.concurrency:
            self._busy += seconds - attempt.counted
        self._ended += 1

    def weigh(self) -> None:
        """Measure the memory of the workers."""
        memory = sum(in_use(pid) for pid in {link.pid for link in self._pool.links.values()})
        self._memory = max(self._memory, memory)

    def is_over(self) -> bool:
        """Tell whether the minute is over in which the period began."""
        return self._minute(uptime()) > self._minute(self._since)

    def close(self) -> UsagePeriod:
        """End the period, and return it as a UsagePeriod; the next one begins now."""
        self.weigh()
        now = uptime()
        for link in self._pool.processes.links.values():
            attempt = link.running
            if attempt is not None:
                ran = attempt.run_time(now)
                self._busy += ran - attempt.counted
                attempt.counted = ran
        period = UsagePeriod(
            start=self._minute(self._since),
            name=self._identity.name,
            capacity_us=round(1e6 * self._workers * (now - self._since)),
            busy_us=max(0, round(1e6 * self._busy)),
            ended=self._ended,
            memory=self._memory,
        )
        self._begin()
        return period

    def _minute(self, at: float) -> datetime:
        """Return the minute, on the database's clock, of a time of the uptime clock."""
        moment = self._identity.time(time.time() - uptime() + at)
        return moment.replace(second=0, microsecond=0)
