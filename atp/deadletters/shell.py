"""`atp errors`, `error`; `redrive`, `cancel`, `delete`, by uuid or all that matches."""

import argparse
import re
import sys
from collections import Counter
from datetime import timedelta

from django.core.management.base import CommandError
from django.db import transaction
from django.db.models import Count
from django.utils import timezone

from .. import commands, queue, text
from ..conf import settings
from ..exceptions import IllegalTransition, UnknownInstance
from ..models import Instance
from ..operations.instances import CHUNK
from ..operations.matching import CANCEL, REDRIVE, Judge, Plan, checked_pattern, types_of
from ..operations.registry import internal_types
from ..operations.table import ERROR, MATCHING, VERBS
from ..reports import overview, paging
from ..shell import arguments, present
from ..shell.base import Subcommand, actor, find_all, instances
from ..shell.operations import add_parameters, add_word, given
from ..states import Reason, State
from . import operations as groups

# Verbs on all Instances that match: the options of ``redrive``, ``cancel`` and ``delete``.

_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


class Matching:
    """The options with which a subcommand acts on all Instances that match, at a rate.

    ``verb`` is the verb of the table. ``shared`` are the parameters for which the subcommand
    has an option already: these are not added again.
    """

    def __init__(self, name, shared=()):
        self.verb = VERBS[MATCHING][name]
        self._shared = shared

    def add(self, parser):
        """Add the options that the subcommand does not have."""
        for parameter in self.verb.parameters:
            if parameter.name in self._shared:
                continue
            name = parameter.name.replace("_", "-")
            names = [f"--{name}"] + (["--before"] if name.endswith("-before") else [])
            told = parameter.help[:1].lower() + parameter.help[1:].rstrip(".")
            told = f"all that match: {told}".replace("%", "%%")
            if name in ("dry-run", "all"):
                parser.add_argument(*names, action="store_true", help=told)
                continue
            read = _moment if name.endswith("-before") else arguments.of(parameter.kind)
            read = arguments.reason if name == "reason" else read
            parser.add_argument(*names, type=read, metavar=name.upper(), help=told)

    def is_meant(self, options, but=()):
        """Return whether an option was given that is not shared, so that this verb is meant.

        Options in ``but`` say nothing of that.
        """
        own = {p.name for p in self.verb.parameters}.difference(self._shared, but)
        return any(_is_given(options.get(name)) for name in own)

    def run(self, options):
        """Perform the verb, or plan it with ``--dry-run``, and return the document."""
        if options.get("uuid"):
            raise CommandError("Give either uuids, or options that select.")
        values = {p.name: options.get(p.name) for p in self.verb.parameters}
        values = {name: value for name, value in values.items() if _is_given(value)}
        check_final(self.verb, values, options)
        if "reason" in values:
            values["reason"] = str(values["reason"])
        return document_of(self.verb.perform(None, actor(), **values))


def _is_given(value):
    return value is not None and value is not False  # 0 is


def _moment(given):
    """Read a time of today, as 09:40, or any other time, but no delay."""
    found = _TIME.fullmatch(given)
    if found is None:
        time = arguments.moment(given)
        if isinstance(time, timedelta):
            raise argparse.ArgumentTypeError(f"{given!r} is no time that has passed")
        return time
    hour, minute = map(int, found.groups())
    return timezone.localtime(overview.now()).replace(
        hour=hour, minute=minute, second=0, microsecond=0
    )


# ``redrive`` and ``cancel``: verbs on Instances by uuid, or on a selection.


