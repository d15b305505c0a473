"""The subcommands ``errors``, ``error``, ``redrive``, ``cancel`` and ``delete``.

The last three act on Instances by uuid, or on all Instances that match a filter.
"""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

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
from ..operations.operation import Flag, Operation, Outcome, Past
from ..operations.registry import internal_types
from ..operations.table import ERROR, MATCHING, OPERATIONS
from ..querysets import InstanceQuerySet
from ..reports import overview, paging
from ..reports.documents import Document
from ..shell import arguments, present
from ..shell.base import Subcommand, actor, find_instances, visible_instances
from ..shell.operations import add_operation, add_parameters, given_values
from ..states import Reason, State
from . import operations

_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


class MatchingOptions:
    """The options with which a subcommand acts on all Instances that match a filter, at a rate.

    ``name`` is the name of the operation. ``shared`` are the parameters for which the subcommand
    has its own options already, so that they are not added again.
    """

    def __init__(self, name: str, shared: Collection[str] = ()) -> None:
        self.operation: Operation = OPERATIONS[MATCHING][name]
        self._shared = shared
        # The parameter that "--before" sets, too.
        self._until = "created_before" if name == CANCEL else "ended_before"

    def add(self, parser: ArgumentParser) -> None:
        """Add an option for each parameter, except for the shared ones, to a parser."""
        for parameter in self.operation.parameters:
            if parameter.name in self._shared:
                continue
            name = parameter.name.replace("_", "-")
            names = [f"--{name}"] + (["--before"] if parameter.name == self._until else [])
            words = parameter.help[:1].lower() + parameter.help[1:].rstrip(".")
            words = f"all that match: {words}".replace("%", "%%")
            if isinstance(parameter.kind, Flag):
                parser.add_argument(*names, action="store_true", help=words)
                continue
            read: Callable[[str], Any] = arguments.make_reader(parameter.kind)
            if isinstance(parameter.kind, Past):
                read = _read_past
            elif name == "reason":
                read = arguments.reason
            elif name == "state":
                read = arguments.state
            parser.add_argument(*names, type=read, metavar=name.upper(), help=words)

    def is_requested(self, options: Mapping[str, Any], ignore: Collection[str] = ()) -> bool:
        """Return True if the user gave an option that only this operation has.

        Options whose names are in ``ignore`` do not count.
        """
        own = {p.name for p in self.operation.parameters}.difference(self._shared, ignore)
        return any(_is_given(options.get(name)) for name in own)

    def run(self, options: dict[str, Any]) -> Document:
        """Perform the operation, or plan it if ``--dry-run`` is given, and return the document."""
        if options.get("uuid"):
            raise CommandError("Give either uuids or options that select Instances, not both.")
        values = {p.name: options.get(p.name) for p in self.operation.parameters}
        values = {name: value for name, value in values.items() if _is_given(value)}
        _require_yes(self.operation, values, options)
        for name in ("reason", "state"):
            if name in values:
                values[name] = str(values[name])
        return _outcome_document(self.operation.perform(None, actor(), **values))


def _is_given(value: object) -> bool:
    return value is not None and value is not False  # 0 is a value


def _read_past(given: str) -> datetime:
    """Parse a time of today such as 09:40, or any other time. A delay is an error."""
    found = _TIME.fullmatch(given)
    if found is None:
        time = arguments.moment(given)
        if isinstance(time, timedelta):
            raise ArgumentTypeError(f"{given!r} is a delay from now, not a time in the past")
        return time
    hour, minute = map(int, found.groups())
    return timezone.localtime(overview.now()).replace(
        hour=hour, minute=minute, second=0, microsecond=0
    )


# ``redrive`` and ``cancel``: operations on Instances by uuid, or on a selection.


