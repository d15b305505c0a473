"""Instances whose inputs fit no daemon: their number, and the reason why one of them waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

from ...conf import settings
from ...models import Daemon, Instance, LogRecord, Task
from ...rows.log import signature_in
from ...states import Event, events
from ...store.misfits import misfits_of, takers
from ...words import orders, wording
from ...words.hints import seconds
from ...words.orders import Mode
from .. import overview
from ..documents import Document
from . import releases

# The maximum number of Instances of a Type that are counted.
MOST = 1000
_ENDS = events(lambda row: row.ends) | {Event.REDRIVE}


def problems(daemons: Iterable[Daemon], time: datetime, type: str | None = None) -> tuple[str, ...]:
    """Return sentences about Instances whose inputs no living daemon accepts, by the daemons' rows.

    With the identifier of a ``type``, only about its Instances. An Instance counts once a daemon of
    each signature that serves its Type has refused it.
    """
    alive = releases.living(daemons, time)
    types = {type for daemon in alive for type in daemon["misfits"]}
    return tuple(
        told
        for identifier in sorted(types if type is None else types & {type})
        if (told := _told(identifier, [each for each in alive if identifier in each["types"]]))
    )


def _told(identifier: str, serving: list[Document]) -> str:
    """Return a sentence about the Instances of a Type whose inputs fit none of these daemons."""
    claiming = [daemon for daemon in serving if releases.claims(daemon)]
    count = _waiting(_refused(identifier, serving))
    most = wording.duration(seconds(settings.MISFIT_FOR))
    which = "no daemon that is alive"
    advice = (
        f"Start one whose handler takes the inputs, or adapt them: after {most} they are FAILED."
    )
    if not count and claiming != serving:
        count = _waiting(_refused(identifier, claiming))
        which, advice = "no daemon but quiet ones", "Let these claim again, or start another."
    if not count:
        return ""
    number = f"{MOST:,} or more" if count >= MOST else f"{count:,}"
    return f"{number} of {identifier} {'fits' if count == 1 else 'fit'} {which}. {advice}"


def _refused(identifier: str, daemons: list[Document]) -> set[int]:
    """Return the keys of the Instances that were refused for each signature of these daemons."""
    refused: Mapping[str, set[int]] = defaultdict(set)
    for daemon in daemons:
        # A daemon that tells no signature for the Type counts as one that refuses nothing.
        signature = daemon["signatures"].get(identifier, "")
        refused[signature].update(daemon["misfits"].get(identifier, ()))
    return set.intersection(*refused.values()) if refused else set()


def _waiting(keys: set[int]) -> int:
    """Return how many of these Instances still wait; the others have ended or are claimed."""
    if not keys:
        return 0
    some = sorted(keys)[-MOST:]
    return Task.objects.using(settings.DATABASE).waiting().filter(pk__in=some).count()


def why(instance: Instance, daemons: Iterable[Daemon], time: datetime) -> tuple[str, bool]:
    """Return a sentence if an Instance waits because its inputs did not fit, otherwise "".

    And whether another daemon that claims may take it.
    """
    records = LogRecord.objects.using(settings.DATABASE).filter(instance=instance.pk)
    last = records.filter(kind__in=_ENDS).order_by("-pk").first()
    if last is None or signature_in(last.detail) is None:
        return "", False
    found = misfits_of(records)
    refused = {signature for _, signature in found}
    alive = [row for row in daemons if overview.condition(row, time) != overview.LOST]
    message = f"{last.message[:1].upper()}{last.message[1:]}."
    others, _ = takers(alive, instance.type.identifier, refused)
    if others:
        claiming = [row for row in alive if orders.aim(row.mode, row.request) is Mode.RUNNING]
        if takers(claiming, instance.type.identifier, refused)[0]:
            return f"{message} Another daemon that is alive may take it.", True
        return f"{message} It fits no daemon but quiet ones.", False
    until = min((at for at, _ in found), default=last.time) + seconds(settings.MISFIT_FOR)
    at = f"{wording.moment(until)} {wording.zone()}"
    told = f"{message} It fits no daemon that is alive, and is FAILED at {at} if none comes."
    return told, False
