"""``list``: list Instances, newest first, a page at a time."""

from .. import queue
from ..reports import documents, overview, paging
from ..reports.timeline import took
from ..states import State
from ..words import wording
from . import arguments, present
from .base import Subcommand, find, instances

_FILTERS = ("state", "reason", "collection", "identifier", "created_by")


class List(Subcommand):
    name = "list"
    help = "Instances, newest first."

    def add_arguments(self, parser):
        add = parser.add_argument
        add("--type", type=arguments.text, help="of this Type")
        add("--state", type=arguments.state, help=", ".join(State.values))
        add("--reason", type=arguments.reason, help="FAILED for this reason")
        add("--collection", type=arguments.text, help="of this collection")
        add("--identifier", type=arguments.text, help="with this identifier")
        add("--created-by", type=arguments.text, help="enqueued by this user")
        add("--limit", type=arguments.positive, default=20, help="at most so many (default: 20)")
        add("--before", type=arguments.uuid_prefix, metavar="UUID", help="older than this one")

    def run(self, options):
        limit = options["limit"]
        page = paging.page(_selected(options), ("-id",), size=limit)
        return {
            "time": overview.now(),
            "instances": [documents.instance(row) for row in page.rows],
            "next": None if page.next is None else page.rows[-1].uuid,
        }

    def text(self, document):
        if not document["instances"]:
            return "There are no such Instances."
        headings = [
            "uuid",
            "type",
            "identifier",
            "state",
            "tried again",
            "progress",
            "age",
            "elapsed",
        ]
        now = document["time"]
        listed = present.table(headings, [_row(row, now) for row in document["instances"]])
        if document["next"]:
            listed += f"\n\nOlder ones: --before {document['next']}"
        return listed


def _selected(options):
    given = {name: options[name] for name in _FILTERS if options[name] is not None}
    if options["type"] is not None:
        given["type"] = queue.get_type(options["type"])
    rows = instances().selected(**given)
    # An empty text is for those without one, and not for all.
    empty = [name for name in ("collection", "created_by") if options[name] == ""]
    rows = rows.filter(**dict.fromkeys(empty, ""))
    if options["identifier"] == "":
        rows = rows.filter(identifier=None)
    return rows if options["before"] is None else rows.filter(pk__lt=find(options["before"]).pk)


def _row(document, now):
    return [
        document["uuid"],
        wording.shorten(document["type"], 40),
        wording.shorten(document["identifier"] or "", 60),
        state_of(document),
        document["retries"] + document["restarts"],
        wording.percent(document["progress"]),
        wording.age(document["created"], now),
        wording.duration(took(document, now)),
    ]


def state_of(document):
    """Return the state of an Instance's document, with the reason if it has one."""
    return f"{document['state']} {document['reason']}".rstrip()
