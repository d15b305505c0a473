"""The subcommands ``status``, ``daemons``, ``types`` and ``type``."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from .. import commands, contracts, placement, text
from ..exceptions import UnknownType
from ..models import Daemon
from ..operations.registry import registry
from ..reports import documents, health, overview, releases
from ..reports.documents import Document
from ..reports.health import Severity
from ..reports.statistics import utilisation_now
from ..text import did_you_mean
from . import arguments, present
from .base import Subcommand

_COUNTS = [
    f.name for f in fields(overview.TypeCounts) if f.name not in ("type", "oldest_due", "reasons")
]
# Before the line of a problem, by its severity.
_MARKS = {Severity.FAILING: "!", Severity.WARNING: "?", Severity.NOTE: "-"}
HEADINGS = ("type", "timeout", "restarts", "retries", "backoff", "retention", "memory", "handler")
OWNERSHIP = ("downstream", "owner", "runbook")


class Status(Subcommand):
    name = "status"
    help = "Counts of waiting, running and ended Instances of each Type, and the daemons."

    def run(self, options: dict[str, Any]) -> Document:
        queue = overview.overview()
        daemons = overview.daemons()
        return {
            "time": queue.time,
            **{name: queue.total(name) for name in _COUNTS},
            "oldest_due": queue.oldest_due,
            "next_due": queue.next_due,
            "types": [asdict(counts) for counts in queue.types],
            "daemons": _daemon_documents(daemons, queue.time),
            "releases": _release_documents(daemons, queue.time),
            "problems": [health.document(each) for each in health.problems_now(queue, daemons)],
        }

    def text(self, document: Document) -> str:
        parts = [_format_summary(document)]
        if document["problems"]:
            parts.append("\n".join(map(_format_problem, document["problems"])))
        if document["types"]:
            parts.append(_types_table(document["types"]))
        parts.append(_daemons_table(document["daemons"], document["time"]))
        parts += _releases_table(document["releases"])
        return "\n\n".join(parts)

    def check(self, document: Document, options: dict[str, Any]) -> None:
        failing = [each for each in document["problems"] if each["severity"] == Severity.FAILING]
        if failing:
            raise CommandError(f"Problems: {len(failing)}.")


def _format_problem(problem: Document) -> str:
    """Return the line for a problem, with "!" before a failing one and "?" before a warning."""
    words = " ".join(filter(None, (problem["sentence"], problem["error"])))
    return f"{_MARKS[problem['severity']]} {present.printable(words)}"


def _format_summary(document: Document) -> str:
    now = document["time"]
    waiting = f"{document['due']} due"
    if document["oldest_due"]:
        waiting += f" (the oldest for {text.duration(now - document['oldest_due'])})"
    waiting += f", {document['later']} later"
    if document["next_due"]:
        waiting += f" (the next {text.due(document['next_due'], now)})"
    claimed = ", ".join(f"{document[name]} {name}" for name in ("scheduled", "running", "paused"))
    ended = ", ".join(f"{document[name]} {name}" for name in ("finished", "failed"))
    return present.pairs(
        [
            ("time", f"{text.moment(now)} {text.time_zone_name()}"),
            ("waiting", waiting),
            ("claimed", claimed),
            ("ended", ended),
        ]
    )


def _types_table(types: Sequence[Document]) -> str:
    rows = [
        [counts["type"], *(counts[name] for name in _COUNTS), _format_reasons(counts["reasons"])]
        for counts in types
    ]
    return present.table(["type", *_COUNTS, "reasons"], rows)


def _format_reasons(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items())


class Daemons(Subcommand):
    name = "daemons"
    help = "The running daemons, their leases, and what each worker is doing."

    def run(self, options: dict[str, Any]) -> Document:
        now = overview.now()
        rows = overview.daemons()
        return {
            "time": now,
            "daemons": _daemon_documents(rows, now),
            "releases": _release_documents(rows, now),
        }

    def text(self, document: Document) -> str:
        now = document["time"]
        parts = [_daemons_table(document["daemons"], now), *_releases_table(document["releases"])]
        parts.extend(_format_daemon(daemon, now) for daemon in document["daemons"])
        return "\n\n".join(parts)


def _daemon_documents(daemons: Sequence[Daemon], now: datetime) -> list[Document]:
    """Return a document for each daemon, with the utilisation of its workers."""
    busy = utilisation_now(now)
    return [documents.daemon(row, now) | {"utilisation": busy.get(row.uuid)} for row in daemons]


def _daemons_table(daemons: Sequence[Document], now: datetime) -> str:
    """Return a table, as text, with a line for each daemon."""
    if not daemons:
        return "No daemon is running: start one with manage.py atpd."
    rows = [
        [
            f"{daemon['host']}:{daemon['pid']}",
            daemon["condition"],
            _describe_mode(daemon),
            _describe_lease(daemon, now),
            len(daemon["workers"]),
            sum(_is_busy(worker) for worker in daemon["workers"]),
            sum(worker["paused"] for worker in daemon["workers"]),
            text.percent(daemon["utilisation"]),
            text.age(daemon["started"], now),
            text.ago(daemon["seen"], now),
        ]
        for daemon in daemons
    ]
    headings = ["daemon", "condition", "mode", "lease", "workers", "busy", "paused", "last minute"]
    return present.table([*headings, "up", "seen"], rows)


def _release_documents(daemons: Sequence[Daemon], now: datetime) -> list[Document]:
    """Return a document for each release of the project's code that living daemons run."""
    return [
        asdict(each) | {"is_drained": each.is_drained} for each in releases.releases(daemons, now)
    ]


