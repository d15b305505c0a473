"""The judge checks every promise against the evidence.

A check yields a Breach for each case in which its promise was broken.
"""

from collections import defaultdict
from functools import wraps
from signal import SIGKILL

from django.db import connection

from atp import states
from atp.commands import CANCEL
from atp.models import Kind
from atp.states import TERMINAL, Actor, Event, Reason, State, is_stale

from . import kinds
from .background import WHO
from .evidence import Breach
from .feed import Fate

COUNTERS = ("attempt", "restarts", "retries", "lost")
# The log has times of several processes, and of the database; the record and the faults have one
# clock, and happen a little beside what they are compared with. In seconds.
LOG_SLACK, SLACK = 0.25, 0.5
# In seconds: a worker whose grace is over may be killed between the last line of its handler and
# the delivery of the return; whoever is asked to end has heard of it, and its grace is over
# (CANCEL_GRACE of the chaos is 1 s).
DELIVERED, HEARD_WITHIN = 0.2, 5.0
# On SQLite a process that is stopped while it writes keeps all others from writing: so long stops
# of any daemon may be why one has not heard, in seconds.
LONG_STOP = 3.0
# An attempt more may be lost before it is told from its neighbours (G5).
UNTOLD = 1
# What may cost a running attempt, whoever its worker is.
OF_DAEMON = {f"{v}_{of}" for v in ("kill", "stop") for of in ("dispatcher", "supervisor", "daemon")}
# What a daemon says when it had to kill its own workers: it could not renew its lease,
# as while the database is away for long. Its word alone is no cause: whoever locks a row, or
# writes log handlers that stand, is not to bring it there.
LEASE = ("lease_over", "dispatcher_hung")
# So long before that what made it so may have begun, in seconds: KILL_AFTER, and some more.
LATEST = 8.0
# What an unstarted attempt may be lost by: the answer to its claim did not arrive.
CONNECTION = ("database_failed", "database_slow", "lease_lost", "rejoined")
# G11 says 2 s; the rest is for a machine that has many daemons on few processors.
BACK_WITHIN = 2.0 + 2.0


def judged(evidence):
    """Return the Breaches of each promise."""
    return {promise: list(check(evidence)) for promise, check in CHECKS.items()}


def of_each_story(check):
    """Make a check of one Story, which yields words, a check of all Stories."""

    @wraps(check)
    def of_all(evidence):
        for story in evidence.stories:
            yield from (Breach(words, story.uuid) for words in check(story, evidence))

    return of_all


def overlap(spans, since, until):
    """Return True if one of the time spans overlaps with the time from ``since`` to ``until``."""
    return any(begun <= until and end >= since for begun, end in spans)


def daemon_of(entry):
    """Return the pid of the supervisor from ``who``, which looks like "host:pid worker 3"."""
    signed = entry.who.partition(" ")[0].rpartition(":")[2]
    return int(signed) if signed.isdigit() else 0


def attempts_of(story):
    """Yield the log entries of each attempt, starting with its claim."""
    attempt = []
    for entry in story.transitions:
        if entry.event == Event.CLAIM:
            attempt = [entry]
        elif attempt:
            attempt.append(entry)
            if State(entry.state) not in states.CLAIMED:
                yield attempt
                attempt = []
    if attempt:
        yield attempt


def first_of(entries, event):
    return next((entry for entry in entries if entry.event == event), None)


# What is lost, what is logged, and who may write


def lost(evidence):
    stories = {story.identifier: story for story in evidence.stories}
    for identifier, fate in evidence.enqueued.items():
        story = stories.pop(identifier, None)
        if story is None and fate is Fate.COMMITTED:
            yield Breach(f"{identifier} was committed, and is not there")
        elif story is not None and fate is Fate.ROLLED_BACK:
            yield Breach(f"{identifier} was rolled back, and is there", story.uuid)
    for story in stories.values():
        yield Breach(f"{story.identifier} is there, and nobody has enqueued it", story.uuid)
    for uuid in evidence.executions.keys() - {story.uuid for story in evidence.stories}:
        yield Breach("was executed, and is not there", uuid)
    for story in evidence.stories:
        if story.state not in TERMINAL:
            yield Breach(f"has come to no end: {story.state}", story.uuid)
        if story.has_task != (story.state not in TERMINAL):
            yield Breach(f"{story.state}, Task rows: {int(story.has_task)}", story.uuid)
    if evidence.strange_tasks:
        yield Breach(f"Task rows without an Instance: {evidence.strange_tasks}")


