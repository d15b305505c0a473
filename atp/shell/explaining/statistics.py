"""``statistics``: the counts of starts and ends, and the durations, of each Type."""

from datetime import timedelta

from ...reports import statistics
from ...rows.statistic import COUNTS, FAILED
from ...words import wording
from .. import present
from ..base import Subcommand

_ENDS = ("started", "finished", "retried", "deferred", "lost")
_AT = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class Statistics(Subcommand):
    name = "statistics"
    help = "Counts of each Type: all starts and ends; run and waiting times of an hour."

    def add_arguments(self, parser):
        parser.add_argument(
            "--recount",
            action="store_true",
            help="count the whole log too, and show the differences",
        )

    def run(self, options):
        counted = statistics.sums()
        document = {
            "owed": statistics.owed(),
            "types": [_counts(type, cell) for type, cell in counted.items()],
        }
        if options["recount"]:
            document["differences"] = list(_differences(counted, statistics.recounted()))
        return document

    def text(self, document):
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


def _counts(type, cell):
    figures = {}
    for figure in ("wait", "run"):
        found = statistics.quantiles(type, figure, tuple(_AT.values()))
        figures[figure] = None if found is None else dict(zip(_AT, found, strict=True))
    return {"type": type, **{name: cell.counts.get(name, 0) for name in COUNTS}, **figures}


def _counts_row(counts):
    reasons = [
        f"{counts[name]} {name.removeprefix('failed_').upper()}" for name in FAILED if counts[name]
    ]
    return [
        counts["type"],
        *(counts[name] for name in _ENDS),
        sum(counts[name] for name in FAILED),
        ", ".join(reasons),
        *(_times(counts[figure]) for figure in ("wait", "run")),
    ]


def _times(found):
    if found is None:
        return ""
    return ", ".join(wording.duration(timedelta(seconds=found[name])) for name in ("p50", "p95"))


def _differences(counted, told):
    for type in sorted(counted.keys() | told.keys()):
        own = [cells[type].counts if type in cells else {} for cells in (counted, told)]
        for name in COUNTS:
            numbers = [counts.get(name, 0) for counts in own]
            if numbers[0] != numbers[1]:
                yield dict(
                    zip(("type", "column", "counted", "log"), (type, name, *numbers), strict=True)
                )
