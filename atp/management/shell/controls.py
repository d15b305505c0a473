"""``gate`` and ``limit``: what is shut, and how much may be done."""

from argparse import ArgumentTypeError

from django.core.management.base import CommandError

from ... import documents, queue, told, wording
from ...rates import HOLD
from . import arguments, present
from .base import Subcommand, actor

_VERBS = {"hold": queue.hold, "drop": queue.drop, "open": queue.open_gate}
# Records of the log that are shown.
_SHOWN = 20


class Gate(Subcommand):
    name = "gate"
    help = "Hold what waits, or drop it, or let it go again: of a Type, a lane, or everything."

    def add_arguments(self, parser):
        add = parser.add_argument
        add(
            "mode",
            nargs="?",
            choices=("hold", "drop", "open"),
            help="without it: list what is shut",
        )
        add("--type", type=arguments.text, help="of this Type; without it, everything")
        add("--collection", type=arguments.text, help="of this lane of the Type only")
        add("--reason", type=arguments.text, default="", help="why, for the log and the pages")
        add("--until", type=arguments.moment, help="opens by itself: a time, or a delay from now")
        add("--expected", choices=("hold", "drop", "open"), help="only if the gate is so now")
        add("--log", action="store_true", help="list who has set gates, instead")

    def run(self, options):
        place = {"type": options["type"], "collection": options["collection"]}
        mode = options["mode"]
        given = {name: options[name] for name in ("reason", "until", "expected") if options[name]}
        if options["log"]:
            if mode is not None or given:
                raise CommandError("--log takes a Type and a collection beside it, no more.")
            return _log(place, "gate")
        if mode is None:
            if given or options["type"] is not None or options["collection"] is not None:
                raise CommandError("Say what is to be done: hold, drop or open.")
            return {"gates": [documents.gate(row) for row in queue.gates()]}
        if mode == "open" and options["until"] is not None:
            raise CommandError("--until is for hold and drop.")
        gate = _VERBS[mode](**place, **given, by=actor())
        was = gate if mode == "open" else gate.was
        shut = queue.gates()
        return {
            "told": told.of_gate(mode, *place.values(), was, shut),
            "was": None if was is None else documents.gate(was),
            "gates": [documents.gate(row) for row in shut],
        }

    def text(self, document):
        if "log" in document:
            return _log_text(document)
        shown = "All gates are open."
        if document["gates"]:
            headings = ["where", "mode", "since", "until", "by", "reason"]
            shown = present.table(headings, [_gate_row(row) for row in document["gates"]])
        return _with(document, shown)


def _gate_row(document):
    return [
        where(document),
        document["mode"],
        wording.moment(document["since"]),
        wording.moment(document["until"]) if document["until"] else "",
        document["who"],
        document["reason"],
    ]


class Limit(Subcommand):
    name = "limit"
    help = "How much of a Type, or of a lane, all daemons together may do; and weights of Types."

    def add_arguments(self, parser):
        add = parser.add_argument
        add("--type", type=arguments.text, help="of this Type")
        add("--collection", type=arguments.text, help="of this lane of the Type only")
        add("--max-running", type=_running, metavar="N", help="claimed at any time; or none")
        add("--rate", type=_text, help="started in a time, as 50/s, 100/min or 5/10s; or none")
        add("--burst", type=_number, metavar="N", help="at once after a pause, of the rate")
        add("--weight", type=_weight, help="share of the Type beside others (1 unless set)")
        add("--default", action="store_true", help="leave it to the code again")
        add("--log", action="store_true", help="list who has set limits, instead")

    def run(self, options):
        place = {"type": options["type"], "collection": options["collection"]}
        given = {name: options[name] for name in ("max_running", "rate", "burst", "weight")}
        given = {name: None if v is _NONE else v for name, v in given.items() if v is not None}
        if options["log"]:
            if given or options["default"]:
                raise CommandError("--log takes a Type and a collection beside it, no more.")
            return _log(place, "limits")
        if options["type"] is None and (given or options["default"] or options["collection"]):
            raise CommandError("Of which Type? Give --type.")
        if given and options["default"]:
            raise CommandError("--default takes no limits beside it.")
        if options["default"]:
            done = {"told": told.of_unlimit(queue.unlimit(**place, by=actor()))}
        elif given:
            queue.limit(**place, **given, by=actor())
            done = {}
        elif options["collection"] is not None:
            raise CommandError("Say what is to be limited, or --default.")
        else:
            return {"of": options["type"]} | _limits(options["type"])
        return done | _limits()

    def text(self, document):
        if "log" in document:
            return _log_text(document)
        of = document.get("of")
        shown = "Nothing is limited." if of is None else f"Nothing of {of} is limited."
        if document["limits"]:
            headings = ["where", "running", "rate", "burst", "weight", "set by"]
            shown = present.table(headings, [_limit_row(row) for row in document["limits"]])
        return _with(document, shown)


def _limits(type=None):
    return {"limits": [documents.limit(row) for row in queue.limits(type)]}


_NONE = object()


def _number(given):
    return _NONE if given == "none" else arguments.positive(given)


def _running(given):
    if given.strip("0") == "" != given:
        raise ArgumentTypeError(f"{given!r} is not a whole number from 1. {HOLD}")
    return _number(given)


def _text(given):
    return _NONE if given == "none" else arguments.text(given)


def _weight(given):
    try:
        return _NONE if given == "none" else float(given)
    except ValueError:
        raise ArgumentTypeError(f"{given!r} is not a number, which a weight is") from None


def _limit_row(document):
    return [
        where(document),
        "no limit" if document["max_running"] is None else document["max_running"],
        document["rate"] or "no limit",
        document["burst"] if document["rate"] else "",
        f"{document['weight']:g}",
        document["who"] if document["is_set"] else "the code",
    ]


def where(document):
    """What a gate or a limit is of."""
    if document["type"] is None:
        return "everything"
    if document["collection"] is None:
        return document["type"]
    return f"{document['type']} / {document['collection']!r}"


def _with(document, shown):
    """What has been done, if anything, above what is set then."""
    return f"{present.printable(document['told'])}\n{shown}" if "told" in document else shown


def _log(place, about):
    records = queue.place_log(**place, about=about, limit=_SHOWN)
    return {
        "log": [
            dict(zip(("type", "collection"), record.place, strict=True))
            | {name: getattr(record, name) for name in ("time", "who", "message")}
            for record in records
        ]
    }


def _log_text(document):
    if not document["log"]:
        return "Nobody has set any."
    rows = [
        [wording.moment(row["time"]), where(row), row["who"], row["message"]]
        for row in document["log"]
    ]
    return present.table(["time", "where", "by", "what"], rows)
