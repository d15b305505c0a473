"""The report: the faults, their effects, and which promises were kept."""

from collections import Counter

from atp.states import Event, Reason, State

from . import health, kinds
from .feed import Fate

# So many breaches of a promise are told in full, with the Instance's log and record.
TOLD = 3
# A long record is told from its beginning and its end.
LINES = 12


def counts(evidence, fleet, operators):
    """Yield pairs of a number and the name of what happened."""
    executions = [e for attempts in evidence.executions.values() for e in attempts.values()]
    fates = [*evidence.enqueued.values()]
    transitions = [entry for story in evidence.stories for entry in story.transitions]
    reasons = Counter(story.reason for story in evidence.stories)
    told = Counter(fact["fact"] for daemon in evidence.daemons for fact in daemon.facts)
    yield fates.count(Fate.COMMITTED), "enqueued"
    yield fates.count(Fate.UNKNOWN), "enqueues whose outcome is unknown"
    yield fates.count(Fate.ROLLED_BACK), "enqueues rolled back"
    yield len(executions), "executions"
    yield sum(execution.end is None for execution in executions), "executions that have no end"
    yield sum(entry.event == Event.EXPIRE for entry in transitions), "attempts lost"
    yield sum(s.state == State.FINISHED for s in evidence.stories), "Instances finished"
    for reason in sorted(reasons.keys() - {""}):
        yield reasons[reason], f"Instances failed, {reason}"
    hit = [s for s in evidence.stories if s.reason == Reason.STALE and not _is_its_own_doing(s)]
    yield len(hit), "  of those STALE, given up because they were hit"
    yield told["refused"], "late writes refused"
    for name in ("lease_over", "dispatcher_hung", "database_slow", "rejoined"):
        yield told[name], f"told by daemons: {name}"
    back = [seconds for _, seconds in health.returns(evidence) if seconds is not None]
    slowest = round(1000 * max(back, default=0))
    yield slowest, "ms until the slowest daemon was back after the database"
    yield from hits(fleet, operators)
    yield len(fleet.members), "daemons"


def _is_its_own_doing(story):
    kind = kinds.BY_TYPE[story.type]
    return kind.overruns or kind.crashes(story.attempt)


def hits(fleet, operators=None):
    """Yield pairs of a number and the name of a fault or of an operator's action."""
    yield fleet.kills, "kills"
    by_operators = operators.counts if operators else Counter()
    for name, number in sorted((by_operators | fleet.counts).items()):
        yield number, f"  {name}"


def too_gentle(fleet, *, minutes, has_server):
    """Yield each respect in which a run had too few faults to show anything."""
    restarts = fleet.counts["restart_database"]
    if fleet.kills < 3 * minutes:
        yield f"the run was to be rougher: only {fleet.kills} kills in {minutes:g} minutes"
    if has_server and restarts < minutes:
        yield f"the run was to be rougher: only {restarts} restarts in {minutes:g} minutes"


def written(verdicts, evidence, tell):
    """Report each promise to ``tell``, with the first breaches in full."""
    for promise, breaches in verdicts.items():
        tell(f"{'BROKEN' if breaches else 'kept  '} {promise}")
        for breach in breaches[:TOLD]:
            tell(f"       {breach.uuid} {breach.words}")
            for line in _story_of(breach, evidence):
                tell(f"           {line}")
        if len(breaches) > TOLD:
            tell(f"       … and {len(breaches) - TOLD} more")


def _story_of(breach, evidence):
    """Yield the log of an Instance, its record, and the faults meanwhile, for a human reader."""
    story = next((s for s in evidence.stories if s.uuid == breach.uuid), None)
    if story is not None:
        budgets = f"restarts {story.restarts}/{story.max_restarts}, lost {story.lost}"
        yield f"{story.type} {story.state} {story.reason} attempt {story.attempt}, {budgets}"
        yield from story.log
    executions = evidence.executions.get(breach.uuid, {}).values()
    lines = sorted((x for e in executions for x in _telling(e)), key=lambda x: x.place)
    yield from lines if len(lines) <= 2 * LINES else [*lines[:LINES], "…", *lines[-LINES:]]
    times = [line.time for line in lines] + [e.time for e in (story.log if story else ())]
    if times:
        yield from (h for h in evidence.hits if h.until >= min(times) and h.since <= max(times))


def _telling(execution):
    """Return the lines of an execution without the ticks between its first and last line."""
    first, *rest = execution.lines
    return [first, *(x for x in rest if x is execution.last or x.event not in ("tick", "child"))]