class Selecting(Subcommand):
    """A verb on Instances by uuid, all or none of them, or on a selection, after a question.

    ``act`` calls the verb and returns the document, which has a number for each name in
    ``counts``. ``doing`` and ``done`` are forms of the verb for messages, ``ways`` names the
    options that select.
    """

    doing = done = ways = ""
    # The Matching of the verb: an Instance carries it out on all that match, at a rate.
    matching = None
    counts = ()

    def add_arguments(self, parser):
        add = parser.add_argument
        add(
            "uuid",
            nargs="*",
            type=arguments.uuid_prefix,
            help=f"Instances by uuid; if one is refused, none is {self.done}",
        )
        self.add_ways(add)
        add("--yes", action="store_true", help=f"do not ask before {self.doing} a selection")
        self.matching.add(parser)

    def add_ways(self, add):
        """Add the options that select."""
        raise NotImplementedError

    def is_selecting(self, options):
        """Return whether an option that selects was given."""
        raise NotImplementedError

    def selection(self, options):
        """Return the QuerySet of the selected Instances."""
        raise NotImplementedError

    def act(self, chosen):
        """Call the verb on Instances and return the counts."""
        raise NotImplementedError

    def acted(self, rows):
        """Return the counts from the present states of rows, after ``act`` refused one of them."""
        raise NotImplementedError

    def run(self, options):
        # A dry run is one of that which the other options mean.
        if self.matching.is_meant(options, but=("dry_run",)):
            return self.matching.run(options)
        is_selecting = self.is_selecting(options)
        if bool(options["uuid"]) == is_selecting:
            raise CommandError(f"Which ones? Give either uuids, or a selection by {self.ways}.")
        if options["dry_run"] and not is_selecting:
            raise CommandError("--dry-run is for a selection, not for Instances by uuid.")
        if not is_selecting:
            chosen = find_all(options["uuid"])
            with transaction.atomic(using=settings.DATABASE):
                return self.act(chosen)
        selected = self.selection(options)
        if options["dry_run"]:
            return self.planned(selected)
        # What comes while the question stands is not selected.
        end = selected.order_by("pk").values_list("pk", flat=True).last() or 0
        selected = selected.filter(pk__lte=end)
        self.confirm(selected.count(), options)
        counts = Counter()
        for chunk in _chunks(selected):
            counts.update(self._act_on(chunk))
        return {name: counts[name] for name in self.counts}

    def planned(self, selected):
        """Return the document of a dry run: how many would be taken, by Type and collection."""
        rows = selected.order_by().values_list("type__identifier", "collection")
        counts = Counter({(type, lane): n for type, lane, n in rows.annotate(Count("pk"))})
        cannot = Counter()
        for type, lane, why in self.refused(selected):
            cannot[why] += 1
            counts[type, lane] -= 1
        by = {"by_type": Counter(), "by_collection": Counter()}
        for (type, lane), count in counts.items():
            by["by_type"][type] += count
            by["by_collection"][lane] += count
        by = {name: {k: n for k, n in found.most_common() if n} for name, found in by.items()}
        types = ", ".join(f"{name} {number}" for name, number in by["by_type"].items())
        told = [f"{counts.total()} would be {self.done}{types and ': '}{types}."]
        told += [f"{count} cannot be {self.done}: {why}." for why, count in cannot.most_common()]
        plan = {"count": counts.total(), **by, "cannot": dict(cannot.most_common())}
        return {"outcome": "\n".join(told), "plan": plan}

    def refused(self, selected):
        """Yield Type, collection and reason of each selected Instance that ``act`` would refuse."""
        yield from ()

    def confirm(self, count, options):
        """Show the count, and ask before anything is written. Raises CommandError without a yes."""
        self.say(f"Instances selected: {count}")
        if options["yes"] or not count:
            return
        if options["json"] or sys.stdin is None or not sys.stdin.isatty():
            raise CommandError(f"Nothing was {self.done}: a selection needs --yes.")
        self.say(f"{self.name.capitalize()} them? [y/N] ")
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError(f"Nothing was {self.done}.")

    def _act_on(self, chunk):
        try:
            return self.act(chunk)
        except (IllegalTransition, UnknownInstance):
            # Another user has changed or removed one of them. The verb was applied to the others.
            return self.acted(instances().filter(pk__in=[instance.pk for instance in chunk]))


def _chunks(selected):
    """Yield lists of Instances, oldest first."""
    last = 0
    while chunk := list(selected.filter(pk__gt=last).order_by("pk")[:CHUNK]):
        last = chunk[-1].pk
        yield chunk


def _of(rows, type):
    """Select the Instances of a Type, or of a pattern; else those of all Types but ATP's own."""
    if type is None:
        return rows.exclude(type__identifier__in=internal_types())
    return rows.filter(type__in=types_of(checked_pattern(type)))


class Redrive(Selecting):
    name = "redrive"
    doing, done = "redriving", "redriven"
    ways = "--type, --reason or --all"
    matching = Matching("redrive", shared=("type", "reason", "all"))
    counts = ("redriven",)
    help = "Send FAILED Instances back to the queue; their retries and restarts count anew."

    def add_ways(self, add):
        add("--type", type=arguments.text, help="the dead letters of this Type, or of a pattern")
        add("--reason", type=arguments.reason, help="Instances that FAILED for this reason")
        add("--all", action="store_true", help="the dead letters of all Types")

    def is_selecting(self, options):
        return options["all"] or options["type"] is not None or options["reason"] is not None

    def selection(self, options):
        """Return the dead letters; with ``--reason`` all Instances that FAILED for it."""
        rows = instances()
        rows = rows.failed(options["reason"]) if options["reason"] else rows.dead_letter()
        return _of(rows.filter(finished__lte=overview.now()), options["type"])

    def act(self, chosen):
        queue.redrive(*chosen, by=actor())
        return {"redriven": len(chosen)}

    def refused(self, selected):
        judge = Judge(REDRIVE)
        for chunk in _chunks(selected):
            refused = judge.refused(chunk)
            for each in chunk:
                if each.pk in refused:
                    yield each.type.identifier, each.collection, refused[each.pk]

    def acted(self, rows):
        return {"redriven": rows.exclude(state=State.FAILED).count()}

    def text(self, document):
        if "outcome" in document:
            return text_of(document)
        return f"Instances redriven: {document['redriven']}"