def overlaps(evidence):
    for uuid, attempts in evidence.executions.items():
        for attempt in attempts.values():
            starts = attempt.of("start")
            if len(starts) != 1:
                yield Breach(f"attempt {attempt.attempt} was entered {len(starts)} times", uuid)
        # By the order in the file, and by the clock: neither alone could be trusted less.
        for first, last in (
            (lambda e: e.first.place, lambda e: e.last.place),
            (lambda e: e.begun_by_time, lambda e: e.ended_by_time),
        ):
            # Each is held against the one that lasted longest of those before it.
            longest = None
            for execution in sorted(attempts.values(), key=first):
                if longest is not None and first(execution) <= last(longest):
                    by = last(longest) - first(execution)
                    told = f"attempt {execution.attempt} began before the end of {longest.attempt}"
                    yield Breach(f"{told}, by {by:.3f} (lines or s)", uuid)
                if longest is None or last(execution) > last(longest):
                    longest = execution


@of_each_story
def illegal(story, evidence):
    yield from _faults(story)
    claimed = {e.attempt: e for e in story.transitions if e.event == Event.CLAIM}
    for attempt, execution in evidence.of(story).items():
        if attempt not in claimed:
            yield f"attempt {attempt} was executed, and never claimed"
        elif execution.begun_by_time < claimed[attempt].time - LOG_SLACK:
            yield f"attempt {attempt} was executed before its claim"


def _faults(story):
    """Yield what is illegal, missing or there twice in a log, by the table of transitions."""
    state, counters = None, dict.fromkeys(COUNTERS, 0)
    for entry in story.transitions:
        row = states.transition(entry.event, state)
        if row is None:
            yield f"{entry.event} from {state}"
            return
        state = row.target
        for name in row.counts:
            counters[name] += 1
        counters |= dict.fromkeys(row.resets, 0)
        if entry.state != state:
            yield f"{entry.event} to {state} is logged as to {entry.state}"
        if entry.attempt != counters["attempt"]:
            yield f"{entry.event} of attempt {counters['attempt']} is logged as {entry.attempt}"
    if state != story.state:
        yield f"the log ends in {state}, the Instance is {story.state}"
    for name in COUNTERS:
        if getattr(story, name) != counters[name]:
            yield f"{name} is {getattr(story, name)}, by the log {counters[name]}"


@of_each_story
def untrue(story, evidence):
    """Times of the log must be in order, and must not contradict the handlers' record."""
    before = evidence.begun
    for entry in story.transitions:
        told = f"{entry.event} of attempt {entry.attempt} is dated"
        if entry.time < before - LOG_SLACK:
            yield f"{told} {before - entry.time:.3f} s before what it follows"
        before = max(before, entry.time)
        execution = evidence.of(story).get(entry.attempt)
        if execution is None:
            continue
        if entry.event == Event.START and entry.time > execution.begun_by_time + LOG_SLACK:
            yield f"{told} after its handler had begun"
        ends = entry.event in (Event.FINISH, Event.RETRY)
        if ends and entry.time < execution.ended_by_time - LOG_SLACK:
            yield f"{told} before its handler's end"


@of_each_story
def stale_results(story, evidence):
    for claim, *rest in attempts_of(story):
        for entry in rest:
            row = states.transition(entry.event, State.RUNNING) or states.transition(
                entry.event, State.SCHEDULED
            )
            may_be_another = row is None or row.actors != frozenset({Actor.HOLDER})
            if not may_be_another and daemon_of(entry) != daemon_of(claim):
                told = f"{entry.event} of attempt {entry.attempt} by {entry.who}"
                yield f"{told}, claimed by {claim.who}"
    if story.state != State.FINISHED:
        return
    execution = evidence.of(story).get(story.attempt)
    end = execution.end if execution else None
    if end is None or end.outcome != "returned":
        yield f"finished by attempt {story.attempt}, which did not return"
        return
    answer = story.answer or {}
    if (answer.get("attempt"), answer.get("nonce")) != (story.attempt, end.nonce):
        told = f"{answer.get('nonce')} of attempt {answer.get('attempt')}"
        yield f"has the response {told}, finished by {story.attempt}"


