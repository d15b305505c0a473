"""Report the releases that daemons run, and Instances whose inputs no daemon accepts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Count

from .. import commands, text
from ..commands import Mode
from ..conf import settings
from ..models import Daemon, Instance, LogRecord, Task, read_signature
from ..states import Event, events
from ..store.common.incompatible import misfits_of, takers
from ..text import as_timedelta
from . import documents, overview
from .documents import Document

# Instances whose inputs fit no daemon: how many there are, and why one of them waits.

# At most this many Instances of a Type are counted.
MOST = 1000
_ENDS = events(lambda row: row.ends) | {Event.REDRIVE}


def describe_refused_inputs(
    daemons: Iterable[Daemon], time: datetime, type: str | None = None
) -> dict[str, str]:
    """Return sentences about Instances whose inputs no living daemon accepts, by Type.

    An Instance counts if, for each handler signature of the daemons that serve its Type, one of
    these daemons has refused the Instance. With the identifier of a ``type``, only Instances of
    this Type count.
    """
    alive = living_daemons(daemons, time)
    types = {type for daemon in alive for type in daemon["misfits"]}
    return {
        identifier: sentence
        for identifier in sorted(types if type is None else types & {type})
        if (sentence := _describe_refused(identifier, alive))
    }


def _describe_refused(identifier: str, alive: list[Document]) -> str:
    """Return a sentence about the Instances of a Type whose inputs no daemon accepts, or "".

    ``alive`` are documents of the living daemons.
    """
    serving = [daemon for daemon in alive if identifier in daemon["types"]]
    claiming = [daemon for daemon in serving if claims(daemon)]
    count = _count_waiting(_refused_by_all(identifier, serving))
    most = text.duration(as_timedelta(settings.MISFIT_FOR))
    which = "no living daemon accepts"
    advice = (
        "Start a daemon whose handler takes the inputs, or adapt them. An Instance that nobody "
        f"accepts is FAILED after {most}."
    )
    if not count and claiming != serving:
        count = _count_waiting(_refused_by_all(identifier, claiming))
        which = "only quiet daemons might accept"
        advice = "Resume one of these daemons, or start another."
    if not count:
        return ""
    number = f"{MOST:,} or more" if count >= MOST else f"{count:,}"
    instances = "Instance" if count == 1 else "Instances"
    has = "has" if count == 1 else "have"
    return f"{number} {instances} of {identifier} {has} inputs that {which}. {advice}"


def _refused_by_all(identifier: str, daemons: list[Document]) -> set[int]:
    """Return the keys of the Instances of a Type that were refused for every handler signature.

    Only the signatures of these ``daemons`` count.
    """
    refused: Mapping[str, set[int]] = defaultdict(set)
    for daemon in daemons:
        # A daemon without a signature for the Type counts as one that refuses nothing.
        signature = daemon["signatures"].get(identifier, "")
        refused[signature].update(daemon["misfits"].get(identifier, ()))
    return set.intersection(*refused.values()) if refused else set()


def _count_waiting(keys: set[int]) -> int:
    """Return how many of these Instances wait; the others have ended or are claimed."""
    if not keys:
        return 0
    newest = sorted(keys)[-MOST:]
    return Task.objects.using(settings.DATABASE).waiting().filter(pk__in=newest).count()


def why_incompatible(
    instance: Instance, daemons: Iterable[Daemon], time: datetime
) -> tuple[str, bool]:
    """Return a sentence that explains why an Instance with incompatible inputs waits.

    The sentence is "" if the inputs of the Instance have not been refused. The second value is True
    if another daemon that claims Tasks might accept the inputs.
    """
    records = LogRecord.objects.using(settings.DATABASE).filter(instance=instance.pk)
    last = records.filter(kind__in=_ENDS).order_by("-pk").first()
    if last is None or read_signature(last.detail) is None:
        return "", False
    found = misfits_of(records)
    refused = {signature for _, signature in found}
    alive = [row for row in daemons if overview.condition(row, time) != overview.LOST]
    message = f"{last.message[:1].upper()}{last.message[1:]}."
    others, _ = takers(alive, instance.type.identifier, refused)
    if others:
        claiming = [
            row for row in alive if commands.mode_after(row.mode, row.request) is Mode.RUNNING
        ]
        if takers(claiming, instance.type.identifier, refused)[0]:
            return f"{message} Another daemon that is alive may take it.", True
        return f"{message} Only quiet daemons might accept it.", False
    until = min((at for at, _ in found), default=last.time) + as_timedelta(settings.MISFIT_FOR)
    at = f"{text.moment(until)} {text.time_zone_name()}"
    end = f"No living daemon accepts it. It is FAILED at {at} if none does until then."
    return f"{message} {end}", False


# The releases of the living daemons, the Tasks that they hold, and the Types that differ.


@dataclass(frozen=True, kw_only=True)
class Release:
    """A release, and the daemons that run it.

    ``release`` is "" for daemons that report no release. ``daemons`` contains names such as
    "host:pid". ``held`` is the number of Tasks that these daemons hold. ``differs`` lists the Types
    whose handler has a different signature in another living daemon. ``claims`` is True if at least
    one of the daemons claims Tasks, and False if all are quiet or stopping.
    """

    release: str
    daemons: tuple[str, ...]
    held: int
    differs: tuple[str, ...]
    claims: bool

    @property
    def is_drained(self) -> bool:
        """True if the daemons of this release can be stopped without handing back a Task."""
        return not self.held and not self.claims


def living_daemons(daemons: Iterable[Daemon], time: datetime) -> list[Document]:
    """Return the daemons with a valid lease, as documents with their ``misfits``."""
    return [each for each in daemon_documents(daemons, time) if each["condition"] != overview.LOST]


def daemon_documents(daemons: Iterable[Daemon], time: datetime) -> list[Document]:
    """Return all these daemons, including lost ones, as documents with their ``misfits``."""
    return [documents.daemon(row, time) | {"misfits": _refused_keys(row)} for row in daemons]


def daemon_name(daemon: Document) -> str:
    """Return the name of a daemon as "host:pid", with its release if it has one."""
    release = f" (release {daemon['release']})" if daemon["release"] else ""
    return f"{daemon['host']}:{daemon['pid']}{release}"


def signatures(alive: Iterable[Document]) -> dict[str, set[str]]:
    """Return the set of handler signatures that these daemons have for each Type, by identifier."""
    found = defaultdict(set)
    for daemon in alive:
        for type, signature in daemon["signatures"].items():
            found[type].add(signature)
    return found


def claims(daemon: Document) -> bool:
    """Return True if a daemon claims Tasks, or will do so after its pending command."""
    return commands.mode_after(daemon["mode"], daemon["request"]) is Mode.RUNNING


def releases(daemons: Iterable[Daemon], time: datetime) -> list[Release]:
    """Return the releases that the living daemons run, sorted by name."""
    alive = living_daemons(daemons, time)
    differing = {type for type, found in signatures(alive).items() if len(found) > 1}
    held = _count_held([daemon["uuid"] for daemon in alive])
    groups = defaultdict(list)
    for daemon in alive:
        groups[daemon["release"]].append(daemon)
    return [
        Release(
            release=release,
            daemons=tuple(f"{each['host']}:{each['pid']}" for each in members),
            held=sum(held.get(each["uuid"], 0) for each in members),
            differs=tuple(sorted(differing & {type for each in members for type in each["types"]})),
            claims=any(map(claims, members)),
        )
        for release, members in sorted(groups.items())
    ]


def _refused_keys(row: Daemon) -> dict[str, list[int]]:
    """Return the keys of the Instances whose inputs a daemon has recently refused, by Type."""
    by_type = row.misfits if isinstance(row.misfits, dict) else {}
    return {
        type: [key for key in keys if isinstance(key, int)]
        for type, keys in by_type.items()
        if isinstance(keys, list)
    }


def _count_held(uuids: list[UUID]) -> dict[UUID, int]:
    tasks = Task.objects.using(settings.DATABASE).filter(daemon__uuid__in=uuids)
    return dict(tasks.order_by().values_list("daemon__uuid").annotate(Count("pk")))
