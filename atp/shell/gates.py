"""``gates``, ``limits``, ``downstreams`` list them; ``gate``, ``limit``, ``downstream`` set one."""

from django.core.management.base import CommandError

from .. import queue, text
from ..downstreams import operations as downstreams
from ..operations.table import DOWNSTREAM, GATE, SCOPE, VERBS, Level
from ..reports import documents
from . import arguments, present
from .base import Subcommand, actor
from .operations import add_parameters, add_scope, add_word, given

_LIMIT, _UNLIMIT = (VERBS[SCOPE][name] for name in ("limit", "unlimit"))
# The most log records that are shown.
_SHOWN = 20


def _verbs(of):
    """Return the verbs of the table that set gates or limits, by name; ``of`` says which."""
    return {name: verb for name, verb in VERBS[SCOPE].items() if verb.of == of}


def _parameters(verbs):
    """Return the parameters of some verbs, each once."""
    return {p.name: p for verb in verbs.values() for p in verb.parameters}.values()


class Gate(Subcommand):
    name = "gate"
    help = "Hold or drop waiting Instances, or let them go: of a Type, a lane, or everything."

    def add_arguments(self, parser):
        verbs = _verbs(GATE)
        parser.add_argument(
            "mode", nargs="?", choices=[*verbs], help="without a mode: list the shut gates"
        )
        add_scope(parser, frozenset(Level))
        add_parameters(parser, _parameters(verbs))
        parser.add_argument("--log", action="store_true", help="instead, list who has set gates")

    def run(self, options):
        scope, verbs = (options["type"], options["collection"]), _verbs(GATE)
        mode, values = options["mode"], given(_parameters(verbs), options)
        if options["log"]:
            if mode is not None or values:
                raise CommandError("Beside --log, only --type and --collection can be given.")
            return _log(*scope, "gate")
        if mode is None:
            if values or scope != (None, None):
                raise CommandError(f"Say what is to be done: {', '.join(verbs)}.")
            return {"gates": [documents.gate(row) for row in queue.gates()]}
        foreign = values.keys() - {parameter.name for parameter in verbs[mode].parameters}
        if foreign:
            raise CommandError(f"{mode} takes no --{', --'.join(sorted(foreign))}.")
        outcome = verbs[mode].perform(scope, actor(), **values)
        was = outcome.value if mode == "open" else outcome.value.was
        return {
            "told": outcome.told,
            "was": None if was is None else documents.gate(was),
            "gates": [documents.gate(row) for row in queue.gates()],
        }

    def text(self, document):
        if "log" in document:
            return _log_text(document)
        return _with(document, _gates_text(document))


class Gates(Subcommand):
    name = "gates"
    help = "The gates that are shut, and by whom."

    def run(self, options):
        return {"gates": [documents.gate(row) for row in queue.gates()]}

    def text(self, document):
        return _gates_text(document)


def _gates_text(document):
    if not document["gates"]:
        return "All gates are open."
    headings = ["where", "mode", "since", "until", "by", "reason"]
    return present.table(headings, [_gate_row(row) for row in document["gates"]])


def _gate_row(document):
    return [
        where(document),
        document["mode"],
        text.moment(document["since"]),
        text.moment(document["until"]) if document["until"] else "",
        document["who"],
        document["reason"],
    ]


class Limit(Subcommand):
    name = "limit"
    help = "Set or list limits of a Type or a lane over all daemons, and weights of Types."

    def add_arguments(self, parser):
        add_scope(parser, _LIMIT.levels)
        add_parameters(parser, _LIMIT.parameters)
        add = parser.add_argument
        add("--default", action="store_true", help="use the limits that the code declares again")
        add("--log", action="store_true", help="instead, list who has set limits")

    def run(self, options):
        scope = options["type"], options["collection"]
        values, default = given(_LIMIT.parameters, options), options["default"]
        if options["log"]:
            if values or default:
                raise CommandError("Beside --log, only --type and --collection can be given.")
            return _log(*scope, "limits")
        if scope[0] is None and (values or default or scope[1]):
            raise CommandError("Of which Type? Give --type.")
        if values and default:
            raise CommandError("--default takes no limits beside it.")
        if default:
            done = {"told": _UNLIMIT.perform(scope, actor()).told}
        elif values:
            _LIMIT.perform(scope, actor(), **values)
            done = {}
        elif scope[1] is not None:
            raise CommandError("Give a limit, or --default.")
        else:
            return {"of": scope[0]} | _limits(scope[0])
        return done | _limits()

    def text(self, document):
        if "log" in document:
            return _log_text(document)
        return _with(document, _limits_text(document))


