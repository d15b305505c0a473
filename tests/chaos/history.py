"""Compares the log of an Instance with the table of legal transitions."""

from atp import states
from atp.states import Actor, Event

from .causes import daemon_of

# The log has times of several processes, and of the database, in seconds.
SLACK = 0.25
COUNTERS = ("attempt", "restarts", "retries", "lost")


def faults(story):
    """Yield what is illegal, missing or there twice in the log of a Story."""
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


def attempts(story):
    """Yield the log entries of each attempt, starting with its claim."""
    attempt = []
    for entry in story.transitions:
        if entry.event == Event.CLAIM:
            attempt = [entry]
        elif attempt:
            attempt.append(entry)
            if states.State(entry.state) not in states.CLAIMED:
                yield attempt
                attempt = []
    if attempt:
        yield attempt


def strangers(story):
    """Yield entries for an attempt by a daemon that had not claimed the attempt."""
    for claim, *rest in attempts(story):
        for entry in rest:
            row = states.transition(entry.event, states.State.RUNNING) or states.transition(
                entry.event, states.State.SCHEDULED
            )
            may_be_another = row is None or row.actors != frozenset({Actor.HOLDER})
            if not may_be_another and daemon_of(entry) != daemon_of(claim):
                told = f"{entry.event} of attempt {entry.attempt} by {entry.who}"
                yield f"{told}, claimed by {claim.who}"


def untrue_times(story, executions, begun):
    """Yield times of the log that are out of order or contradict the handlers' record."""
    before = begun
    for entry in story.transitions:
        if entry.time < before - SLACK:
            yield (
                f"{entry.event} of attempt {entry.attempt} is dated {before - entry.time:.3f} s "
                "before what it follows"
            )
        before = max(before, entry.time)
        execution = executions.get(entry.attempt)
        if execution is None:
            continue
        if entry.event == Event.START and entry.time > execution.begun_by_time + SLACK:
            yield f"attempt {entry.attempt} is dated as started after its handler had begun"
        ends = entry.event in (Event.FINISH, Event.RETRY)
        if ends and entry.time < execution.ended_by_time - SLACK:
            yield f"{entry.event} of attempt {entry.attempt} is dated before its handler's end"
