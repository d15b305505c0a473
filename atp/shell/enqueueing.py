"""``enqueue``: enqueue an Instance of a Type that this process declares."""

import json
import sys
from datetime import timedelta

from django.core.management.base import CommandError

from .. import contracts, queue
from ..conf import settings
from ..exceptions import (
    CorruptData,
    InvalidInputs,
    InvalidOption,
    NotSerializable,
    UnknownInstance,
    WaitTimeout,
)
from ..models import LogRecord
from ..payload import binding, tagged_json
from ..reports import documents, failures, overview
from ..reports.explaining.causes.table import OPEN
from ..reports.timeline import took
from ..states import TERMINAL, State
from ..web import enqueueing
from ..web.permissions import VIEW_INSTANCE, VIEW_RESPONSE, holds
from ..words import wording
from ..words.kinds import RETRIES, TIMEOUT
from ..words.options import EXISTING
from . import arguments, present
from .acting import current
from .base import Subcommand, actor
from .listing import state_of

# The exit status if the Instance has not ended within the time of --wait.
STILL_LIVE = 3
INTERRUPTED = 130
_OPTIONS = (
    *("identifier", "existing", "priority", "collection", "run_after", "start_before"),
    *("timeout", "max_retries", "unique"),
)


class Enqueue(Subcommand):
    name = "enqueue"
    help = "Enqueue an Instance, and wait for its end if asked to."

    def add_arguments(self, parser):
        add = parser.add_argument
        add("type", type=arguments.text, help="the Type")
        add(
            "inputs",
            nargs="?",
            default="{}",
            help="JSON: an object of keyword arguments, or an array of positional ones; "
            "'-' reads it from stdin",
        )
        add("--identifier", type=arguments.text, help="idempotency key, unique within the Type")
        add("--unique", type=arguments.text, help="key that one live Instance of the Type may have")
        told = f"if the identifier or key is taken: {', '.join(EXISTING)}"
        add("--existing", metavar="WHAT", help=told)
        add("--priority", type=arguments.priority, help="from -100 to 100, higher first")
        add("--collection", type=arguments.text, help="label of a subset of the Type's Instances")
        moment = {"type": arguments.moment, "metavar": "WHEN"}
        add("--run-after", **moment, help="start at or after 2030-01-31T18:00, or a delay as 1h30m")
        add("--start-before", **moment, help="FAILED (MISSED) if it has not started by then")
        add(
            "--timeout",
            type=arguments.of(TIMEOUT),
            metavar="TIME",
            help="time-out, as 90s or 2h, instead of the Type's",
        )
        add(
            "--max-retries",
            type=arguments.of(RETRIES),
            metavar="NUMBER",
            help="retries after attempts that raised, instead of the Type's",
        )
        add(
            "--wait",
            nargs="?",
            const=float("inf"),
            type=arguments.seconds,
            metavar="SECONDS",
            help=f"wait for its end, at most this long; exit status 1 if it FAILED, "
            f"{STILL_LIVE} if it has not ended",
        )

    def run(self, options):
        task_type = queue.declared(options["type"])
        args, kwargs = _inputs(options["inputs"])
        given = {name: options[name] for name in _OPTIONS if options[name] is not None}
        if isinstance(given.get("start_before"), timedelta):
            given["start_before"] = overview.now() + given["start_before"]
        if "existing" in given and not given.keys() & {"identifier", "unique"}:
            raise InvalidOption(
                "--existing says what to do if the --identifier or the --unique key is taken: "
                "give one."
            )
        called, acting = task_type.using(created_by=actor(), **given), current()
        if acting is not None:
            enqueueing.require_enqueue(acting.user, [called])
        contracts.require(task_type, args, kwargs)
        if acting is None:
            instance = called.enqueue(*args, **kwargs)
        else:
            call = queue.Call(task_type=called, args=args, kwargs=kwargs)
            [instance] = enqueueing.enqueue(acting.user, [call])
        if options["wait"] is not None:
            self._tell_obstacle(instance)
            _wait(instance, options["wait"])
        try:
            instance = queue.get(instance.uuid)
        except UnknownInstance:
            # A Type with retention=0 keeps no Instance that has FINISHED.
            instance.wait(timeout=0)
        document = documents.instance(instance)
        may_see = acting is None or holds(acting.user, VIEW_RESPONSE, instance)
        response = queue.response(instance) if may_see else None
        return document | {"response": documents.response(response)}

    def _tell_obstacle(self, instance):
        """Tell the person who waits if somebody has to do something first."""
        acting = current()
        if acting is not None and not holds(acting.user, VIEW_INSTANCE, instance):
            return
        for reason in queue.explain(instance).reasons:
            if reason.code in OPEN:
                self.say(f"{instance.uuid} waits. {present.printable(reason.sentence)}")
                return

    def text(self, document):
        told = f"{document['uuid']}  {state_of(document)}"
        lasted = wording.duration(took(document, overview.now()))
        if document["finished"] and lasted and document["attempt"] > 1:
            told += f" after {document['attempt']} attempts; the last took {lasted}"
        elif document["finished"] and lasted:
            told += f" after {lasted}"
        response = document["response"]
        if response and response["content_type"]:
            told += f"\n{_answer(response)}"
        return told

    def check(self, document, options):
        if options["wait"] is None:
            return
        if document["state"] not in TERMINAL:
            told = f"{document['uuid']} is still {state_of(document)}."
            raise CommandError(told, returncode=STILL_LIVE)
        if document["state"] == State.FAILED:
            raise CommandError(f"{document['uuid']} is FAILED: {_last_words(document)}")


def _inputs(given):
    """Return the inputs as positional and keyword arguments. Raises InvalidInputs."""
    text = _stdin() if given == "-" else given
    try:
        return binding.arguments(tagged_json.from_plain(tagged_json.parse(text)))
    except NotSerializable as error:
        raise InvalidInputs(f"The inputs are {error}") from None
    except CorruptData as error:
        raise InvalidInputs(f"The inputs cannot be read. {error}") from None


def _stdin():
    try:
        return "" if sys.stdin is None else sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise InvalidInputs(f"The inputs are not UTF-8: {error}") from None


def _wait(instance, seconds):
    try:
        instance.wait(timeout=None if seconds == float("inf") else seconds)
    except WaitTimeout:
        pass  # the document says so, and then check()
    except KeyboardInterrupt:
        told = f"No longer waiting; {instance.uuid} stays in the queue."
        raise CommandError(told, returncode=INTERRUPTED) from None


def _answer(response):
    if response["value"] is not None:
        return wording.shorten(json.dumps(response["value"]), 1000)
    return (
        f"response: {present.printable(response['content_type'])}, {wording.size(response['size'])}"
    )


def _last_words(document):
    """Return the reason of a failure, and the line of the log record that names the error."""
    records = LogRecord.objects.using(settings.DATABASE).transitions()
    last = records.filter(instance__uuid=document["uuid"]).in_order().last()
    said = failures.headline(last.message) if last is not None else ""
    return ": ".join(filter(None, [document["reason"], present.printable(said)]))
