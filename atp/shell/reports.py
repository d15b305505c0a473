"""The subcommands ``why``, ``check``, ``statistics`` and ``metrics``."""

from __future__ import annotations

import fnmatch
import os
import tempfile
import textwrap
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from django.core.management.base import CommandError

from .. import queue, text
from ..exceptions import UnknownInstance, UnknownType
from ..models import COUNTS, FAILURE_COLUMNS
from ..operations.registry import registry
from ..reports import documents, overview, pending, statistics
from ..reports.documents import Document
from ..reports.explaining import sentences
from ..reports.explaining.explain import explain
from ..store.counts import Cell
from ..store.facts import Finding
from ..text import did_you_mean
from . import arguments, present
from .base import Subcommand, actor, find_instance

# ``check``: find and repair inconsistencies; or find Instances that would fail after a deploy.


class Check(Subcommand):
    name = "check"
    help = (
        "Look for inconsistencies in the queue, and repair those that are safe to repair. With "
        "--pending: before a deploy, look for live Instances that do not fit this process's code."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--dry-run", action="store_true", help="look only, repair nothing")
        what.add_argument(
            "--pending",
            action="store_true",
            help="run it with the new code, before a deploy: list what would fail; repair nothing",
        )
        parser.add_argument(
            "--deep",
            action="store_true",
            help="with --pending: open all inputs that have to be opened, pickled ones too",
        )
        parser.add_argument(
            "-t",
            "--type",
            action="append",
            default=[],
            metavar="PATTERN",
            help="with --pending: only Types that match, as in 'dem.*'; may be repeated",
        )

    def run(self, options: dict[str, Any]) -> Document:
        if options["pending"]:
            return _pending_document(options["deep"], options["type"])
        if options["deep"] or options["type"]:
            raise CommandError("--deep and --type can be used only with --pending.")
        findings = queue.scan(repair=not options["dry_run"], by=actor())
        return {"time": overview.now(), "findings": [_finding_document(each) for each in findings]}

    def text(self, document: Document) -> str:
        if "looked_at" in document:
            return _format_pending(document)
        if not document["findings"]:
            return "Nothing was found."
        rows = [
            [
                finding["trouble"],
                finding["schedule"] or finding["type"] or finding["daemon"],
                finding["instance"],
                text.age(finding["since"], document["time"]),
                ": ".join(filter(None, (finding["what"], finding["why"], finding["done"]))),
            ]
            for finding in document["findings"]
        ]
        return present.table(["found", "about", "instance", "for", "what"], rows)

    def check(self, document: Document, options: dict[str, Any]) -> None:
        findings = document["findings"]
        if options["pending"]:
            failing = sum(finding["fails"] for finding in findings)
            if failing:
                raise CommandError(f"Cannot run under this code: {failing}.")
            return
        repaired = sum(bool(finding["done"]) for finding in findings)
        if findings:
            raise CommandError(f"Found: {len(findings)}, repaired: {repaired}.")


def _finding_document(finding: Finding) -> Document:
    return asdict(finding) | {"trouble": finding.trouble.value, "what": finding.trouble.label}


def _pending_document(deep: bool, patterns: Sequence[str]) -> Document:
    _check_patterns(patterns)

    def wants(identifier: str) -> bool:
        return not patterns or any(fnmatch.fnmatchcase(identifier, each) for each in patterns)

    return pending.document(pending.pending(deep=deep, wants=wants))


def _check_patterns(patterns: Sequence[str]) -> None:
    """Raise CommandError if a pattern matches neither a declared nor a registered Type."""
    names = {*registry.names(), *(each["identifier"] for each in documents.types())}
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise CommandError(f"No Type matches {pattern!r}.{did_you_mean(pattern, names)}")


def _format_pending(document: Document) -> str:
    parts = []
    if document["findings"]:
        rows = [_pending_row(finding, document["time"]) for finding in document["findings"]]
        headings = ["about", "waiting", "", "what", "instance", "enqueued"]
        parts.append(present.table(headings, rows))
    if document["differences"]:
        rows = [
            [each["type"], each["here"], each["there"], each["daemon"], each["release"]]
            for each in document["differences"]
        ]
        headings = ["type", "signature here", "there", "daemon", "release"]
        parts.append(present.table(headings, rows))
    failing = [finding for finding in document["findings"] if finding["fails"]]
    looked_at = f"Live Instances looked at: {document['looked_at']}."
    parts.append(looked_at if failing else f"{looked_at} All that waits fits this code.")
    return "\n\n".join(parts)


def _pending_row(finding: Document, now: datetime) -> list[object]:
    since = finding["since"]
    return [
        f"schedule {finding['schedule']}" if finding["schedule"] else finding["type"],
        finding["count"],
        "cannot run" if finding["fails"] else "note",
        ": ".join(filter(None, (finding["what"], finding["why"]))),
        finding["instance"],
        text.ago(since, now),
    ]


class Metrics(Subcommand):
    name = "metrics"
    help = "Metrics for Prometheus: print them, or write them to a file."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--textfile",
            metavar="PATH",
            type=Path,
            help="write them to this file, whole or not at all, for the textfile collector of "
            "node_exporter; its name ends with .prom",
        )

    def run(self, options: dict[str, Any]) -> Document:
        try:
            from ..contrib.prometheus import exposition
        except ModuleNotFoundError as error:
            raise CommandError(
                f"Metrics need the package {error.name}. Install ATP with its extra [prometheus]."
            ) from None
        path = options["textfile"]
        if path is not None and path.suffix != ".prom":
            raise CommandError(f"{path} must end with .prom, or node_exporter does not collect it.")
        metrics = exposition().decode()
        if path is None:
            return {"metrics": metrics}
        _write(path, metrics)
        return {"path": str(path), "size": len(metrics.encode())}

    def text(self, document: Document) -> str:
        if "metrics" in document:
            return document["metrics"].rstrip("\n")
        return f"{document['path']}: {document['size']} bytes"


