"""Causes of the queue itself: the Tasks before it, and other obstacles to a start."""

from __future__ import annotations

from collections.abc import Iterator

from ....states import State
from ....store.values import OpenTransaction
from ....verbs.table import INSTANCE
from ....words.options import MAX_PRIORITY
from .. import helps, sentences
from ..facts import Facts
from ..values import Reason


def behind(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if other Tasks of the lane come first, or other lanes and Types take turns."""
    found = facts.queued
    if not facts.is_waiting or facts.is_blocked or not facts.is_due or found is None:
        return
    takes_turns = facts.is_busy and (found.beside or found.rivals)
    if not found.ahead and not takes_turns:
        return
    task = facts.task
    above = None if task is None else min(MAX_PRIORITY, task.priority + 1)
    yield Reason(
        code="behind",
        sentence=sentences.behind(found),
        facts={
            "ahead": found.ahead,
            "by_priority": found.above,
            "other_lanes": found.beside,
            "other_types": sorted(found.rivals),
        },
        helps=helps.verb(INSTANCE, "change", facts.instance.uuid, priority=above)
        if facts.instance is not None and found.ahead
        else None,
    )


def alone(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if attempts were lost before: it now needs a worker without other Tasks."""
    instance = facts.instance
    if instance is None or not instance.lost:
        return
    if instance.state in (State.ACCEPTED, State.SCHEDULED) and not facts.is_blocked:
        yield Reason(
            code="alone", sentence=sentences.alone(instance.lost), facts={"lost": instance.lost}
        )


def locked(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason for each transaction that has locked the Task's row, or a table."""
    if facts.is_waiting and facts.is_due and not facts.is_blocked:
        yield from (_open("locked", each, facts) for each in facts.transactions if each.locked)


def transaction(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason for each long open transaction: no daemon can claim the rows it has locked."""
    if facts.is_waiting or (facts.task is not None and facts.task.daemon_id is not None):
        found = (each for each in facts.transactions if not each.locked)
        yield from (_open("transaction", each, facts) for each in found)


def _open(code: str, found: OpenTransaction, facts: Facts) -> Reason:
    return Reason(
        code=code,
        sentence=sentences.transaction(found, facts.now),
        facts={
            "pid": found.pid,
            "application": found.application,
            "user": found.user,
            "locked": found.locked,
            "statement_since": found.statement_since,
            "waits_for_it": found.waits_for_it,
        },
        since=found.since,
        helps=helps.terminate(found.pid),
    )
