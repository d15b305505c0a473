"""The report: what was done, what came of it, and which promises were kept."""

from atp.states import Event, Reason, State

from . import health, kinds
from .feed import Fate

# So many breaches of a promise are told in full, with the Instance's log and record.
TOLD = 3
# A long record is told from its beginning and its end.
LINES = 12


def counts(evidence, fleet):
    """Return what happened, as pairs of a name and a number."""
    executions = [e for attempts in evidence.executions.values() for e in attempts.values()]
    fates = [enqueued.fate for enqueued in evidence.enqueued.values()]
    transitions = [entry for story in evidence.stories for entry in story.transitions]
    expired = [entry for entry in transitions if entry.event == Event.EXPIRE]
    facts = [fact for daemon in evidence.daemons for fact in daemon.facts]
    yield "enqueued", fates.count(Fate.COMMITTED)
    yield "enqueues whose outcome is unknown", fates.count(Fate.UNKNOWN)
    yield "enqueues rolled back", fates.count(Fate.ROLLED_BACK)
    yield "executions", len(executions)
    yield "executions that have no end", sum(execution.end is None for execution in executions)
    yield "attempts lost", len(expired)
    yield "Instances finished", sum(s.state == State.FINISHED for s in evidence.stories)
    for reason in sorted({story.reason for story in evidence.stories} - {""}):
        yield f"Instances failed, {reason}", sum(s.reason == reason for s in evidence.stories)
    hit = [s for s in evidence.stories if s.reason == Reason.STALE and not _is_its_own_doing(s)]
    yield "  of those STALE, given up because they were hit", len(hit)
    for name, number in sorted(evidence.operations.items()):
        yield f"by operators: {name}", number
    yield "late writes refused", sum(fact["fact"] == "refused" for fact in facts)
    for name in ("lease_over", "dispatcher_hung", "database_slow", "rejoined"):
        yield f"told by daemons: {name}", sum(fact["fact"] == name for fact in facts)
    back = [seconds for _, seconds in health.returns(evidence) if seconds is not None]
    yield (
        "ms until the slowest daemon was back after the database",
        round(1000 * max(back, default=0)),
    )
    yield "kills", kills(fleet)
    for name, number in sorted(fleet.counts.items()):
        yield f"  {name}", number
    yield "daemons", len(fleet.members)


def _is_its_own_doing(story):
    kind = kinds.BY_TYPE[story.type]
    return kind.overruns or kind.crashes(story.attempt)


def kills(fleet):
    return sum(number for name, number in fleet.counts.items() if name.startswith("kill_"))


def too_gentle(fleet, *, minutes, has_server):
    """Yield in which respect a run was not rough enough to show anything."""
    restarts = fleet.counts["restart_database"]
    if kills(fleet) < 3 * minutes:
        yield f"only {kills(fleet)} kills in {minutes:g} minutes"
    if has_server and restarts < minutes:
        yield f"only {restarts} restarts of the database in {minutes:g} minutes"


def written(verdicts, evidence, tell):
    """Tell each verdict, and the first breaches in full."""
    for verdict in verdicts:
        tell(f"{'kept  ' if verdict.is_kept else 'BROKEN'} {verdict.promise}")
        for breach in verdict.breaches[:TOLD]:
            tell(f"       {breach.uuid} {breach.words}")
            for line in _story_of(breach, evidence):
                tell(f"           {line}")
        if len(verdict.breaches) > TOLD:
            tell(f"       … and {len(verdict.breaches) - TOLD} more")


def _story_of(breach, evidence):
    """Yield what a human needs: the log of an Instance, its record, and what was done meanwhile."""
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
    """The lines of an execution without the ticks between its first and last."""
    first, *rest = execution.lines
    return [first, *(x for x in rest if x is execution.last or x.event not in ("tick", "child"))]