class SelectingSubcommand(Subcommand):
    """A subcommand that acts on Instances by uuid, or on a selection of Instances.

    Of Instances by uuid, it changes all or none. A selection has to be confirmed by the user.
    ``act`` performs the operation and returns the document, which has a number for each name in
    ``counts``. ``doing`` and ``done`` are forms of the operation's verb for messages, such as
    "redriving" and "redriven". ``ways`` names the options that select Instances.
    """

    doing = done = ways = ""
    # The same operation on all Instances that match: an internal Instance performs it, at a rate.
    matching: MatchingOptions
    counts: tuple[str, ...] = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
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

    def add_ways(self, add: Callable[..., Any]) -> None:
        """Add the options that select Instances."""
        raise NotImplementedError

    def is_selecting(self, options: Mapping[str, Any]) -> bool:
        """Return True if the user gave an option that selects Instances."""
        raise NotImplementedError

    def selection(self, options: Mapping[str, Any]) -> InstanceQuerySet[Instance]:
        """Return the QuerySet of the Instances that the user's options select."""
        raise NotImplementedError

    def act(self, chosen: Sequence[Instance]) -> dict[str, int]:
        """Perform the operation on these Instances and return the counts."""
        raise NotImplementedError

    def count_done(self, rows: InstanceQuerySet[Instance]) -> dict[str, int]:
        """Return the counts by the present states of ``rows``, after ``act`` raised an error."""
        raise NotImplementedError

    def run(self, options: dict[str, Any]) -> Document:
        # --dry-run goes with both ways to select.
        if self.matching.is_requested(options, ignore=("dry_run",)):
            return self.matching.run(options)
        is_selecting = self.is_selecting(options)
        if bool(options["uuid"]) == is_selecting:
            raise CommandError(f"Which Instances? Give either uuids or {self.ways}.")
        if options["dry_run"] and not is_selecting:
            raise CommandError("--dry-run is for a selection, not for Instances by uuid.")
        if not is_selecting:
            chosen = find_instances(options["uuid"])
            with transaction.atomic(using=settings.DATABASE):
                return self.act(chosen)
        selected = self.selection(options)
        if options["dry_run"]:
            return self.plan(selected)
        # Instances that arrive while the question is open are not selected.
        end = selected.order_by("pk").values_list("pk", flat=True).last() or 0
        selected = selected.filter(pk__lte=end)
        self.confirm(selected.count(), options)
        counts: Counter[str] = Counter()
        for chunk in _read_chunks(selected):
            counts.update(self._act_on(chunk))
        return {name: counts[name] for name in self.counts}

    def plan(self, selected: InstanceQuerySet[Instance]) -> Document:
        """Return the document of a dry run: the number of Instances, by Type and collection."""
        rows = selected.order_by().values_list("type__identifier", "collection")
        counts = Counter({(type, lane): n for type, lane, n in rows.annotate(Count("pk"))})
        cannot: Counter[str] = Counter()
        for type, lane, why in self.refused(selected):
            cannot[why] += 1
            counts[type, lane] -= 1
        by_type: Counter[str] = Counter()
        by_collection: Counter[str] = Counter()
        for (type, lane), count in counts.items():
            by_type[type] += count
            by_collection[lane] += count
        types = ", ".join(f"{name} {text.number(n)}" for name, n in by_type.most_common() if n)
        total = text.number(counts.total())
        lines = [f"{total} would be {self.done}{types and ': '}{types}."]
        lines += [
            f"{text.number(count)} cannot be {self.done}: {why}."
            for why, count in cannot.most_common()
        ]
        return {
            "outcome": "\n".join(lines),
            "plan": {
                "count": counts.total(),
                "by_type": {name: n for name, n in by_type.most_common() if n},
                "by_collection": {name: n for name, n in by_collection.most_common() if n},
                "cannot": dict(cannot.most_common()),
            },
        }

    def refused(self, selected: InstanceQuerySet[Instance]) -> Iterator[tuple[str, str, str]]:
        """Yield Type, collection and reason for each Instance that ``act`` would refuse."""
        yield from ()

    def confirm(self, count: int, options: Mapping[str, Any]) -> None:
        """Show the number of Instances and ask the user.

        Raises CommandError unless the answer is yes.
        """
        self.say(f"Instances selected: {text.number(count)}")
        if options["yes"] or not count:
            return
        if options["json"] or sys.stdin is None or not sys.stdin.isatty():
            raise CommandError(f"Nothing was {self.done}: a selection needs --yes.")
        self.say(f"{self.name.capitalize()} them? [y/N] ")
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError(f"Nothing was {self.done}.")

    def _act_on(self, chunk: Sequence[Instance]) -> dict[str, int]:
        try:
            return self.act(chunk)
        except (IllegalTransition, UnknownInstance):
            # Another user has changed or removed one of them. The others were done.
            return self.count_done(
                visible_instances().filter(pk__in=[instance.pk for instance in chunk])
            )


def _read_chunks(selected: InstanceQuerySet[Instance]) -> Iterator[list[Instance]]:
    """Yield the Instances in lists of limited length, oldest first."""
    last = 0
    while chunk := list(selected.filter(pk__gt=last).order_by("pk")[:CHUNK]):
        last = chunk[-1].pk
        yield chunk


def _select_types(rows: InstanceQuerySet[Instance], type: str | None) -> InstanceQuerySet[Instance]:
    """Select the Instances of a Type or a pattern; if None, of all Types except ATP's own."""
    if type is None:
        return rows.exclude(type__identifier__in=internal_types())
    return rows.filter(type__in=types_of(checked_pattern(type)))


