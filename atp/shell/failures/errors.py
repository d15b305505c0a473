"""``errors`` and ``error``: list the error groups; show a single one, or call a verb on it."""

from django.core.management.base import CommandError

from ... import queue
from ...models import Instance
from ...reports import overview, paging
from ...reports.errors import groups, plans
from ...verbs.matching.plan import Plan
from ...verbs.matching.selection import CANCEL
from ...verbs.table import ERROR, VERBS
from ...words import wording
from .. import arguments, present
from ..base import Subcommand, actor
from ..verbs import add_parameters, add_word, given


class Errors(Subcommand):
    name = "errors"
    help = "Error groups: dead letters by their causes, those that failed last first."

    def add_arguments(self, parser):
        add = parser.add_argument
        add("--type", type=arguments.text, help='of this Type, or of a pattern as "dem.*"')
        add("--limit", type=arguments.positive, default=20, help="at most so many (default: 20)")

    def run(self, options):
        rows = groups.selected(queue.error_groups(), type=options["type"] or "")
        page = paging.page(rows, ("-last_seen", "-id"), size=options["limit"])
        found = [groups.document(each) for each in groups.groups(page.rows)]
        return {"time": overview.now(), "errors": found}

    def text(self, document):
        if not document["errors"]:
            return "There is no error group."
        headings = ["name", "type", "count", "left", "collections", "last", "title"]
        now = document["time"]
        return present.table(headings, [_row(each, now) for each in document["errors"]])


def _row(document, now):
    return [
        document["name"],
        document["type"],
        document["count"],
        f"{document['left']}{'+' if document['is_more'] else ''}",
        document["collections"],
        wording.age(document["last_seen"], now),
        wording.shorten(document["title"], 60) + (" (muted)" if document["muted_by"] else ""),
    ]


class Error(Subcommand):
    name = "error"
    help = "One error group: show it, or call a verb on it."

    def add_arguments(self, parser):
        words = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
        _add_name(add_word(words, "show", "Show the error group."))
        for verb in VERBS[ERROR].values():
            added = add_word(words, verb.name, verb.explanation)
            _add_name(added)
            add_parameters(added, verb.parameters)
            if verb.is_final:
                added.add_argument("--yes", action="store_true", help="delete them, for good")

    def run(self, options):
        group = queue.get_error_group(options["group"])
        if options["verb"] == "show":
            [found] = groups.groups([group])
            return groups.document(found)
        verb = VERBS[ERROR][options["verb"]]
        values = given(verb.parameters, options)
        check_final(verb, values, options)
        return document_of(verb.perform(group, actor(), **values))

    def text(self, document):
        if "outcome" in document:
            return text_of(document)
        shown = {k: v for k, v in document.items() if v not in ("", None, False)}
        times = ("first_seen", "last_seen", "muted_until")
        shown |= {name: wording.moment(shown[name]) for name in times if name in shown}
        return present.pairs([(name.replace("_", " "), value) for name, value in shown.items()])


def check_final(verb, values, options):
    """Raise CommandError if a verb takes --yes, and neither that nor --dry-run is given."""
    is_for_good = verb.is_final or verb.name == CANCEL
    if is_for_good and not values.get("dry_run") and not options.get("yes"):
        done = "deleted" if verb.is_final else "cancelled"
        raise CommandError(f"Nothing was {done}: look at --dry-run first, and give --yes.")


def text_of(document):
    """Return the outcome in a document as text: one line, or several for a plan."""
    return "\n".join(map(present.printable, document["outcome"].splitlines()))


def document_of(outcome):
    """Return the document of a verb's outcome, with its plan or the Instance that it enqueued."""
    value = outcome.value
    found = {"outcome": outcome.told}
    if isinstance(value, Plan):
        return found | {"plan": plans.document(value)}
    return found | ({"instance": str(value.uuid)} if isinstance(value, Instance) else {})


def _add_name(parser):
    parser.add_argument(
        "group",
        type=arguments.text,
        help="its name, or the first digits of its name, if no other has them",
    )