def _write(path: Path, text: str) -> None:
    """Replace the file in one step, so that a reader gets either the old or the new content.

    Other users may be able to write in the folder. So the text is first written to a file with a
    random name, at which nobody can have put a link before. Raises CommandError if the file cannot
    be written.
    """
    new = None
    try:
        descriptor, new = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), 0o644)  # the collector is another user
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        if new is not None:
            Path(new).unlink(missing_ok=True)
        raise CommandError(f"{path} cannot be written: {error.strerror}.") from None


_ENDS = ("started", "finished", "retried", "deferred", "lost")
_FIGURES: tuple[Literal["wait", "run"], ...] = ("wait", "run")
_AT = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class Statistics(Subcommand):
    name = "statistics"
    help = "Counts of each Type: all starts and ends; run and waiting times of an hour."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--recount",
            action="store_true",
            help="count the whole log too, and show the differences",
        )

    def run(self, options: dict[str, Any]) -> Document:
        counted = statistics.sums()
        document: Document = {
            "owed": statistics.owed(),
            "types": [_counts_document(type, cell) for type, cell in counted.items()],
        }
        if options["recount"]:
            document["differences"] = list(_differences(counted, statistics.recounted()))
        return document

    def text(self, document: Document) -> str:
        parts = ["Nothing has been counted yet."]
        if document["types"]:
            headings = ("type", *_ENDS, "failed", "reasons", "waits p50, p95", "runs p50, p95")
            parts = [present.table(headings, [_counts_row(each) for each in document["types"]])]
        if document["owed"]:
            parts.append(f"LogRecords of ended daemons, still to be counted: {document['owed']}")
        if "differences" in document:
            rows = [list(each.values()) for each in document["differences"]]
            headings = ("type", "column", "counted", "in the log")
            parts.append(present.table(headings, rows) if rows else "The log has the same counts.")
        return "\n\n".join(parts)


