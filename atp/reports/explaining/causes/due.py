"""Causes of time and order: nodes or Instances that it waits for, its due time, its misfit."""

from __future__ import annotations

from collections.abc import Iterator

from ....states import Event
from ....verbs.table import INSTANCE
from ... import failures
from .. import helps, sentences
from ..facts import Facts
from ..values import Reason


def blocked(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if a Task waits for nodes of its graph, or in the line of its schedule."""
    if not facts.is_waiting or not facts.is_blocked or facts.task is None:
        return
    is_line = bool(facts.upstream) and facts.upstream[0]["graph"] is None
    yield Reason(
        code="in-line" if is_line else "blocked",
        sentence=sentences.blocked(facts.upstream, facts.task.waits or 0, is_line=is_line),
        facts={
            "waits": facts.task.waits,
            "upstream": [
                {name: each[name] for name in ("name", "uuid", "state")} for each in facts.upstream
            ],
        },
    )


def not_due(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if a Task is not due yet: as enqueued, by a retry's delay, or deferred."""
    if not facts.is_waiting or facts.is_blocked or facts.is_due:
        return
    task, instance, last = facts.task, facts.instance, facts.last
    assert task is not None
    assert instance is not None
    event = "" if last is None else last["kind"]
    helped = helps.verb(INSTANCE, "run-now", instance.uuid)
    if event == Event.RETRY:
        most = instance.max_retries
        most = instance.type.max_retries if most is None else most
        error = "" if last is None else failures.headline(last["message"])
        yield Reason(
            code="retry",
            sentence=sentences.retry(instance.retries, most, error, task.due_at, facts.now),
            facts={"retry": instance.retries, "of": most, "error": error},
            since=None if last is None else last["time"],
            until=task.due_at,
            helps=helped,
        )
    elif event == Event.DEFER and last is not None:
        yield Reason(
            code="misfit" if facts.misfit else "deferred",
            sentence=facts.misfit or sentences.deferred(task.due_at, facts.now),
            facts={"message": failures.headline(last["message"])},
            since=last["time"],
            until=None if facts.misfit and not facts.is_fit_elsewhere else task.due_at,
            helps=helps.daemon("Start a daemon whose handler takes its inputs")
            if facts.misfit
            else helped,
        )
    else:
        yield Reason(
            code="not-due",
            sentence=f"It is not due before {sentences.time(task.due_at)}.",
            until=task.due_at,
            helps=helped,
        )


def misfits(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if Instances of a Type fit no daemon; it is none for a new one to wait."""
    if facts.instance is None and facts.misfit:
        yield Reason(
            code="misfits",
            sentence=facts.misfit,
            helps=helps.daemon("Start a daemon whose handler takes their inputs"),
        )


def misfit(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if a Task is due, but its inputs do not fit the handler of some daemon."""
    if facts.task is not None and facts.is_waiting and facts.is_due and facts.misfit:
        yield Reason(
            code="misfit",
            sentence=facts.misfit,
            since=None if facts.last is None else facts.last["time"],
            helps=helps.daemon("Start a daemon whose handler takes its inputs"),
        )
