"""Explain why something does not run, who can resolve that, and when it will start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ...conf import settings
from ...exceptions import UnknownInstance
from ...models import Instance, Task, Type
from ...verbs.migrated import needs_tables
from ...verbs.types import get_type
from ...words.hints import did_you_mean
from . import gathering, sentences
from .causes.table import judged
from .estimate import estimated
from .facts import Facts
from .values import Explanation, Reason

if TYPE_CHECKING:
    from ...verbs.types import TypeLike

    Lane = tuple[TypeLike, str]

FORMS = (
    "Give the uuid of an Instance, its identifier, the identifier of a Type, or a Type and a "
    "collection."
)
# The maximum number of Instances of one identifier that a message names.
MOST_NAMED = 10


@needs_tables
def explain(
    subject: Instance | UUID | str | TypeLike | Lane, *, errors: bool = True, daemons: bool = True
) -> Explanation:
    """Return the :class:`Explanation` of an Instance, a Type or a lane.

    ``subject`` is an Instance or its uuid, its identifier if only one Type has it, a Type or
    its identifier, or a pair of a Type and a collection. Without ``errors`` errors of handlers are
    left out, without ``daemons`` the names of daemons. It takes ten queries at most, and is as
    fast with a million waiting Instances as with some thousand. An unknown uuid is explained, too.

    Raises UnknownInstance for any other subject, and for an identifier that Instances of several
    Types have (the message names them); UnknownType for a lane of an unknown Type.
    """
    facts = _facts(subject)
    return _explained(facts.redacted(errors=errors, daemons=daemons))


def why(
    instance: Instance, task: Task | None, *, errors: bool = True, daemons: bool = True
) -> tuple[str, ...]:
    """Return sentences about why an Instance does not start; an empty tuple if it does not wait.

    ``task`` is its Task, or None; for the others see :func:`explain`. The start is not estimated,
    which saves a query.
    """
    if task is None or task.daemon_id is not None:
        return ()
    facts = gathering.of_instance(instance.uuid, estimates=False)
    facts = facts.redacted(errors=errors, daemons=daemons)
    return tuple(reason.sentence for reason in _reasons(facts)) if facts.is_waiting else ()


def _explained(facts: Facts) -> Explanation:
    reasons = _reasons(facts)
    return Explanation(
        subject=_subject(facts),
        state="" if facts.instance is None else facts.instance.state,
        reasons=reasons,
        ahead=facts.queued.ahead if facts.queued is not None else None,
        starts=estimated(facts, reasons),
        looked_at=facts.now,
    )


def _reasons(facts: Facts) -> tuple[Reason, ...]:
    found = judged(facts)
    # Misfits of a Type keep back themselves, and none that is enqueued now.
    if facts.is_waiting and all(reason.code == "misfits" for reason in found):
        ready = sentences.NEW if facts.instance is None else sentences.READY
        return (Reason(code="ready", sentence=ready), *found)
    return found


def _subject(facts: Facts) -> str:
    if facts.missing:
        return facts.missing
    if facts.instance is not None:
        return str(facts.instance.uuid)
    lane = "" if facts.collection is None else f"/{facts.collection}"
    return f"{facts.identifier}{lane}"


def _facts(subject: Any) -> Facts:
    if isinstance(subject, Instance):
        return gathering.of_instance(subject.uuid)
    if isinstance(subject, UUID):
        return gathering.of_instance(subject)
    if isinstance(subject, tuple) and len(subject) == 2 and isinstance(subject[1], str):
        return gathering.of_type(get_type(str(subject[0])), _printable(subject[1]))
    if isinstance(subject, Type):
        return gathering.of_type(subject, None)
    if isinstance(subject, str):
        return _named(subject)
    if hasattr(subject, "identifier"):  # a Type as code declares it
        return gathering.of_type(get_type(subject.identifier), None)
    raise UnknownInstance(f"{subject!r} is nothing that could be explained. {FORMS}")


def _named(text: str) -> Facts:
    """Return the facts about the subject of a text: a uuid, a Type or an identifier."""
    none = None
    try:
        none = gathering.of_instance(UUID(text))
    except ValueError:
        pass
    else:
        if not none.missing:
            return none
    if not _printable(text):
        raise UnknownInstance(f"Nothing is named. {FORMS}")
    types = {row.identifier: row for row in Type.objects.using(settings.DATABASE)}
    if text in types:
        return gathering.of_type(types[text], None)
    rows = Instance.objects.using(settings.DATABASE).select_related("type")
    # The index on identifiers begins with the Type.
    of_any = rows.filter(identifier=text, type__in=types.values())
    # An identifier may look like a uuid.
    if none is not None and not of_any.exists():
        return none
    named = _only(text, of_any.order_by("pk")[: MOST_NAMED + 1], types)
    return gathering.of_instance(named.uuid)


def _printable(text: str) -> str:
    """Return the text if the database can store it. Raises UnknownInstance otherwise."""
    if not text.isprintable():
        raise UnknownInstance(f"{text!r} names nothing. {FORMS}")
    return text


def _only(text: str, found: Iterable[Instance], types: Iterable[str]) -> Instance:
    instances = list(found)
    if not instances:
        hint = did_you_mean(text, types)
        raise UnknownInstance(f"There is no Instance and no Type {text!r}.{hint} {FORMS}")
    if len(instances) > 1:
        named = ", ".join(f"{row.type.identifier} ({row.uuid})" for row in instances[:MOST_NAMED])
        raise UnknownInstance(
            f"Instances of several Types have the identifier {text!r}: {named}. Give the uuid."
        )
    return instances[0]