class Limits(Subcommand):
    name = "limits"
    help = "The limits and weights of Types and lanes, and who has set them."

    def run(self, options):
        return _limits()

    def text(self, document):
        return _limits_text(document)


def _limits_text(document):
    if not document["limits"]:
        of = document.get("of")
        return "Nothing is limited." if of is None else f"Nothing of {of} is limited."
    headings = ["where", "running", "of each", "rate", "burst", "weight"]
    headings += ["waiting", "waited", "set by"]
    return present.table(headings, [_limit_row(row) for row in document["limits"]])


class Downstreams(Subcommand):
    name = "downstreams"
    help = "The services that handlers call: the state of each, and the rate of calls."

    def run(self, options):
        return {"downstreams": [downstreams.document(row) for row in queue.downstreams()]}

    def text(self, document):
        if not document["downstreams"]:
            return "No Type names a downstream."
        headings = ["downstream", "state", "rate", "not before", "since", "by", "types"]
        return present.table(headings, [_downstream_row(row) for row in document["downstreams"]])


def _downstream_row(document):
    return [
        document["name"],
        document["state"],
        f"{document['per_second']:.3g}/s" if document["state"] == "throttled" else "",
        text.moment(document["not_before"]) if document["not_before"] else "",
        text.moment(document["since"]),
        document["who"],
        ", ".join(document["types"]),
    ]


class Downstream(Subcommand):
    name = "downstream"
    help = "One downstream: call a verb on it."

    def add_arguments(self, parser):
        words = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
        for verb in VERBS[DOWNSTREAM].values():
            added = add_word(words, verb.name, verb.explanation)
            added.add_argument("downstream", type=arguments.text, help="its name")
            add_parameters(added, verb.parameters)

    def run(self, options):
        verb, row = VERBS[DOWNSTREAM][options["verb"]], queue.get_downstream(options["downstream"])
        values = given(verb.parameters, options)
        if verb.name == "bound" and not values.keys() - {"expected"}:
            raise CommandError("What? Give --ceiling, --floor or both.")
        outcome = verb.perform(row, actor(), **values)
        return {"outcome": outcome.told} | downstreams.document(outcome.value)

    def text(self, document):
        return present.printable(document["outcome"])


def _limits(type=None):
    return {"limits": [documents.limit(row) for row in queue.limits(type)]}


def _limit_row(document):
    return [
        where(document),
        "no limit" if document["max_running"] is None else document["max_running"],
        document["max_running_per_collection"] or "",
        document["rate"] or "no limit",
        document["burst"] if document["rate"] else "",
        f"{document['weight']:g}",
        document["max_waiting"] or "",
        text.duration(document["max_wait"]),
        document["who"] if document["is_set"] else "the code",
    ]


def where(document):
    """Return the scope of a gate or a limit in words."""
    if document["type"] is None:
        return "everything"
    if document["collection"] is None:
        return document["type"]
    return f"{document['type']} / {document['collection']!r}"


def _with(document, shown):
    """Return the text of the present settings, below the outcome if the document has one."""
    return f"{present.printable(document['told'])}\n{shown}" if "told" in document else shown


def _log(type, collection, about):
    records = queue.scope_log(type, collection, kind=about, limit=_SHOWN)
    return {
        "log": [
            dict(zip(("type", "collection"), record.scope, strict=True))
            | {name: getattr(record, name) for name in ("time", "who", "message")}
            for record in records
        ]
    }


def _log_text(document):
    if not document["log"]:
        return "Nobody has set any."
    rows = [
        [text.moment(row["time"]), where(row), row["who"], row["message"]]
        for row in document["log"]
    ]
    return present.table(["time", "where", "by", "what"], rows)
