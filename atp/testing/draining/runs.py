"""Runs: the results of the attempts of a drain, as values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ...conf import settings
from ...models import Instance, LogRecord, Response
from ...rows.log import Kind
from ...states import Event, State

if TYPE_CHECKING:
    from ...store.values import Claimed

# The number of rows in one query: SQLite limits the length of a list.
PORTION = 500


@dataclass(frozen=True, kw_only=True)
class Run:
    """The result of one attempt.

    ``state`` is the state of the Instance right after the attempt, and ``reason`` tells why it
    is FAILED. If it is FINISHED, ``response`` is the return value as a reader gets it, and
    ``files`` describes the published files. ``log`` has the messages of the attempt, one a
    line. ``error`` is the exception of the handler. ``instance`` is the row after the drain;
    None if its Type keeps nothing, or somebody has deleted it.
    """

    type: str
    uuid: UUID
    attempt: int
    state: str
    reason: str = ""
    response: Any = None
    files: Sequence[dict[str, Any]] = ()
    log: str = ""
    error: BaseException | None = field(default=None, compare=False)
    instance: Instance | None = field(default=None, compare=False)


def runs_of(attempts: Iterable[tuple[Claimed, BaseException | None]]) -> list[Run]:
    """Return a Run for each attempt, in order; each is a claimed Task and the handler's error."""
    attempts = list(attempts)
    keys = list(dict.fromkeys(claimed.instance for claimed, _ in attempts))
    instances: dict[int, Instance] = {}
    responses: dict[int, Response] = {}
    records: dict[tuple[int, int | None], list[LogRecord]] = defaultdict(list)
    for first in range(0, len(keys), PORTION):
        some = keys[first : first + PORTION]
        rows = Instance.objects.using(settings.DATABASE).select_related("type")
        instances |= rows.in_bulk(some)
        answers = Response.objects.using(settings.DATABASE).filter(pk__in=some)
        responses |= {answer.pk: answer for answer in answers}
        log = LogRecord.objects.using(settings.DATABASE).filter(instance__in=some)
        for record in log.order_by("pk"):
            records[record.instance_id, record.attempt].append(record)  # type: ignore[index]
    return [
        _run(
            claimed,
            error,
            instances.get(claimed.instance),
            responses.get(claimed.instance),
            records[claimed.key],
        )
        for claimed, error in attempts
    ]


def _run(
    claimed: Claimed,
    error: BaseException | None,
    instance: Instance | None,
    response: Response | None,
    records: Sequence[LogRecord],
) -> Run:
    said = [record.message for record in records if record.kind == Kind.MESSAGE]
    moved = [record for record in records if record.event]
    # A redrive that came later has the number of the attempt, too.
    moved = list(takewhile(lambda record: record.event != Event.REDRIVE, moved))
    # If the Instance is not kept, neither is the record of its end.
    state = moved[-1].state if moved else str(State.FINISHED)
    is_last = instance is not None and instance.attempt == claimed.attempt
    answers = response if is_last and state == State.FINISHED else None
    if state != State.FAILED or instance is None or not is_last:
        reason = ""
    else:
        reason = str(instance.reason)
    return Run(
        type=claimed.type,
        uuid=claimed.uuid,
        attempt=claimed.attempt,
        state=str(state),
        reason=reason,
        response=answers.value if answers else None,
        files=answers.files if answers else (),
        log="\n".join(said),
        error=error,
        instance=instance,
    )