class Redrive(SelectingSubcommand):
    name = "redrive"
    doing, done = "redriving", "redriven"
    ways = "--type, --reason or --all"
    matching = MatchingOptions("redrive", shared=("type", "reason", "all"))
    counts = ("redriven",)
    help = "Send FAILED Instances back to the queue; their retries and restarts count anew."

    def add_ways(self, add: Callable[..., Any]) -> None:
        add("--type", type=arguments.text, help="the dead letters of this Type, or of a pattern")
        add("--reason", type=arguments.reason, help="Instances that FAILED for this reason")
        add("--all", action="store_true", help="the dead letters of all Types")

    def is_selecting(self, options: Mapping[str, Any]) -> bool:
        return options["all"] or options["type"] is not None or options["reason"] is not None

    def selection(self, options: Mapping[str, Any]) -> InstanceQuerySet[Instance]:
        """Return the dead letters; with ``--reason``, all Instances that FAILED for that reason."""
        rows = visible_instances()
        rows = rows.failed(options["reason"]) if options["reason"] else rows.dead_letter()
        return _select_types(rows.filter(finished__lte=overview.now()), options["type"])

    def act(self, chosen: Sequence[Instance]) -> dict[str, int]:
        queue.redrive(*chosen, by=actor())
        return {"redriven": len(chosen)}

    def refused(self, selected: InstanceQuerySet[Instance]) -> Iterator[tuple[str, str, str]]:
        judge = Judge(REDRIVE)
        for chunk in _read_chunks(selected):
            reasons = judge.refused(chunk)
            for each in chunk:
                if each.pk in reasons:
                    yield each.type.identifier, each.collection, reasons[each.pk]

    def count_done(self, rows: InstanceQuerySet[Instance]) -> dict[str, int]:
        return {"redriven": rows.exclude(state=State.FAILED).count()}

    def text(self, document: Document) -> str:
        if "outcome" in document:
            return _format_outcome(document)
        return f"Instances redriven: {text.number(document['redriven'])}"


class Cancel(SelectingSubcommand):
    name = "cancel"
    doing, done = "cancelling", "cancelled"
    ways = "--type, --collection or both"
    matching = MatchingOptions("cancel", shared=("type", "collection"))
    counts = ("cancelled", "asked")
    help = "End live Instances: waiting ones at once, others by asking the daemons that hold them."

    def add_ways(self, add: Callable[..., Any]) -> None:
        add("--type", type=arguments.text, help="waiting Instances of this Type, or of a pattern")
        add("--collection", type=arguments.text, help="waiting Instances of this collection")

    def is_selecting(self, options: Mapping[str, Any]) -> bool:
        return options["type"] is not None or options["collection"] is not None

    def selection(self, options: Mapping[str, Any]) -> InstanceQuerySet[Instance]:
        collection = options["collection"]
        rows = visible_instances().selected(state=State.ACCEPTED, collection=collection or "")
        rows = _select_types(rows, options["type"])
        # An empty text selects the Instances without a collection.
        return rows.filter(collection="") if collection == "" else rows

    def act(self, chosen: Sequence[Instance]) -> dict[str, int]:
        asked = queue.cancel(*chosen, by=actor())
        return {"cancelled": len(chosen) - len(asked), "asked": len(asked)}

    def count_done(self, rows: InstanceQuerySet[Instance]) -> dict[str, int]:
        return {
            "cancelled": rows.failed(Reason.CANCELLED).count(),
            "asked": rows.filter(task__request=commands.CANCEL).count(),
        }

    def text(self, document: Document) -> str:
        if "outcome" in document:
            return _format_outcome(document)
        lines = f"Instances cancelled: {text.number(document['cancelled'])}"
        if document["asked"]:
            asked = text.number(document["asked"])
            lines += f"\nInstances that their daemons are asked to end: {asked}"
        return lines


# ``delete``: remove Instances by uuid, or all dead letters that match.

_DELETE = MatchingOptions("delete")


