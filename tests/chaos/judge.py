"""The judge checks every promise against the evidence.

A check yields a Breach for each case in which its promise was broken.
"""

from django.db import connection

from atp.commands import CANCEL
from atp.models import Kind
from atp.states import TERMINAL, Event, Reason, State, is_stale

from . import history, kinds
from .background import WHO
from .causes import SLACK, Causes, daemon_of, overlap, undelivered
from .evidence import Breach
from .feed import Fate
from .health import slow_returns, weak_daemons

# In seconds: a worker whose grace is over may be killed between the last line of its handler and
# the delivery of the return; whoever is asked to end has heard of it, and its grace is over
# (CANCEL_GRACE of the chaos is 1 s).
DELIVERED, HEARD_WITHIN = 0.2, 5.0
# On SQLite a process that is stopped while it writes keeps all others from writing: so long stops
# of any daemon may be why one has not heard, in seconds.
LONG_STOP = 3.0
# An attempt more may be lost before it is told from its neighbours (G5).
UNTOLD = 1


def judged(evidence):
    """Return the Breaches of each promise."""
    return {promise: list(check(evidence)) for promise, check in CHECKS.items()}


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
            in_order = sorted(attempts.values(), key=first)
            # Each is held against the one that lasted longest of those before it.
            longest = None
            for execution in in_order:
                if longest is not None and first(execution) <= last(longest):
                    by = last(longest) - first(execution)
                    told = f"attempt {execution.attempt} began before the end of {longest.attempt}"
                    yield Breach(f"{told}, by {by:.3f} (lines or s)", uuid)
                if longest is None or last(execution) > last(longest):
                    longest = execution


def illegal(evidence):
    for story in evidence.stories:
        yield from (Breach(fault, story.uuid) for fault in history.faults(story))
        claimed = {e.attempt: e for e in story.transitions if e.event == Event.CLAIM}
        for attempt, execution in evidence.of(story).items():
            if attempt not in claimed:
                yield Breach(f"attempt {attempt} was executed, and never claimed", story.uuid)
            elif execution.begun_by_time < claimed[attempt].time - history.SLACK:
                yield Breach(f"attempt {attempt} was executed before its claim", story.uuid)


def untrue(evidence):
    for story in evidence.stories:
        for fault in history.untrue_times(story, evidence.of(story), evidence.begun):
            yield Breach(fault, story.uuid)


def stale_results(evidence):
    for story in evidence.stories:
        yield from (Breach(words, story.uuid) for words in history.strangers(story))
        if story.state != State.FINISHED:
            continue
        execution = evidence.of(story).get(story.attempt)
        end = execution.end if execution else None
        if end is None or end.outcome != "returned":
            yield Breach(f"finished by attempt {story.attempt}, which did not return", story.uuid)
            continue
        answer = story.answer or {}
        if (answer.get("attempt"), answer.get("nonce")) != (story.attempt, end.nonce):
            told = f"{answer.get('nonce')} of attempt {answer.get('attempt')}"
            yield Breach(f"has the response {told}, finished by {story.attempt}", story.uuid)


def beyond_budget(evidence):
    for story in evidence.stories:
        if story.retries > story.max_retries:
            yield Breach(f"retries: {story.retries} of {story.max_retries}", story.uuid)
        # The last loss may be one too many: then it is given up, or cancelled.
        most = story.max_restarts + (story.reason in (Reason.STALE, Reason.CANCELLED))
        if story.restarts > most:
            yield Breach(f"restarts: {story.restarts} of {story.max_restarts}", story.uuid)
        expired = {e.attempt for e in story.transitions if e.event == Event.EXPIRE}
        executed = [a for a in evidence.of(story) if a in expired]
        if len(executed) > story.max_restarts + 1 + UNTOLD:
            yield Breach(f"executed in vain: {len(executed)} times", story.uuid)


def undeserved(evidence):
    """Each loss must have a cause in the schedule, so STALE requires an exhausted budget."""
    causes = Causes(evidence)
    for story in evidence.stories:
        charged = 0
        for claim, *rest in history.attempts(story):
            expiry = next((entry for entry in rest if entry.event == Event.EXPIRE), None)
            if expiry is None:
                continue
            start = next((entry for entry in rest if entry.event == Event.START), None)
            execution = evidence.of(story).get(claim.attempt)
            if causes.explains(story, claim, start, expiry, execution):
                charged += start is not None
                continue
            how = "lost while running" if start else "lost before it was seen running"
            told = f"attempt {claim.attempt} was {how}, though nothing was done to it"
            yield Breach(f"{told}: {expiry.message}", story.uuid)
        if story.reason == Reason.STALE and story.restarts > story.max_restarts >= charged:
            yield Breach(f"STALE, though it was hit only {charged} times", story.uuid)


def gave_up_early(evidence):
    """No Instance may be given up before its budget is spent."""
    for story in evidence.stories:
        spent = {name: getattr(story, name) for name in ("restarts", "lost", "max_restarts")}
        if story.reason == Reason.STALE and not is_stale(**spent):
            yield Breach(f"STALE with {spent}", story.uuid)
        if story.reason == Reason.ERROR and story.retries < story.max_retries:
            yield Breach(f"ERROR after {story.retries} of {story.max_retries} retries", story.uuid)


