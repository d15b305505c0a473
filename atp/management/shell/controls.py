"""``gate`` and ``limit``: what is shut, and how much may be done."""

from django.core.management.base import CommandError

from ... import documents, queue, wording
from . import arguments, present
from .base import Subcommand, actor

_VERBS = {"hold": queue.hold, "drop": queue.drop}


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

    def run(self, options):
        place = {"type": options["type"], "collection": options["collection"]}
        mode = options["mode"]
        if mode is None:
            if any(options[name] for name in ("type", "collection", "reason", "until")):
                raise CommandError("Say what is to be done: hold, drop or open.")
        elif mode == "open":
            if options["until"] is not None:
                raise CommandError("--until is for hold and drop.")
            queue.open_gate(**place, reason=options["reason"], by=actor())
        else:
            given = {"reason": options["reason"], "until": options["until"]}
            _VERBS[mode](**place, **given, by=actor())
        return {"gates": [documents.gate(row) for row in queue.gates()]}

    def text(self, document):
        if not document["gates"]:
            return "All gates are open."
        headings = ["where", "mode", "since", "until", "by", "reason"]
        return present.table(headings, [_gate_row(row) for row in document["gates"]])


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
        add("--max-running", type=_number, metavar="N", help="claimed at any time; or none")
        add("--rate", type=_text, help="started in a time, as 50/s, 100/m or 5/10s; or none")
        add("--burst", type=_number, metavar="N", help="at once after a pause, of the rate")
        add("--weight", type=_weight, help="share of the Type beside others (1 unless set)")
        add("--default", action="store_true", help="leave it to the code again")

    def run(self, options):
        place = {"type": options["type"], "collection": options["collection"]}
        given = {name: options[name] for name in ("max_running", "rate", "burst", "weight")}
        given = {name: None if v is _NONE else v for name, v in given.items() if v is not None}
        if options["type"] is None and (given or options["default"] or options["collection"]):
            raise CommandError("Of which Type? Give --type.")
        if given and options["default"]:
            raise CommandError("--default takes no limits beside it.")
        if options["default"]:
            queue.unlimit(**place, by=actor())
        elif given:
            queue.limit(**place, **given, by=actor())
        return {"limits": [documents.limit(row) for row in queue.limits(options["type"])]}

    def text(self, document):
        if not document["limits"]:
            return "Nothing is limited."
        headings = ["where", "running", "rate", "burst", "weight", "set by"]
        return present.table(headings, [_limit_row(row) for row in document["limits"]])


_NONE = object()


def _number(given):
    return _NONE if given == "none" else arguments.positive(given)


def _text(given):
    return _NONE if given == "none" else arguments.text(given)


def _weight(given):
    return _NONE if given == "none" else arguments.seconds(given)


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