# Budgets, and the causes of losses


@of_each_story
def beyond_budget(story, evidence):
    if story.retries > story.max_retries:
        yield f"retries: {story.retries} of {story.max_retries}"
    # The last loss may be one too many: then it is given up, or cancelled.
    most = story.max_restarts + (story.reason in (Reason.STALE, Reason.CANCELLED))
    if story.restarts > most:
        yield f"restarts: {story.restarts} of {story.max_restarts}"
    expired = {e.attempt for e in story.transitions if e.event == Event.EXPIRE}
    executed = [a for a in evidence.of(story) if a in expired]
    if len(executed) > story.max_restarts + 1 + UNTOLD:
        yield f"executed in vain: {len(executed)} times"


@of_each_story
def gave_up_early(story, evidence):
    """No Instance may be given up before its budget is spent."""
    spent = {name: getattr(story, name) for name in ("restarts", "lost", "max_restarts")}
    if story.reason == Reason.STALE and not is_stale(**spent):
        yield f"STALE with {spent}"
    if story.reason == Reason.ERROR and story.retries < story.max_retries:
        yield f"ERROR after {story.retries} of {story.max_retries} retries"


def undeserved(evidence):
    """Each loss must have a cause in the schedule, so STALE requires an exhausted budget."""
    causes = Causes(evidence)
    for story in evidence.stories:
        charged = 0
        for claim, *rest in attempts_of(story):
            expiry, start = first_of(rest, Event.EXPIRE), first_of(rest, Event.START)
            if expiry is None:
                continue
            execution = evidence.of(story).get(claim.attempt)
            if causes.explains(story, claim, start, expiry, execution):
                charged += start is not None
                continue
            how = "lost while running" if start else "lost before it was seen running"
            told = f"attempt {claim.attempt} was {how}, though nothing was done to it"
            yield Breach(f"{told}: {expiry.message}", story.uuid)
        if story.reason == Reason.STALE and story.restarts > story.max_restarts >= charged:
            yield Breach(f"STALE, though it was hit only {charged} times", story.uuid)


class Causes:
    """The faults that hit each daemon, and what the daemons logged."""

    def __init__(self, evidence):
        self._hits = defaultdict(list)
        for hit in evidence.hits:
            self._hits[hit.daemon].append(hit)
        self._undelivered = {each.pid: undelivered(each, evidence) for each in evidence.daemons}
        self._outages = evidence.outages
        self._told = {daemon.pid: daemon.told(*LEASE, *CONNECTION) for daemon in evidence.daemons}

    def explains(self, story, claim, start, expiry, execution):
        """Return True if the schedule, or the kind of task, explains the loss of an attempt.

        ``start`` is None if the log has no start, ``execution`` if the record has none.
        """
        if kinds.BY_TYPE[story.type].loses(claim.attempt):
            return True
        daemon = daemon_of(claim)
        since, until = claim.time - SLACK, expiry.time + SLACK
        pids = execution.pids if execution else set()
        for hit in self._hits[daemon]:
            is_of_worker = hit.name == "kill_worker" and (not pids or hit.pid in pids)
            is_enough = hit.name in OF_DAEMON or is_of_worker
            if is_enough and overlap([(hit.since, hit.until)], since, until):
                return True
        if story.uuid in self._undelivered.get(daemon, ()):
            return True
        told = [fact for fact in self._told.get(daemon, ()) if since <= fact["time"] <= until]
        if start is None and any(fact["fact"] in CONNECTION for fact in told):
            return True
        return any(self._is_brought_about(f, daemon) for f in told if f["fact"] in LEASE)

    def _is_brought_about(self, fact, daemon):
        """Return True if the schedule explains why a daemon could not renew its lease."""
        names = {*OF_DAEMON, "cut_off"}
        hits = [(h.since, h.until) for h in self._hits[daemon] if h.name in names]
        return overlap(hits + self._outages, fact["time"] - LATEST, fact["time"])


