"""``redrive``, ``release``, ``cancel``, ``purge``, ``delete``: what changes Instances."""

import sys

from django.core.management.base import CommandError
from django.db import transaction

from ... import queue, steering
from ...conf import settings
from ...exceptions import IllegalTransition, UnknownInstance
from ...models import Type
from ...states import Reason, State
from . import arguments
from .base import Subcommand, actor, find, instances


class Steering(Subcommand):
    """One that takes selections, which are asked about first. ``done`` is what is done to them."""

    done = ""

    def confirm(self, count, options):
        """Say how many there are, and ask, or want --yes, before anything is written."""
        self.say(f"Instances selected: {count}")
        if options["yes"] or not count:
            return
        if options["json"] or not sys.stdin.isatty():
            raise CommandError(f"Nothing was {self.done}: a selection needs --yes.")
        self.say(f"{self.name.capitalize()} them? [y/N] ")
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError(f"Nothing was {self.done}.")


class Redrive(Steering):
    name = "redrive"
    done = "redriven"
    help = "Send FAILED Instances back to the queue, with their budgets as new."

    def add_arguments(self, parser):
        add = parser.add_argument
        add("uuid", nargs="*", type=arguments.uuid_prefix, help="these; all of them, or none")
        add("--type", type=arguments.text, help="the dead letters of this Type")
        add("--reason", type=arguments.reason, help="what FAILED for this reason")
        add("--all", action="store_true", help="the dead letters of all Types")
        add("--yes", action="store_true", help="do not ask before redriving a selection")

    def run(self, options):
        selecting = options["all"] or options["type"] is not None or options["reason"] is not None
        if bool(options["uuid"]) == bool(selecting):
            raise CommandError(
                "Which ones? Give either uuids, or a selection by --type, --reason or --all."
            )
        if not selecting:
            chosen = [find(prefix) for prefix in dict.fromkeys(options["uuid"])]
            with transaction.atomic(using=settings.DATABASE):
                queue.redrive(*chosen, by=actor())
            return {"redriven": len(chosen)}
        selected = _dead_letters(options)
        self.confirm(selected.count(), options)
        return {"redriven": sum(_redrive(chunk) for chunk in _chunks(selected))}

    def text(self, document):
        return f"Instances redriven: {document['redriven']}"


def _dead_letters(options):
    """Dead letters; where a reason is given, what failed for it, dead letter or not."""
    rows = instances()
    rows = rows.failed(options["reason"]) if options["reason"] else rows.dead_letter()
    if options["type"] is not None:
        rows = rows.filter(type=queue.get_type(options["type"]))
    return rows


def _chunks(selected):
    """Yield lists of Instances, oldest first, up to the newest that there is now."""
    last = 0
    end = selected.order_by("pk").values_list("pk", flat=True).last()
    while end is not None and last < end:
        chunk = list(selected.filter(pk__gt=last, pk__lte=end).order_by("pk")[: steering.CHUNK])
        if not chunk:
            return
        last = chunk[-1].pk
        yield chunk


def _redrive(chunk):
    """Redrive what still can be, and return how many are back in the queue."""
    try:
        queue.redrive(*chunk, by=actor())
    except (IllegalTransition, UnknownInstance):
        # Somebody was quicker with one of them: the others are redriven all the same.
        keys = [instance.pk for instance in chunk]
        return instances().filter(pk__in=keys).exclude(state=State.FAILED).count()
    return len(chunk)


class Release(Subcommand):
    name = "release"
    help = "Ask the daemon that holds an Instance to stop its attempt and hand it back."

    def add_arguments(self, parser):
        parser.add_argument(
            "uuid", type=arguments.uuid_prefix, help="its uuid, or how only it begins"
        )

    def run(self, options):
        instance = find(options["uuid"])
        asked = queue.release(instance, by=actor())
        return {"uuid": instance.uuid, "state": instance.state, "asked": asked}

    def text(self, document):
        if document["asked"]:
            return f"The daemon that holds {document['uuid']} is asked to hand it back."
        return f"{document['uuid']} waits in the queue already: nothing was done."