def thrown_away(evidence):
    """An attempt that has returned must not be handed back, unless a fault hit just then."""
    late = {uuid for daemon in evidence.daemons for uuid in undelivered(daemon, evidence)}
    for story in evidence.stories:
        for claim, *rest in history.attempts(story):
            execution = evidence.of(story).get(claim.attempt)
            end = execution.end if execution else None
            release = next((entry for entry in rest if entry.event == Event.RELEASE), None)
            if end is None or release is None or end.outcome != "returned" or story.uuid in late:
                continue
            if release.time - end.time > DELIVERED and not _was_hit(
                evidence, daemon_of(claim), end.time, release.time
            ):
                by = release.time - end.time
                told = f"attempt {claim.attempt} was handed back {by:.1f} s after it had returned"
                yield Breach(told, story.uuid)


def _was_hit(evidence, daemon, since, until):
    """Return True if a fault hit a daemon or the database during this time."""
    spans = [
        (hit.since, hit.until)
        for hit in evidence.hits
        if hit.daemon in (daemon, 0) or _keeps_others(hit)
    ]
    return overlap(spans + evidence.outages, since - SLACK, until + SLACK)


def _keeps_others(hit):
    is_stop = hit.name.startswith("stop_") and hit.until - hit.since >= LONG_STOP
    return is_stop and connection.vendor == "sqlite"


def wrong_ends(evidence):
    for story in evidence.stories:
        # Others look at these.
        if story.state not in TERMINAL or story.reason in (Reason.STALE, Reason.CANCELLED):
            continue
        if (story.state, story.reason) not in kinds.BY_TYPE[story.type].ends:
            yield Breach(f"{story.type} ended {story.state} {story.reason}", story.uuid)


def cancelled(evidence):
    """Only a requested cancel ends as CANCELLED, and after the request no attempt begins."""
    for story in evidence.stories:
        asked = evidence.cancels.get(story.uuid)
        if story.reason == Reason.CANCELLED and asked is None:
            yield Breach("is CANCELLED, and nobody has asked for it", story.uuid)
        if asked is None:
            continue
        is_told = [entry for entry in story.log if _is_cancel(entry)]
        if asked.is_sure and not is_told:
            yield Breach("was cancelled, and its log does not say so", story.uuid)
        if len(is_told) > 1:
            yield Breach(f"was cancelled {len(is_told)} times", story.uuid)
        after = story.log[story.log.index(is_told[0]) + 1 :] if is_told else ()
        if any(entry.event == Event.CLAIM for entry in after):
            yield Breach("was claimed after it had been cancelled", story.uuid)
        yield from _that_went_on(evidence, story, is_told)
        ends = [entry.time for entry in story.transitions if entry.state == State.FAILED]
        if story.reason != Reason.CANCELLED or not ends:
            continue
        for attempt, execution in evidence.of(story).items():
            if execution.ended_by_time > ends[-1] + history.SLACK:
                by = execution.ended_by_time - ends[-1]
                yield Breach(f"attempt {attempt} went on {by:.3f} s after the end", story.uuid)


def _that_went_on(evidence, story, is_told):
    """Yield the attempts that went on long after the request to end."""
    asked = next((entry for entry in is_told if entry.kind == Kind.ASK), None)
    execution = None if asked is None else evidence.of(story).get(asked.attempt)
    claim = next((e for e in story.transitions if asked and e.attempt == asked.attempt), None)
    if execution is None or claim is None:
        return
    went_on = execution.ended_by_time - asked.time
    daemon = daemon_of(claim)
    if went_on > HEARD_WITHIN and not _was_hit(
        evidence, daemon, asked.time - HEARD_WITHIN, execution.ended_by_time
    ):
        told = f"attempt {asked.attempt} went on {went_on:.1f} s after it had been asked to end"
        yield Breach(told, story.uuid)


def at_work_while_paused(evidence):
    """A PAUSED Instance must do nothing until it is resumed.

    If an attempt was lost while paused, nobody knows when it went on, because its daemon might
    have been cut off. A worker that was paused while stopped went on when the stop ended.
    """
    let_go = {(hit.pid, hit.until) for hit in evidence.hits if hit.name == "stop_worker"}
    for story in evidence.stories:
        executions, pause = evidence.of(story), None
        for entry in story.transitions:
            execution = executions.get(entry.attempt)
            if pause is not None and execution is not None and entry.event == Event.RESUME:
                since, until = pause.time + history.SLACK, entry.time - history.SLACK
                pids = {line.pid for line in execution.lines if line.event == "start"}
                free = [at - history.SLACK for pid, at in let_go if pid in pids and at > pause.time]
                until = min([until, *free])
                for line in execution.lines:
                    # A child is stopped only together with its handler.
                    is_work = line.event == "tick" or story.type in kinds.STOPPABLE
                    if is_work and since < line.time < until:
                        yield Breach(
                            f"attempt {entry.attempt} was at work while paused", story.uuid
                        )
                        break
            pause = entry if entry.event == Event.PAUSE else None


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


def _is_cancel(entry):
    """Return True if a log record requests a cancel, or cancels a waiting Task."""
    asked = entry.kind == Kind.ASK and entry.detail == CANCEL
    return entry.who == WHO and (asked or entry.event == Event.FAIL)


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