class Delete(Subcommand):
    name = "delete"
    help = "Remove ended Instances with all their data; with --cancel, cancel live ones first."

    def add_arguments(self, parser: ArgumentParser) -> None:
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

    def run(self, options: dict[str, Any]) -> Document:
        if _DELETE.is_requested(options):
            if options["cancel"]:
                raise CommandError(
                    "--cancel is for Instances by uuid. Dead letters have already ended."
                )
            return _DELETE.run(options)
        if not options["uuid"]:
            raise CommandError(
                "Which Instances? Give either uuids or options that select Instances."
            )
        chosen = find_instances(options["uuid"])
        removed = queue.delete(*chosen, by=actor(), cancel=options["cancel"], wait=options["wait"])
        return {"asked": len(chosen), "removed": removed}

    def text(self, document: Document) -> str:
        if "outcome" in document:
            return _format_outcome(document)
        return f"Instances removed: {text.number(document['removed'])}"

    def check(self, document: Document, options: dict[str, Any]) -> None:
        if "outcome" not in document and document["removed"] < document["asked"]:
            kept = text.number(document["asked"] - document["removed"])
            raise CommandError(
                f"Instances not removed: {kept}. Their files "
                "could not be removed, they have been redriven meanwhile, or a daemon has not "
                "ended them yet."
            )


# ``errors`` and ``error``: list the error groups; show one, or perform an operation on it.


class Errors(Subcommand):
    name = "errors"
    help = "Error groups: causes of dead letters. Those with dead letters left come first."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--type", type=arguments.text, help='of this Type, or of a pattern as "dem.*"')
        add("--limit", type=arguments.positive, default=20, help="at most this many (default: 20)")

    def run(self, options: dict[str, Any]) -> Document:
        most, rows = options["limit"], []
        for left in ("true", "false"):
            groups = operations.filter_groups(
                queue.error_groups(), options["type"] or "", left=left
            )
            rows += paging.page(groups, ("-last_seen", "-id"), size=most).rows
        found = operations.load_groups(rows[:most])
        return {"time": overview.now(), "errors": list(map(operations.group_document, found))}

    def text(self, document: Document) -> str:
        if not document["errors"]:
            return "There is no error group."
        headings = ["name", "type", "count", "left", "collections", "last", "title"]
        now = document["time"]
        return present.table(headings, [_group_row(each, now) for each in document["errors"]])


def _group_row(document: Document, now: datetime) -> list[object]:
    has_older = document["left"] > operations.NEWEST
    return [
        document["name"],
        document["type"],
        document["count"],
        f"{document['left']}{'+' if document['is_more'] else ''}",
        f"{document['collections']}+" if has_older else document["collections"],
        text.age(document["last_seen"], now),
        text.shorten(document["title"], 60) + (" (muted)" if document["muted_by"] else ""),
    ]


class Error(Subcommand):
    name = "error"
    help = "One error group: show it, or call a verb on it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        words = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
        _add_name(add_operation(words, "show", "Show the error group."))
        for operation in OPERATIONS[ERROR].values():
            added = add_operation(words, operation.name, operation.explanation)
            _add_name(added)
            add_parameters(added, operation.parameters)
            if operation.is_final:
                added.add_argument("--yes", action="store_true", help="delete them, for good")

    def run(self, options: dict[str, Any]) -> Document:
        group = queue.get_error_group(options["group"])
        if options["verb"] == "show":
            return operations.group_document(operations.load_groups([group])[0])
        operation = OPERATIONS[ERROR][options["verb"]]
        values = given_values(operation.parameters, options)
        _require_yes(operation, values, options)
        return _outcome_document(operation.perform(group, actor(), **values))

    def text(self, document: Document) -> str:
        if "outcome" in document:
            return _format_outcome(document)
        facts = {k: v for k, v in document.items() if v not in ("", None, False)}
        times = ("first_seen", "last_seen", "muted_until")
        facts |= {name: text.moment(facts[name]) for name in times if name in facts}
        return present.pairs((name.replace("_", " "), value) for name, value in facts.items())


def _require_yes(
    operation: Operation, values: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    """Raise CommandError if a delete or a cancel has neither --yes nor --dry-run."""
    is_for_good = operation.is_final or operation.name == CANCEL
    if is_for_good and not values.get("dry_run") and not options.get("yes"):
        done = "deleted" if operation.is_final else "cancelled"
        raise CommandError(
            f"Nothing was {done}. Check with --dry-run first, then repeat it with --yes."
        )


def _format_outcome(document: Document) -> str:
    """Return the outcome in a document as text: one line, or several for a plan."""
    return "\n".join(map(present.printable, document["outcome"].splitlines()))


def _outcome_document(outcome: Outcome) -> Document:
    """Return the document of an outcome, with its plan or the Instance that it enqueued."""
    value = outcome.value
    document: Document = {"outcome": outcome.told}
    if isinstance(value, Plan):
        return document | {"plan": operations.plan_document(value)}
    return document | ({"instance": str(value.uuid)} if isinstance(value, Instance) else {})


def _add_name(parser: ArgumentParser) -> None:
    parser.add_argument(
        "group",
        type=arguments.text,
        help="its name, or the first digits of its name, if no other begins with them",
    )