class Cancel(Selecting):
    name = "cancel"
    doing, done = "cancelling", "cancelled"
    ways = "--type, --collection or both"
    matching = Matching("cancel", shared=("type", "collection"))
    counts = ("cancelled", "asked")
    help = "End live Instances: waiting ones at once, others by asking the daemons that hold them."

    def add_ways(self, add):
        add("--type", type=arguments.text, help="waiting Instances of this Type, or of a pattern")
        add("--collection", type=arguments.text, help="waiting Instances of this collection")

    def is_selecting(self, options):
        return options["type"] is not None or options["collection"] is not None

    def selection(self, options):
        collection = options["collection"]
        rows = instances().selected(state=State.ACCEPTED, collection=collection or "")
        rows = _of(rows, options["type"])
        # An empty text is for those without a collection.
        return rows.filter(collection="") if collection == "" else rows

    def act(self, chosen):
        asked = queue.cancel(*chosen, by=actor())
        return {"cancelled": len(chosen) - len(asked), "asked": len(asked)}

    def acted(self, rows):
        return {
            "cancelled": rows.failed(Reason.CANCELLED).count(),
            "asked": rows.filter(task__request=commands.CANCEL).count(),
        }

    def text(self, document):
        if "outcome" in document:
            return text_of(document)
        told = f"Instances cancelled: {document['cancelled']}"
        if document["asked"]:
            told += f"\nInstances that their daemons are asked to end: {document['asked']}"
        return told


# ``delete``: remove Instances by uuid, or all dead letters that match.

_DELETE = Matching("delete")


class Delete(Subcommand):
    name = "delete"
    help = "Remove ended Instances with all their data; with --cancel, cancel live ones first."

    def add_arguments(self, parser):
        add = parser.add_argument
        add("uuid", nargs="*", type=arguments.whole_uuid, help="whole uuids")
        add("--cancel", action="store_true", help="first cancel the Instances that have not ended")
        add(
            "--wait",
            type=arguments.seconds,
            default=15.0,
            metavar="SECONDS",
            help="with --cancel: how long to wait for those that a daemon holds (%(default)g)",
        )
        add("--yes", action="store_true", help="delete all that match, for good")
        _DELETE.add(parser)

    def run(self, options):
        if _DELETE.is_meant(options):
            if options["cancel"]:
                raise CommandError("--cancel is for Instances by uuid: dead letters have ended.")
            return _DELETE.run(options)
        if not options["uuid"]:
            raise CommandError("Which ones? Give either uuids, or options that select.")
        chosen = find_all(options["uuid"])
        how = {"cancel": True, "wait": options["wait"]} if options["cancel"] else {}
        removed = queue.delete(*chosen, by=actor(), **how)
        return {"asked": len(chosen), "removed": removed}

    def text(self, document):
        if "outcome" in document:
            return text_of(document)
        return f"Instances removed: {document['removed']}"

    def check(self, document, options):
        if "outcome" not in document and document["removed"] < document["asked"]:
            raise CommandError(
                f"Instances not removed: {document['asked'] - document['removed']}. Their files "
                "could not be removed, they have been redriven meanwhile, or a daemon has not "
                "ended them yet."
            )


# ``errors`` and ``error``: list the error groups; show a single one, or call a verb on it.


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
        found = [groups.group_document(each) for each in groups.groups(page.rows)]
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
        text.age(document["last_seen"], now),
        text.shorten(document["title"], 60) + (" (muted)" if document["muted_by"] else ""),
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
            return groups.group_document(found)
        verb = VERBS[ERROR][options["verb"]]
        values = given(verb.parameters, options)
        check_final(verb, values, options)
        return document_of(verb.perform(group, actor(), **values))

    def text(self, document):
        if "outcome" in document:
            return text_of(document)
        shown = {k: v for k, v in document.items() if v not in ("", None, False)}
        times = ("first_seen", "last_seen", "muted_until")
        shown |= {name: text.moment(shown[name]) for name in times if name in shown}
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
        return found | {"plan": groups.plan_document(value)}
    return found | ({"instance": str(value.uuid)} if isinstance(value, Instance) else {})


def _add_name(parser):
    parser.add_argument(
        "group",
        type=arguments.text,
        help="its name, or the first digits of its name, if no other has them",
    )
