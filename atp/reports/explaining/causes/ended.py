"""Causes that nothing resolves by itself: the Instance does not exist, or has ended."""

from __future__ import annotations

from collections.abc import Iterator

from ....states import State
from ....verbs.table import INSTANCE
from ... import failures
from .. import helps, sentences
from ..facts import Facts
from ..values import Reason


def no_such(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if no Instance has the uuid: it was removed, or has never existed."""
    if facts.missing:
        trace = facts.trace or {}
        yield Reason(
            code="no-such",
            sentence=sentences.no_such(facts.missing, facts.trace),
            facts={"subject": trace.get("subject"), "who": trace.get("who")},
            since=trace.get("time"),
        )


def ended(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the Instance has FINISHED or FAILED; a FAILED one can be redriven."""
    instance = facts.instance
    if instance is None or not instance.is_terminal:
        return
    has_failed = instance.state == State.FAILED
    error = failures.headline(facts.last["message"]) if has_failed and facts.last else ""
    yield Reason(
        code="ended",
        sentence=sentences.ended(instance, error),
        facts={"reason": instance.reason, "error": error},
        since=instance.finished,
        helps=helps.verb(INSTANCE, "redrive", instance.uuid) if has_failed else None,
    )