def undelivered(daemon, evidence):
    """Return the uuids of Instances whose end a stopping daemon might not have recorded.

    Their rows were locked until the daemon gave up and said so. G10 limits how long a daemon
    tries.
    """
    if daemon.left is None or not daemon.told("undelivered"):
        return set()
    hits = (hit for hit in evidence.hits if hit.instance)
    return {hit.instance for hit in hits if hit.since <= daemon.left <= hit.until + SLACK}


def was_hit(evidence, daemon, since, until):
    """Return True if a fault hit a daemon or the database during this time."""

    def keeps_others(hit):
        is_long = hit.name.startswith("stop_") and hit.until - hit.since >= LONG_STOP
        return is_long and connection.vendor == "sqlite"

    hits = [hit for hit in evidence.hits if hit.daemon in (daemon, 0) or keeps_others(hit)]
    spans = [(hit.since, hit.until) for hit in hits] + evidence.outages
    return overlap(spans, since - SLACK, until + SLACK)


def thrown_away(evidence):
    """An attempt that has returned must not be handed back, unless a fault hit just then."""
    late = {uuid for daemon in evidence.daemons for uuid in undelivered(daemon, evidence)}
    for story in evidence.stories:
        for claim, *rest in attempts_of(story):
            execution = evidence.of(story).get(claim.attempt)
            end = execution.end if execution else None
            release = first_of(rest, Event.RELEASE)
            if end is None or release is None or end.outcome != "returned" or story.uuid in late:
                continue
            by = release.time - end.time
            if by > DELIVERED and not was_hit(evidence, daemon_of(claim), end.time, release.time):
                told = f"attempt {claim.attempt} was handed back {by:.1f} s after it had returned"
                yield Breach(told, story.uuid)


# Ends, cancels and pauses


@of_each_story
def wrong_ends(story, evidence):
    # Others look at these.
    if story.state not in TERMINAL or story.reason in (Reason.STALE, Reason.CANCELLED):
        return
    if (story.state, story.reason) not in kinds.BY_TYPE[story.type].ends:
        yield f"{story.type} ended {story.state} {story.reason}"


@of_each_story
def cancelled(story, evidence):
    """Only a requested cancel ends as CANCELLED, and after the request no attempt begins."""
    asked = evidence.cancels.get(story.uuid)
    if asked is None:
        if story.reason == Reason.CANCELLED:
            yield "is CANCELLED, and nobody has asked for it"
        return
    is_told = [entry for entry in story.log if _is_cancel(entry)]
    if asked.is_sure and not is_told:
        yield "was cancelled, and its log does not say so"
    if len(is_told) > 1:
        yield f"was cancelled {len(is_told)} times"
    after = story.log[story.log.index(is_told[0]) + 1 :] if is_told else ()
    if first_of(after, Event.CLAIM):
        yield "was claimed after it had been cancelled"
    yield from _that_went_on(evidence, story, is_told)
    ends = [entry.time for entry in story.transitions if entry.state == State.FAILED]
    if story.reason == Reason.CANCELLED and ends:
        for attempt, execution in evidence.of(story).items():
            by = execution.ended_by_time - ends[-1]
            if by > LOG_SLACK:
                yield f"attempt {attempt} went on {by:.3f} s after the end"


def _is_cancel(entry):
    """Return True if a log record requests a cancel, or cancels a waiting Task."""
    asked = entry.kind == Kind.ASK and entry.detail == CANCEL
    return entry.who == WHO and (asked or entry.event == Event.FAIL)


def _that_went_on(evidence, story, is_told):
    """Yield the attempts that went on long after the request to end."""
    asked = next((entry for entry in is_told if entry.kind == Kind.ASK), None)
    execution = None if asked is None else evidence.of(story).get(asked.attempt)
    claim = next((e for e in story.transitions if asked and e.attempt == asked.attempt), None)
    if execution is None or claim is None:
        return
    by, since = execution.ended_by_time - asked.time, asked.time - HEARD_WITHIN
    if by > HEARD_WITHIN and not was_hit(
        evidence, daemon_of(claim), since, execution.ended_by_time
    ):
        yield f"attempt {asked.attempt} went on {by:.1f} s after it had been asked to end"


