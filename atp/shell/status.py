"""``status`` and ``daemons``: the counts of the queue, and the work of the daemons."""

from dataclasses import asdict, fields
from datetime import datetime

from django.core.management.base import CommandError

from ..reports import documents, health, overview
from ..reports.deploys import releases
from ..reports.explaining import notes
from ..words import orders, wording
from . import present
from .base import Subcommand

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
            "notes": list(notes.notes(queue.time)),
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
        waiting += f" (the oldest for {wording.duration(now - document['oldest_due'])})"
    waiting += f", {document['later']} later"
    if document["next_due"]:
        waiting += f" (the next {wording.age(document['next_due'], now)})"
    claimed = ", ".join(f"{document[name]} {name}" for name in ("scheduled", "running", "paused"))
    ended = ", ".join(f"{document[name]} {name}" for name in ("finished", "failed"))
    return present.pairs(
        [
            ("time", f"{wording.moment(now)} {wording.zone()}"),
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
            wording.age(daemon["started"], now),
            wording.ago(daemon["seen"], now),
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
    aim = orders.aim(daemon["mode"], daemon["request"])
    return daemon["mode"] if aim == daemon["mode"] else f"{daemon['mode']}, soon {aim.value}"


def _lease(daemon, now):
    if daemon["lock"]:
        return "file lock"
    left = daemon["lease_until"] - now
    return f"{wording.duration(left)} left" if left.total_seconds() > 0 else "over"


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
        return wording.age(datetime.fromisoformat(worker["since"]), now)
    except (TypeError, ValueError):
        return ""