class Cancel(Steering):
    name = "cancel"
    done = "cancelled"
    help = "End live Instances: at once what waits, what runs by asking its daemon."

    def add_arguments(self, parser):
        add = parser.add_argument
        add("uuid", nargs="*", type=arguments.uuid_prefix, help="these; all of them, or none")
        add("--type", type=arguments.text, help="what waits of this Type")
        add("--collection", type=arguments.text, help="what waits of this collection")
        add("--yes", action="store_true", help="do not ask before cancelling a selection")

    def run(self, options):
        selecting = options["type"] is not None or options["collection"] is not None
        if bool(options["uuid"]) == selecting:
            raise CommandError(
                "Which ones? Give either uuids, or a selection by --type, --collection or both."
            )
        if not selecting:
            chosen = [find(prefix) for prefix in dict.fromkeys(options["uuid"])]
            with transaction.atomic(using=settings.DATABASE):
                asked = queue.cancel(*chosen, by=actor())
            return {"cancelled": len(chosen) - len(asked), "asked": len(asked)}
        selected = _waiting(options)
        self.confirm(selected.count(), options)
        counts = [_cancel(chunk) for chunk in _chunks(selected)]
        return {
            "cancelled": sum(cancelled for cancelled, _ in counts),
            "asked": sum(asked for _, asked in counts),
        }

    def text(self, document):
        told = f"Instances cancelled: {document['cancelled']}"
        if document["asked"]:
            told += f"\nInstances that their daemons are asked to end: {document['asked']}"
        return told


def _waiting(options):
    type = None if options["type"] is None else queue.get_type(options["type"])
    return instances().selected(
        state=State.ACCEPTED, type=type, collection=options["collection"] or ""
    )


def _cancel(chunk):
    """Cancel what still can be; returns how many have FAILED and how many a daemon has by now."""
    try:
        asked = queue.cancel(*chunk, by=actor())
    except (IllegalTransition, UnknownInstance):
        # Somebody was quicker with one of them: the others are cancelled all the same.
        rows = instances().filter(pk__in=[instance.pk for instance in chunk])
        failed = rows.failed(Reason.CANCELLED).count()
        return failed, rows.filter(task__request=steering.CANCEL).count()
    return len(chunk) - len(asked), len(asked)


class Purge(Subcommand):
    name = "purge"
    help = "Remove what has ended longer ago than the retention of its Type."

    def add_arguments(self, parser):
        parser.add_argument("--type", type=arguments.text, help="of this Type only")

    def run(self, options):
        if options["type"] is not None:
            queue.get_type(options["type"])
        return {
            "removed": queue.purge(type=options["type"], by=actor()),
            "kept_for_ever": _without_retention(options["type"]),
        }

    def text(self, document):
        told = f"Instances removed: {document['removed']}"
        if document["kept_for_ever"]:
            told += f"\nTypes without retention: {', '.join(document['kept_for_ever'])}"
        return told


def _without_retention(identifier):
    types = Type.objects.using(settings.DATABASE).filter(retention__isnull=True)
    types = types if identifier is None else types.filter(identifier=identifier)
    return list(types.values_list("identifier", flat=True))


class Delete(Subcommand):
    name = "delete"
    help = "Remove Instances that have ended, or are cancelled first, with all that is theirs."

    def add_arguments(self, parser):
        add = parser.add_argument
        add("uuid", nargs="+", type=arguments.whole_uuid, help="whole uuids")
        add("--cancel", action="store_true", help="cancel those first that have not ended")
        add(
            "--wait",
            type=arguments.seconds,
            default=15.0,
            metavar="SECONDS",
            help="with --cancel: how long to wait for those that a daemon holds (%(default)g)",
        )

    def run(self, options):
        chosen = [find(uuid) for uuid in dict.fromkeys(options["uuid"])]
        how = {"cancel": True, "wait": options["wait"]} if options["cancel"] else {}
        removed = queue.delete(*chosen, by=actor(), **how)
        return {"asked": len(chosen), "removed": removed}

    def text(self, document):
        return f"Instances removed: {document['removed']}"

    def check(self, document, options):
        if document["removed"] < document["asked"]:
            raise CommandError(
                f"{document['asked'] - document['removed']} could not be removed: "
                "their files could not be, they have been redriven meanwhile, or a daemon has "
                "not ended them yet."
            )