@of_each_story
def at_work_while_paused(story, evidence):
    """A PAUSED Instance must do nothing until it is resumed.

    If an attempt was lost while paused, nobody knows when it went on, because its daemon might
    have been cut off. A worker that was paused while stopped went on when the stop ended.
    """
    let_go = {(hit.pid, hit.until) for hit in evidence.hits if hit.name == "stop_worker"}
    executions, pause = evidence.of(story), None
    for entry in story.transitions:
        execution = executions.get(entry.attempt)
        if pause is not None and execution is not None and entry.event == Event.RESUME:
            free = [at for pid, at in let_go if pid in execution.pids and at > pause.time]
            since, until = pause.time + LOG_SLACK, min([entry.time, *free]) - LOG_SLACK
            # A child is stopped only together with its handler.
            is_stopped = story.type in kinds.STOPPABLE
            lines = execution.lines if is_stopped else execution.of("tick")
            if any(since < line.time < until for line in lines):
                yield f"attempt {entry.attempt} was at work while paused"
        pause = entry if entry.event == Event.PAUSE else None


# Rows, limits and counts


def not_once(evidence):
    """The rows of a transactional attempt exist exactly if that attempt FINISHED."""
    rows = dict(evidence.rows)
    for story in evidence.stories:
        if story.type == kinds.ROW:
            due = [story.attempt] if story.state == State.FINISHED else []
            there = sorted(rows.pop(story.uuid, []))
            if there != due:
                yield Breach(f"{story.state}, with the rows of attempts {there}", story.uuid)
    for uuid, there in rows.items():
        yield Breach(f"nobody was to leave rows, those of attempts {there} are there", uuid)


def crowded(evidence):
    """The limit applies to executions in the handlers' record, including paused and lost ones."""
    for kind in kinds.limited():
        spans = [
            (execution.begun_by_time, execution.ended_by_time, story.uuid)
            for story in evidence.stories
            if story.type == kind.type
            for execution in evidence.of(story).values()
        ]
        for begun, _, uuid in spans:
            count = sum(since <= begun <= until for since, until, _ in spans)
            if count > kind.at_once:
                yield Breach(f"{count} of {kind.type} executed at once", uuid)


def miscounted(evidence):
    """The Statistic rows of each Type must agree with the log."""
    for type in sorted(evidence.counted.keys() | evidence.recounted.keys()):
        counted, told = (each.get(type, {}) for each in (evidence.counted, evidence.recounted))
        for name in sorted(counted.keys() | told.keys()):
            if counted.get(name, 0) != told.get(name, 0):
                numbers = f"{counted.get(name, 0)} counted, {told.get(name, 0)} in the log"
                yield Breach(f"{type} {name}: {numbers}")


# The daemons themselves


def weak_daemons(evidence):
    killed = {hit.pid for hit in evidence.hits if hit.name.startswith("kill_")}
    executions = [e for attempts in evidence.executions.values() for e in attempts.values()]
    crashed = {line.pid for execution in executions for line in execution.of("crash")}
    for daemon in evidence.daemons:
        name = f"daemon {daemon.pid}"
        if daemon.status is None:
            yield Breach(f"{name} did not end when it was told to")
        elif daemon.killed is not None:
            if daemon.status != -SIGKILL:
                told = f"had ended with status {daemon.status} when it was to be killed"
                yield Breach(f"{name} {told}")
        elif daemon.asked_to_leave is None:
            yield Breach(f"{name} ended by itself, with status {daemon.status}")
        elif daemon.status != 0 and _was_left_alone(daemon, evidence):
            yield Breach(f"{name} was told to leave, and ended with status {daemon.status}")
        hung = {fact["pid"] for fact in daemon.told("dispatcher_hung")}
        for part, explained in (("dispatcher", hung), ("worker", crashed), ("loop", crashed)):
            for fact in daemon.told(f"{part}_died"):
                if fact["pid"] not in explained | killed:
                    yield Breach(f"{name}: {fact['message']}{_before(daemon, fact)}")
        for fact in filter(_is_a_fault, daemon.facts):
            yield Breach(f"{name}: {fact['fact']}: {fact['message'][:200]}")