def _releases_table(documents: Sequence[Document]) -> list[str]:
    """Return a list with the table of releases.

    The list is empty if no daemon names a release and no Type differs between daemons.
    """
    if len(documents) < 2 and not any(each["release"] or each["differs"] for each in documents):
        return []
    rows = [
        [
            each["release"] or "none",
            ", ".join(each["daemons"]),
            each["held"],
            ", ".join(each["differs"]),
            "drained: it can be stopped" if each["is_drained"] else "",
        ]
        for each in documents
    ]
    return [present.table(["release", "daemons", "held", "Types that differ", ""], rows)]


def _is_busy(worker: Document) -> bool:
    return worker["instance"] is not None and not worker["paused"]


def _describe_mode(daemon: Document) -> str:
    """Return a daemon's mode, and the mode to which a pending command will change it."""
    aim = commands.mode_after(daemon["mode"], daemon["request"])
    return daemon["mode"] if aim == daemon["mode"] else f"{daemon['mode']}, soon {aim.value}"


def _describe_lease(daemon: Document, now: datetime) -> str:
    if daemon["lock"]:
        return "file lock"
    left = daemon["lease_until"] - now
    return f"{text.duration(left)} left" if left.total_seconds() > 0 else "over"


def _format_daemon(daemon: Document, now: datetime) -> str:
    facts = present.pairs(
        [
            ("daemon", f"{daemon['host']}:{daemon['pid']}, atpd {daemon['version']}"),
            ("release", daemon["release"]),
            ("uuid", daemon["uuid"]),
            ("serves", ", ".join(daemon["types"])),
            ("labels", placement.described(daemon["labels"])),
            ("capacity", placement.described(daemon["capacity"])),
            ("engine", documents.describe_engine(daemon["engine"]) if daemon["engine"] else ""),
            ("lock", daemon["lock"]),
            ("told to be" if daemon["request"] == "quiet" else "told to", daemon["request"]),
        ]
    )
    if not daemon["workers"]:
        return facts
    idle = [each for each in daemon["workers"] if each["loop"] is not None and not each["type"]]
    rows = [
        [
            worker["worker"],
            worker["pid"],
            _describe_place(worker),
            worker["type"] or "-",
            worker["instance"] or "-",
            _describe_age(worker, now),
            _describe_trouble(worker),
        ]
        for worker in daemon["workers"]
        if worker not in idle
    ]
    titles = ["worker", "pid", "on", "type", "instance", "for", ""]
    table = f"{facts}\n\n{present.table(titles, rows)}"
    return f"{table}\n\nidle places in loops: {len(idle)}" if idle else table


def _describe_place(worker: Document) -> str:
    """Return where a worker's attempt runs, unless it is a process of its own."""
    return worker["host"] or ("" if worker["loop"] is None else f"loop {worker['loop']}")


def _describe_trouble(worker: Document) -> str:
    """Return that an attempt is paused, or blocks its loop, or ""."""
    if worker["blocks"] is not None:
        return f"blocks its loop for {worker['blocks']:.1f} s"
    return "paused" if worker["paused"] else ""