def _counts_document(type: str, cell: Cell) -> Document:
    figures: dict[str, dict[str, float] | None] = {}
    for figure in _FIGURES:
        values = statistics.quantiles(type, figure, tuple(_AT.values()))
        figures[figure] = None if values is None else dict(zip(_AT, values, strict=True))
    return {"type": type, **{name: cell.counts.get(name, 0) for name in COUNTS}, **figures}


def _counts_row(counts: Document) -> list[object]:
    reasons = [
        f"{counts[name]} {name.removeprefix('failed_').upper()}"
        for name in FAILURE_COLUMNS
        if counts[name]
    ]
    return [
        counts["type"],
        *(counts[name] for name in _ENDS),
        sum(counts[name] for name in FAILURE_COLUMNS),
        ", ".join(reasons),
        *(_format_quantiles(counts[figure]) for figure in _FIGURES),
    ]


def _format_quantiles(seconds: Mapping[str, float] | None) -> str:
    if seconds is None:
        return ""
    return ", ".join(text.duration(timedelta(seconds=seconds[name])) for name in ("p50", "p95"))


def _differences(counted: Mapping[str, Cell], logged: Mapping[str, Cell]) -> Iterator[Document]:
    """Yield a document for each stored count that differs from the count in the log."""
    for type in sorted(counted.keys() | logged.keys()):
        stored = counted[type].counts if type in counted else {}
        in_log = logged[type].counts if type in logged else {}
        for name in COUNTS:
            ours, theirs = stored.get(name, 0), in_log.get(name, 0)
            if ours != theirs:
                yield {"type": type, "column": name, "counted": ours, "log": theirs}


# ``why``: why something does not run, who can change that, and when it starts.

# The exit status of argparse for invalid arguments.
USAGE_ERROR = 2
# The width at which lines are wrapped, in columns.
_WIDTH = 96


class Why(Subcommand):
    name = "why"
    help = "Why an Instance or a Type does not run: every cause, what ends it, the likely start."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "subject",
            type=arguments.text,
            help="the uuid of an Instance or its first digits, its identifier, or a Type",
        )
        add("--collection", type=arguments.text, help="with a Type: its lane of this collection")

    def run(self, options: dict[str, Any]) -> Document:
        try:
            return sentences.document(explain(_find_subject(options)))
        except (UnknownInstance, UnknownType) as error:
            raise CommandError(present.printable(error), returncode=USAGE_ERROR) from error

    def text(self, document: Document) -> str:
        head = [document["subject"], document["state"]]
        ahead = document["ahead"]
        if ahead:
            head.append(f"{sentences.counted(ahead)} ahead of it")
        parts = [present.printable(", ".join(filter(None, head)))]
        width = max((len(reason["code"]) for reason in document["reasons"]), default=0)
        for reason in document["reasons"]:
            parts += _format_reason(reason, width)
        if document["starts"] is not None:
            parts.append(present.printable(document["starts"]["told"]))
        return "\n".join(parts)


def _format_reason(reason: Document, width: int) -> Iterator[str]:
    """Yield a reason as lines of text; ``width`` is the width of the column for codes."""
    indent = " " * (len(present.INDENT) * 2 + width)
    code = f"{present.INDENT}{reason['code'].ljust(width)}{present.INDENT}"
    yield from textwrap.wrap(
        present.printable(reason["sentence"]),
        width=_WIDTH,
        initial_indent=code,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    if reason["helps"] is not None:
        yield present.printable(f"{indent}→ {reason['helps']['command']}")


def _find_subject(options: Mapping[str, Any]) -> str | UUID | tuple[str, str]:
    """Return what ``why`` must explain: a lane, an Instance's uuid, or the text of the argument.

    Raises CommandError if the argument is the beginning of several uuids.
    """
    subject: str = options["subject"]
    if options["collection"] is not None:
        return subject, options["collection"]
    try:
        prefix = arguments.uuid_prefix(subject)
        return subject if len(prefix.replace("-", "")) == 32 else find_instance(prefix).uuid
    except (ArgumentTypeError, UnknownInstance):
        return subject
