"""``check``: whether something was forgotten or does not fit together, and mending it."""

from dataclasses import asdict

from django.core.management.base import CommandError

from ... import overview, queue, wording
from . import present
from .base import Subcommand, actor


class Check(Subcommand):
    name = "check"
    help = "Look for what should never be, and mend what is safe to mend."

    def add_arguments(self, parser):
        parser.add_argument("--dry-run", action="store_true", help="look only, mend nothing")

    def run(self, options):
        findings = queue.scan(repair=not options["dry_run"], by=actor())
        return {"time": overview.now(), "findings": [_document(each) for each in findings]}

    def text(self, document):
        if not document["findings"]:
            return "Nothing was found."
        rows = [
            [
                finding["trouble"],
                finding["type"] or finding["daemon"],
                finding["instance"],
                wording.age(finding["since"], document["time"]),
                finding["what"] + (f": {finding['done']}" if finding["done"] else ""),
            ]
            for finding in document["findings"]
        ]
        return present.table(["found", "type or daemon", "instance", "for", "what"], rows)

    def check(self, document, options):
        found = document["findings"]
        mended = sum(bool(finding["done"]) for finding in found)
        if found:
            raise CommandError(f"Found: {len(found)}, mended: {mended}.")


def _document(finding):
    return asdict(finding) | {"trouble": finding.trouble.value, "what": finding.trouble.label}
