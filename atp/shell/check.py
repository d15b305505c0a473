"""``check``: find and mend inconsistencies; or find Instances that a deploy would fail."""

import fnmatch
from dataclasses import asdict

from django.core.management.base import CommandError

from .. import queue
from ..reports import documents, overview
from ..reports.deploys import pending
from ..verbs.registry import registry
from ..words import wording
from ..words.hints import did_you_mean
from . import present
from .base import Subcommand, actor


class Check(Subcommand):
    name = "check"
    help = (
        "Look for inconsistencies in the queue, and mend those that are safe to mend. With "
        "--pending: before a deploy, look for live Instances that do not fit this process's code."
    )

    def add_arguments(self, parser):
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--dry-run", action="store_true", help="look only, mend nothing")
        what.add_argument(
            "--pending",
            action="store_true",
            help="run it with the new code, before a deploy: list what would fail; mend nothing",
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

    def run(self, options):
        if options["pending"]:
            return self._pending(options["deep"], options["type"])
        if options["deep"] or options["type"]:
            raise CommandError("--deep and --type go with --pending.")
        findings = queue.scan(repair=not options["dry_run"], by=actor())
        return {"time": overview.now(), "findings": [_document(each) for each in findings]}

    def _pending(self, deep, patterns):
        _check_patterns(patterns)

        def wants(identifier):
            return not patterns or any(fnmatch.fnmatchcase(identifier, each) for each in patterns)

        return pending.document(pending.pending(deep=deep, wants=wants))

    def text(self, document):
        if "looked_at" in document:
            return _pending_text(document)
        if not document["findings"]:
            return "Nothing was found."
        rows = [
            [
                finding["trouble"],
                finding["schedule"] or finding["type"] or finding["daemon"],
                finding["instance"],
                wording.age(finding["since"], document["time"]),
                ": ".join(filter(None, (finding["what"], finding["why"], finding["done"]))),
            ]
            for finding in document["findings"]
        ]
        return present.table(["found", "about", "instance", "for", "what"], rows)

    def check(self, document, options):
        found = document["findings"]
        if options["pending"]:
            failing = sum(finding["fails"] for finding in found)
            if failing:
                raise CommandError(f"Would not run under this code: {failing}.")
            return
        mended = sum(bool(finding["done"]) for finding in found)
        if found:
            raise CommandError(f"Found: {len(found)}, mended: {mended}.")


def _document(finding):
    return asdict(finding) | {"trouble": finding.trouble.value, "what": finding.trouble.label}


def _check_patterns(patterns):
    """Raise CommandError for a pattern that matches no Type, declared or registered."""
    names = {*registry.names(), *(each["identifier"] for each in documents.types())}
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise CommandError(f"No Type matches {pattern!r}.{did_you_mean(pattern, names)}")


def _pending_text(document):
    parts = []
    if document["findings"]:
        rows = [_row(finding, document["time"]) for finding in document["findings"]]
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
    looked = f"Live Instances looked at: {document['looked_at']}."
    parts.append(looked if failing else f"{looked} All that waits fits this code.")
    return "\n\n".join(parts)


def _row(finding, now):
    since = finding["since"]
    return [
        f"schedule {finding['schedule']}" if finding["schedule"] else finding["type"],
        finding["count"],
        "cannot run" if finding["fails"] else "note",
        ": ".join(filter(None, (finding["what"], finding["why"]))),
        finding["instance"],
        wording.ago(since, now),
    ]
