"""``redrive``, ``release``, ``cancel``, ``purge``, ``delete``: what changes Instances."""

from django.core.management.base import CommandError

from ... import queue
from ...conf import settings
from ...models import Type
from ...states import Reason, State
from ...store.values import CANCEL
from . import arguments
from .base import Subcommand, actor, find, instances
from .selecting import Selecting


class Redrive(Selecting):
    name = "redrive"
    doing, done = "redriving", "redriven"
    ways = "--type, --reason or --all"
    counts = ("redriven",)
    help = "Send FAILED Instances back to the queue, with their budgets as new."

    def add_ways(self, add):
        add("--type", type=arguments.text, help="the dead letters of this Type")
        add("--reason", type=arguments.reason, help="what FAILED for this reason")
        add("--all", action="store_true", help="the dead letters of all Types")

    def is_selecting(self, options):
        return options["all"] or options["type"] is not None or options["reason"] is not None

    def selection(self, options):
        """Dead letters; where a reason is given, what failed for it, dead letter or not."""
        rows = instances()
        rows = rows.failed(options["reason"]) if options["reason"] else rows.dead_letter()
        if options["type"] is not None:
            rows = rows.filter(type=queue.get_type(options["type"]))
        return rows

    def act(self, chosen):
        queue.redrive(*chosen, by=actor())
        return {"redriven": len(chosen)}

    def acted(self, rows):
        return {"redriven": rows.exclude(state=State.FAILED).count()}

    def text(self, document):
        return f"Instances redriven: {document['redriven']}"


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


class Cancel(Selecting):
    name = "cancel"
    doing, done = "cancelling", "cancelled"
    ways = "--type, --collection or both"
    counts = ("cancelled", "asked")
    help = "End live Instances: at once what waits, what runs by asking its daemon."

    def add_ways(self, add):
        add("--type", type=arguments.text, help="what waits of this Type")
        add("--collection", type=arguments.text, help="what waits of this collection")

    def is_selecting(self, options):
        return options["type"] is not None or options["collection"] is not None

    def selection(self, options):
        type = None if options["type"] is None else queue.get_type(options["type"])
        return instances().selected(
            state=State.ACCEPTED, type=type, collection=options["collection"] or ""
        )

    def act(self, chosen):
        asked = queue.cancel(*chosen, by=actor())
        return {"cancelled": len(chosen) - len(asked), "asked": len(asked)}

    def acted(self, rows):
        return {
            "cancelled": rows.failed(Reason.CANCELLED).count(),
            "asked": rows.filter(task__request=CANCEL).count(),
        }

    def text(self, document):
        told = f"Instances cancelled: {document['cancelled']}"
        if document["asked"]:
            told += f"\nInstances that their daemons are asked to end: {document['asked']}"
        return told


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
