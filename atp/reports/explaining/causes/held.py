"""Causes while a daemon holds the Task: requests to the daemon, its condition, the attempt."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from ....conf import settings
from ....states import State
from ....store.values import CANCEL, PAUSE, RESUME
from ....verbs.table import INSTANCE
from ....words.wording import duration
from ... import overview
from .. import helps, sentences
from ..facts import Facts
from ..values import Help, Reason

# A run is called slow only if this many others were measured.
FEWEST_RUNS = 10


def cancel_asked(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the holder was asked to cancel the Instance, and has not ended it yet."""
    if facts.task is None or facts.task.daemon_id is None or facts.task.request != CANCEL:
        return
    since = None if facts.asked is None else facts.asked["time"]
    killed = None if since is None else since + facts.cancel_grace
    yield Reason(
        code="cancel-asked",
        sentence=sentences.cancel_asked(facts.asked, killed),
        facts={"who": "" if facts.asked is None else facts.asked["who"]},
        since=since,
        until=killed,
    )


def holder_lost(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the holder's lease is over: another daemon will take the Task away."""
    holder = facts.holder
    if holder is None or holder["condition"] != overview.LOST:
        return
    others = len(facts.living)
    swept = facts.now + timedelta(seconds=settings.SWEEP_EVERY) if others else None
    yield Reason(
        code="holder-lost",
        sentence=sentences.holder_lost(holder, others),
        facts={"daemon": sentences.name(holder), "others": others},
        since=holder["lease_until"] if not holder["lock"] else holder["seen"],
        until=swept,
        helps=None if others else helps.daemon("Start a daemon: it takes away what is held"),
    )


def holder_late(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the holder has missed a renewal, and may soon be lost."""
    holder = facts.holder
    if holder is None or holder["condition"] != overview.LATE:
        return
    ends = None if holder["lock"] else holder["lease_until"]
    yield Reason(
        code="holder-late",
        sentence=sentences.holder_late(holder, ends),
        facts={"daemon": sentences.name(holder)},
        since=holder["seen"],
        until=ends,
    )


def paused(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the Instance is PAUSED."""
    if facts.instance is None or facts.instance.state != State.PAUSED:
        return
    asked, last = facts.asked or {}, facts.last or {}
    if asked.get("attempt") != facts.instance.attempt:
        asked = {}  # it was about an earlier attempt
    who = asked["who"] if asked.get("detail") == PAUSE else ""
    is_to_resume = asked.get("detail") == RESUME
    yield Reason(
        code="paused",
        sentence=sentences.paused(who),
        facts={"who": who},
        since=last.get("time"),
        helps=None if is_to_resume else helps.verb(INSTANCE, "resume", facts.instance.uuid),
    )


def running(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the Instance is RUNNING; it tells if that takes long, or is silent."""
    instance = facts.instance
    if instance is None or instance.state != State.RUNNING or _is_lost(facts):
        return
    began = instance.started or facts.now
    age = (facts.now - began).total_seconds()
    limit = instance.timeout or instance.type.timeout
    runs = facts.flow.runs if facts.flow is not None else 0
    p99 = facts.flow.run[2] if facts.flow is not None and facts.flow.run else None
    if facts.pause is not None and facts.pause["attempt"] == instance.attempt:
        # The time-out does not count pauses, and neither do the run times of others.
        p99 = limit = None
    is_slow = p99 is not None and runs >= FEWEST_RUNS and age > p99
    until = None if limit is None else began + limit
    heard = None if facts.word is None else facts.word["time"]
    silent = heard if heard is not None and heard > began else began
    told = {
        "attempt": instance.attempt,
        "progress": instance.progress,
        "p99": p99,
        "runs": runs,
        "is_slow": is_slow,
        "silent_since": silent,
    }
    yield Reason(
        code="running",
        sentence=sentences.running(told, began, until, facts.now),
        facts=told,
        since=began,
        until=until,
        helps=_end(facts, f"Run it again: most end within {duration(timedelta(seconds=p99))}")
        if is_slow and p99 is not None
        else None,
    )


def claimed(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if a daemon has claimed the Instance, which waits there for a worker."""
    instance = facts.instance
    if instance is None or instance.state != State.SCHEDULED or _is_lost(facts):
        return
    since = None if facts.last is None else facts.last["time"]
    yield Reason(
        code="claimed",
        sentence=sentences.claimed(facts.holder, alone=instance.lost > 0),
        facts={"daemon": sentences.name(facts.holder)},
        since=since,
        helps=_end(facts, "Let another daemon take it"),
    )


def _end(facts: Facts, label: str) -> Help:
    assert facts.instance is not None
    return helps.verb(INSTANCE, "release", facts.instance.uuid, label=label)


def _is_lost(facts: Facts) -> bool:
    return facts.holder is not None and facts.holder["condition"] == overview.LOST
