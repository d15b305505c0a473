"""`status`, `daemons`, `types`, `type`."""

from dataclasses import asdict, fields
from datetime import datetime

from django.core.management.base import CommandError

from .. import commands, contracts, text
from ..exceptions import UnknownType
from ..operations.registry import registry
from ..reports import documents, health, overview, releases
from ..text import did_you_mean
from . import arguments, present
from .base import Subcommand

# ``status`` and ``daemons``: the counts of the queue, and the work of the daemons.

_COUNTS = [f.name for f in fields(overview.TypeCounts) if f.name not in ("type", "reasons")]


class Status(Subcommand):
    name = "status"
    help = "Counts of waiting, running and ended Instances of each Type, and the daemons."

    def run(self, options):
        queue = overview.overview()
        daemons = overview.daemons()
        return {
            "time": queue.time,
            **{name: queue.total(name) for name in _COUNTS},
            "oldest_due": queue.oldest_due,
            "next_due": queue.next_due,
            "types": [asdict(counts) for counts in queue.types],
            "daemons": [documents.daemon(row, queue.time) for row in daemons],
            "releases": _releases(daemons, queue.time),
            "problems": list(health.problems(daemons, queue.time)),
            "notes": list(health.notes(queue.time)),
        }

    def text(self, document):
        parts = [_summary(document)]
        if document["problems"]:
            parts.append("\n".join(f"! {present.printable(each)}" for each in document["problems"]))
        if document["notes"]:
            parts.append("\n".join(f"- {present.printable(each)}" for each in document["notes"]))
        if document["types"]:
            parts.append(_types(document["types"]))
        parts.append(daemons_table(document["daemons"], document["time"]))
        parts += releases_table(document["releases"])
        return "\n\n".join(parts)

    def check(self, document, options):
        if document["problems"]:
            raise CommandError(f"Problems: {len(document['problems'])}.")


def _summary(document):
    now = document["time"]
    waiting = f"{document['due']} due"
    if document["oldest_due"]:
        waiting += f" (the oldest for {text.duration(now - document['oldest_due'])})"
    waiting += f", {document['later']} later"
    if document["next_due"]:
        waiting += f" (the next {text.age(document['next_due'], now)})"
    claimed = ", ".join(f"{document[name]} {name}" for name in ("scheduled", "running", "paused"))
    ended = ", ".join(f"{document[name]} {name}" for name in ("finished", "failed"))
    return present.pairs(
        [
            ("time", f"{text.moment(now)} {text.zone()}"),
            ("waiting", waiting),
            ("claimed", claimed),
            ("ended", ended),
        ]
    )


def _types(types):
    rows = [
        [counts["type"], *(counts[name] for name in _COUNTS), _reasons(counts["reasons"])]
        for counts in types
    ]
    return present.table(["type", *_COUNTS, "reasons"], rows)


def _reasons(reasons):
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items())


class Daemons(Subcommand):
    name = "daemons"
    help = "The running daemons, their leases, and what each worker is doing."

    def run(self, options):
        now = overview.now()
        found = overview.daemons()
        rows = [documents.daemon(row, now) for row in found]
        return {"time": now, "daemons": rows, "releases": _releases(found, now)}

    def text(self, document):
        now = document["time"]
        parts = [daemons_table(document["daemons"], now), *releases_table(document["releases"])]
        parts.extend(_daemon(daemon, now) for daemon in document["daemons"])
        return "\n\n".join(parts)


def daemons_table(daemons, now):
    """Return a table with a line for each daemon."""
    if not daemons:
        return "No daemon is running: start one with manage.py atpd."
    rows = [
        [
            f"{daemon['host']}:{daemon['pid']}",
            daemon["condition"],
            _mode(daemon),
            _lease(daemon, now),
            len(daemon["workers"]),
            sum(_is_busy(worker) for worker in daemon["workers"]),
            sum(worker["paused"] for worker in daemon["workers"]),
            text.age(daemon["started"], now),
            text.ago(daemon["seen"], now),
        ]
        for daemon in daemons
    ]
    return present.table(
        ["daemon", "condition", "mode", "lease", "workers", "busy", "paused", "up", "seen"], rows
    )


def _releases(daemons, now):
    """Return the releases that the living daemons run, as documents."""
    return [
        asdict(each) | {"is_drained": each.is_drained} for each in releases.releases(daemons, now)
    ]


def releases_table(found):
    """Return a list with the table of releases; [] if no daemon names one and no Types differ."""
    if len(found) < 2 and not any(each["release"] or each["differs"] for each in found):
        return []
    rows = [
        [
            each["release"] or "none",
            ", ".join(each["daemons"]),
            each["held"],
            ", ".join(each["differs"]),
            "drained: it can be stopped" if each["is_drained"] else "",
        ]
        for each in found
    ]
    return [present.table(["release", "daemons", "held", "Types that differ", ""], rows)]


