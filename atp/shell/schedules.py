"""``schedules`` and ``schedule``: list the schedules; show, try or make one; call a verb."""

from django.core.management.base import CommandError

from .. import queue
from ..reports import overview
from ..reports import schedules as reports
from ..verbs.hooking import NAMES as HOOKS
from ..verbs.table import SCHEDULE, VERBS
from ..verbs.table.schedules import PARAMETERS
from ..words import wording
from ..words.options import instant
from ..words.sentences import NO_DAEMON
from . import arguments, present
from .base import Subcommand, actor
from .verbs import add_parameters, add_word, given

# The most slots, and the most next runs, that are shown.
SHOWN, UPCOMING = 20, 10


class Schedules(Subcommand):
    name = "schedules"
    help = "The schedules: the next run and the last slot of each."

    def run(self, options):
        documents, now = reports.documents(), overview.now()
        return {"time": now, "problems": _problems(documents, now), "schedules": documents}

    def text(self, document):
        if not document["schedules"]:
            return "There is no schedule."
        headings = ["schedule", "type", "when", "next", "last slot", "last day", "state"]
        table = present.table(headings, [_row(each) for each in document["schedules"]])
        return "\n\n".join([table, *document["problems"]])


def _problems(documents, now):
    """Return sentences about why no slot of any schedule is planned; [] if slots are."""
    if all(document["state"] == "retired" for document in documents):
        return []
    alive = [row for row in overview.daemons() if overview.condition(row, now) != "lost"]
    return [] if alive else [f"{NO_DAEMON}: no slot is planned."]


def _row(document):
    last = document["last_slot"]
    not_run = {"missed": document["missed_lately"], "skipped": document["skipped_lately"]}
    return [
        document["identifier"],
        document["type"],
        document["words"],
        wording.moment(document["next_at"]) if document["next_at"] else "",
        f"{wording.moment(last['at'])} {last['outcome']}" if last else "",
        ", ".join(f"{count} {word}" for word, count in not_run.items() if count),
        document["state"],
    ]


class Schedule(Subcommand):
    name = "schedule"
    help = "One schedule: show or create it, try when it would run, or call a verb on it."

    def add_arguments(self, parser):
        words = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
        show = add_word(words, "show", "Its parameters, its next runs and its last slots.")
        show.add_argument("schedule", type=arguments.text)
        trial = add_word(words, "try", "Show when a schedule would run; nothing is written.")
        trial.add_argument("--cron", type=arguments.text, help="five fields, or as @daily")
        trial.add_argument("--every", type=arguments.delay, help="as 90s, 10m, 2h or 1d")
        trial.add_argument("--timezone", type=arguments.text, help="as Europe/Vienna")
        trial.add_argument(
            "--from",
            dest="since",
            type=arguments.moment,
            metavar="WHEN",
            help="runs from 2030-01-31T18:00 on, or after a delay as 1d; without it, from now on",
        )
        create = add_word(words, "create", "Make a schedule of a Type that this process declares.")
        create.add_argument("schedule", type=arguments.text, help="its identifier")
        create.add_argument("type", type=arguments.text, help="the Type")
        add_parameters(create, PARAMETERS)
        for verb in VERBS[SCHEDULE].values():
            added = add_word(words, verb.name, verb.explanation)
            added.add_argument("schedule", type=arguments.text, help="its identifier")
            add_parameters(added, verb.parameters)

    def run(self, options):
        name = options["verb"]
        if name == "try":
            said = {key: options[key] for key in ("cron", "every", "timezone")}
            timing = queue.timing(**{key: said[key] for key in said if said[key] is not None})
            since = instant("--from", options["since"], overview.now)
            upcoming = reports.upcoming(timing, UPCOMING, since)
            return {"words": timing.words(), "upcoming": upcoming}
        if name == "create":
            values = given(PARAMETERS, options)
            row = queue.create_schedule(options["schedule"], options["type"], by=actor(), **values)
            return reports.document(row)
        row = queue.get_schedule(options["schedule"])
        if name == "show":
            return reports.document(row) | {
                "upcoming": reports.upcoming_of(row, UPCOMING),
                "slots": reports.slots(queue.slots(row.identifier, limit=SHOWN)),
            }
        verb = VERBS[SCHEDULE][name]
        values = given(verb.parameters, options)
        if name == "change" and not values:
            raise CommandError("Nothing to change: give a parameter, see --help.")
        return {"outcome": verb.perform(row, actor(), **values).told}

    def text(self, document):
        if "outcome" in document:
            return present.printable(document["outcome"])
        lines = [document["words"]]
        if "identifier" in document:
            told = {name: document[name] for name in _FACTS}
            told |= {name: wording.moment(document[name]) for name in _TIMES}
            told |= {name: wording.duration(document[name]) for name in _LENGTHS if document[name]}
            told |= {name: ", ".join(document[name]) for name in HOOKS}
            facts = {name: told[name] for name in _FACTS if told[name] not in (None, "")}
            lines += [f"{name:<13} {present.printable(value)}" for name, value in facts.items()]
        if "upcoming" in document:
            rows = [
                [wording.moment(run["at"]), run["local"], run["remark"]]
                for run in document["upcoming"]
            ]
            lines += ["", present.table(["next", "in its zone", "remark"], rows)]
        if document.get("slots"):
            rows = [
                [wording.moment(slot["at"]), slot["outcome"], slot["count"], slot["message"]]
                for slot in document["slots"]
            ]
            lines += ["", present.table(["slot", "outcome", "count", ""], rows)]
        return "\n".join(lines)


_TIMES, _LENGTHS = ("next_at", "paused_since", "paused_until"), ("start_before", "timeout")
_FACTS = (
    *("identifier", "type", "state", "paused_since", "paused_until", "paused_by", "paused_reason"),
    *("next_at", "missed", "overlap", "start_before", "timeout", *HOOKS, "who", "revision"),
    "trouble",
)
