"""``change``: priority, due time and collection of what waits."""

from datetime import timedelta

from django.core.management.base import CommandError
from django.db import transaction

from ... import overview, queue
from ...conf import settings
from . import arguments
from .base import Subcommand, actor, find

_AT_ONCE = timedelta()


class Change(Subcommand):
    name = "change"
    help = "Change Instances that wait: priority, due time, collection."

    def add_arguments(self, parser):
        add = parser.add_argument
        add("uuid", nargs="+", type=arguments.uuid_prefix, help="these; all of them, or none")
        add("--priority", type=arguments.whole, help="from -100 to 100, higher first")
        when = parser.add_mutually_exclusive_group()
        when.add_argument(
            "--due",
            type=arguments.moment,
            metavar="WHEN",
            help="not earlier than this: 2030-01-31T18:00, or a delay from now as 1h30m",
        )
        when.add_argument("--run-now", action="store_true", help="due at once")
        when.add_argument(
            "--postpone",
            type=arguments.delay,
            metavar="DELAY",
            help="so much later than it was due, or than now if it is due: 90s, 10m, 2h, 1d",
        )
        add("--collection", type=arguments.text, help="its collection; '' is none")

    def run(self, options):
        given = {name: options[name] for name in ("priority", "collection", "due", "postpone")}
        if options["run_now"]:
            given["due"] = _AT_ONCE
        if all(value is None for value in given.values()):
            raise CommandError(
                "What? Give --priority, --due, --run-now, --postpone or --collection."
            )
        chosen = [find(prefix) for prefix in dict.fromkeys(options["uuid"])]
        with transaction.atomic(using=settings.DATABASE):
            queue.change(*chosen, **given, by=actor())
        return {"time": overview.now(), "instances": [_document(each) for each in chosen]}

    def text(self, document):
        return f"Instances changed: {len(document['instances'])}"


def _document(instance):
    task = queue.task(instance)
    return {
        "uuid": instance.uuid,
        "priority": instance.priority,
        "collection": instance.collection,
        "due_at": None if task is None else task.due_at,
    }