def _describe_age(worker: Document, now: datetime) -> str:
    """Return how long a worker's attempt has run, or "" if its start is missing or invalid."""
    try:
        return text.age(datetime.fromisoformat(worker["since"]), now)
    except (TypeError, ValueError):
        return ""


class Types(Subcommand):
    name = "types"
    help = "The registered Types, their parameters, and whether this process has their handlers."

    def run(self, options: dict[str, Any]) -> Document:
        controls = health.control_notes()
        return {
            "types": [
                document | {"controls": controls[document["identifier"]]}
                for document in documents.types()
            ]
        }

    def text(self, document: Document) -> str:
        if not document["types"]:
            return "No Type is registered, and none is declared in a tasks.py."
        return present.table(HEADINGS, [_type_row(document) for document in document["types"]])


def _type_row(document: Document) -> list[object]:
    return [
        document["identifier"],
        text.duration(document["timeout"]) or "none",
        document["max_restarts"],
        document["max_retries"],
        f"{text.duration(document['backoff'])} to {text.duration(document['backoff_max'])}",
        text.duration(document["retention"]) or "for ever",
        text.size(document["max_memory"]) if document["max_memory"] else "no limit",
        f"{document['handler']}{_describe_type(document)}",
    ]


def _describe_type(document: Document) -> str:
    """Return notes on a Type in parentheses, such as its hooks, owner, gates and limits."""
    notes = []
    if not document["declared"]:
        notes.append("not in this process")
    elif not document["registered"]:
        notes.append("not registered yet")
    if document["late_writes"]:
        notes.append(f"late writes: {document['late_writes']}")
    for on in ("on_finished", "on_failed"):
        notes += [f"{on}: {hook}" for hook in document[on]]
    notes += [f"{name}: {document[name]}" for name in OWNERSHIP if document[name]]
    for name in documents.PLACEMENT_FIELDS:
        notes += [f"{name}: {placement.described(document[name])}"] if document[name] else []
    notes += document["controls"]
    return f" ({'; '.join(notes)})" if notes else ""


class OneType(Subcommand):
    name = "type"
    help = "One Type: what its handler takes and returns."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("type", type=arguments.text, help="the Type")

    def run(self, options: dict[str, Any]) -> Document:
        identifier = options["type"]
        types = {document["identifier"]: document for document in documents.types()}
        if identifier not in types:
            hint = did_you_mean(identifier, types)
            raise UnknownType(f"There is no Type {identifier!r}.{hint}")
        document = types[identifier] | contracts.document_of(
            registry.get(identifier) if identifier in registry else None
        )
        return document | {"parameters": [], "notes": []} | _describe_contract(document)

    def text(self, document: Document) -> str:
        lines = [present.printable(f"{document['identifier']}  {document['handler']}")]
        lines += [present.printable(f"{n}: {document[n]}") for n in OWNERSHIP if document[n]]
        if document["parameters"]:
            rows = [
                [
                    each["name"],
                    each["type"],
                    "required" if each["is_required"] else each["default"] or "",
                    each["description"],
                ]
                for each in document["parameters"]
            ]
            headings = ("argument", "type", "default", "description")
            lines.append(present.table(headings, rows))
        return "\n".join([*lines, *map(present.printable, document["notes"])])


def _describe_contract(document: Document) -> Document:
    """Return a dict with the keys ``parameters`` and ``notes`` for a Type's document."""
    identifier = document["identifier"]
    if not document["declared"]:
        return {"notes": ["This process has no handler for it, so its inputs are unknown."]}
    declared = registry.get(identifier)
    contract = contracts.schema_of(declared)
    if contract is None:
        is_missing = not contracts.is_available()
        note = contracts.NEEDED if is_missing else "It stores pickles, which have no contract."
        return {"notes": [note]}
    parameters = contracts.described(contract, declared.signature)
    returned = contracts.words_of(contract.outputs, contract.defs)
    hints = [
        f"{name}: any JSON, as its annotation has no schema ({reason})"
        for name, reason in contract.hints.items()
    ]
    return {
        "parameters": [vars(each) for each in parameters],
        "notes": [f"It returns {returned}.", *hints],
    }