def _is_busy(worker):
    return worker["instance"] is not None and not worker["paused"]


def _mode(daemon):
    """Return the mode of a daemon, and the mode that it has been told to enter."""
    aim = commands.aim(daemon["mode"], daemon["request"])
    return daemon["mode"] if aim == daemon["mode"] else f"{daemon['mode']}, soon {aim.value}"


def _lease(daemon, now):
    if daemon["lock"]:
        return "file lock"
    left = daemon["lease_until"] - now
    return f"{text.duration(left)} left" if left.total_seconds() > 0 else "over"


def _daemon(daemon, now):
    facts = present.pairs(
        [
            ("daemon", f"{daemon['host']}:{daemon['pid']}, atpd {daemon['version']}"),
            ("release", daemon["release"]),
            ("uuid", daemon["uuid"]),
            ("serves", ", ".join(daemon["types"])),
            ("lock", daemon["lock"]),
            ("told to be" if daemon["request"] == "quiet" else "told to", daemon["request"]),
        ]
    )
    if not daemon["workers"]:
        return facts
    rows = [
        [
            worker["worker"],
            worker["pid"],
            worker["type"] or "-",
            worker["instance"] or "-",
            _since(worker, now),
            "paused" if worker["paused"] else "",
        ]
        for worker in daemon["workers"]
    ]
    return f"{facts}\n\n{present.table(['worker', 'pid', 'type', 'instance', 'for', ''], rows)}"


def _since(worker, now):
    """Return the age of a worker's attempt; "" if the daemon wrote no time that can be read."""
    try:
        return text.age(datetime.fromisoformat(worker["since"]), now)
    except (TypeError, ValueError):
        return ""


# ``types`` and ``type``: list the Types; show the inputs and outputs of a single one.

HEADINGS = ("type", "timeout", "restarts", "retries", "backoff", "retention", "memory", "handler")
OWNERSHIP = ("downstream", "owner", "runbook")


class Types(Subcommand):
    name = "types"
    help = "The registered Types, their parameters, and whether this process has their handlers."

    def run(self, options):
        controls = health.control_notes()
        return {
            "types": [
                document | {"controls": controls[document["identifier"]]}
                for document in documents.types()
            ]
        }

    def text(self, document):
        if not document["types"]:
            return "No Type is registered, and none is declared in a tasks.py."
        return present.table(HEADINGS, [_row(document) for document in document["types"]])


def _row(document):
    return [
        document["identifier"],
        text.duration(document["timeout"]) or "none",
        document["max_restarts"],
        document["max_retries"],
        f"{text.duration(document['backoff'])} to {text.duration(document['backoff_max'])}",
        text.duration(document["retention"]) or "for ever",
        text.size(document["max_memory"]) if document["max_memory"] else "no limit",
        f"{document['handler']}{_note(document)}",
    ]


def _note(document):
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
    notes += document["controls"]
    return f" ({'; '.join(notes)})" if notes else ""


class OneType(Subcommand):
    name = "type"
    help = "One Type: what its handler takes and returns."

    def add_arguments(self, parser):
        parser.add_argument("type", type=arguments.text, help="the Type")

    def run(self, options):
        identifier = options["type"]
        types = {document["identifier"]: document for document in documents.types()}
        if identifier not in types:
            hint = did_you_mean(identifier, types)
            raise UnknownType(f"There is no Type {identifier!r}.{hint}")
        document = types[identifier] | contracts.document_of(
            registry.get(identifier) if identifier in registry else None
        )
        return document | {"parameters": [], "notes": []} | _described(document)

    def text(self, document):
        told = [present.printable(f"{document['identifier']}  {document['handler']}")]
        told += [present.printable(f"{n}: {document[n]}") for n in OWNERSHIP if document[n]]
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
            told.append(present.table(headings, rows))
        return "\n".join([*told, *map(present.printable, document["notes"])])


def _described(document):
    identifier = document["identifier"]
    if not document["declared"]:
        return {"notes": ["This process has no handler for it, so its inputs are unknown."]}
    declared = registry.get(identifier)
    contract = contracts.schema_of(declared)
    if contract is None:
        is_missing = not contracts.is_available()
        text = contracts.NEEDED if is_missing else "It stores pickles, which have no contract."
        return {"notes": [text]}
    found = contracts.described(contract, declared.signature)
    returned = contracts.words_of(contract.outputs, contract.defs)
    hints = [
        f"{name}: any JSON, as its annotation has no schema ({reason})"
        for name, reason in contract.hints.items()
    ]
    return {
        "parameters": [vars(each) for each in found],
        "notes": [f"It returns {returned}.", *hints],
    }