def _before(daemon, fact):
    """Return what a daemon has logged in the second before a fact, as the end of a message."""
    until = fact.get("time", 0.0)
    since = until - 1.0
    lines = [each for each in daemon.facts if since <= each.get("time", 0.0) <= until]
    told = [f"{each['time'] - since:.2f} {each['message'][:100]}" for each in lines[-8:-1]]
    return f" (the second before: {'; '.join(told) or 'nothing'})"


def _is_a_fault(fact):
    """Return True if a log line reports a fault of the daemon, not of a handler."""
    if fact["fact"] == "not a fact":
        # Where a handler crashes in C, its stack is dumped, which begins with other words.
        return fact["message"].startswith("Traceback")
    if fact["fact"] in ("", "unrecordable", "cannot_fork"):
        return True
    # Log handlers that raise are part of the schedule.
    return "traceback" in fact and fact["fact"] not in ("raised", "handlers_failed")


def _was_left_alone(daemon, evidence):
    """Return True if no fault hit a daemon or the database during its shutdown.

    A daemon is excluded if a locked row kept it from recording an end, or if it had not yet
    logged its start.
    """
    if not daemon.told("daemon_started") or undelivered(daemon, evidence):
        return False
    return not _is_disturbed(daemon, evidence, daemon.asked_to_leave, daemon.left, evidence.outages)


def _is_disturbed(daemon, evidence, since, until, outages):
    spans = [(hit.since, hit.until) for hit in evidence.hits if hit.daemon == daemon.pid]
    return overlap(spans + outages, since, until)


def returns(evidence):
    """Yield how long each undisturbed daemon took to come back after an outage.

    Each item is the daemon and the seconds, or None if the daemon did not come back.
    """
    for down, up in evidence.outages:
        others = [span for span in evidence.outages if span[0] != down]
        until = up + BACK_WITHIN
        for daemon in evidence.daemons:
            over = [daemon.asked_to_leave, daemon.killed]
            joined = [fact["time"] for fact in daemon.told("joined", "rejoined")]
            if (
                any(time is not None and time < until for time in over)
                or _is_disturbed(daemon, evidence, down, until, others)
                or not any(time < down for time in joined)
            ):
                continue
            back = [time for time in joined if time > down]
            yield daemon, max(0.0, min(back) - up) if back else None


def slow_returns(evidence):
    for daemon, seconds in returns(evidence):
        if seconds is None or seconds > BACK_WITHIN:
            how = "never came back" if seconds is None else f"came back after {seconds:.1f} s"
            yield Breach(f"daemon {daemon.pid} {how}, when the database was there again")


CHECKS = {
    "G1, G2: nothing is lost, and nothing is there that was not enqueued": lost,
    "G3: no two attempts of an Instance execute at once": overlaps,
    "G6: the log is legal and whole, nothing in it twice": illegal,
    "G6: the log's times are true": untrue,
    "G4: no result is taken from who no longer held the Task": stale_results,
    "G5: nobody goes beyond a budget": beyond_budget,
    "G5, G11: no attempt is lost, and no Instance STALE, unless it was hit": undeserved,
    "G6: what is cancelled ends, at once, and nothing else is CANCELLED": cancelled,
    "G7: what a transactional Type writes is there once": not_once,
    "what is PAUSED does nothing": at_work_while_paused,
    "G2, G5: nobody is given up before its budget is spent": gave_up_early,
    "G10, G11: what has returned is not thrown away": thrown_away,
    "each ends as its kind has to": wrong_ends,
    "Statistic: the log, recounted, says the same": miscounted,
    "limits: no more execute at once than their Type allows": crowded,
    "G10, G11: no daemon fails, and each is back to full strength": weak_daemons,
    "G11: each daemon is back soon after the database": slow_returns,
}
