"""``show``: all about one Instance."""

import json
import logging

from django.core.management.base import CommandError

from ... import codec, documents, overview, queue, waiting, wording
from ...conf import settings
from ...exceptions import CorruptData
from ...models import LogRecord
from ...timeline import ran, timeline
from . import arguments, present
from .base import Subcommand, find
from .body import write_body
from .listing import state_of

# Longest value of inputs and response in the text, in characters.
SHOWN = 1000


class Show(Subcommand):
    name = "show"
    help = "One Instance with its inputs, response and log; or its raw response."

    def add_arguments(self, parser):
        add = parser.add_argument
        add("uuid", nargs="?", type=arguments.uuid_prefix, help="its uuid, or how only it begins")
        add("--type", type=arguments.text, help="its Type, with --identifier instead of the uuid")
        add("--identifier", type=arguments.text, help="its identifier")
        add(
            "--response",
            nargs="?",
            const="-",
            metavar="FILE",
            help="write the raw response to this file, or to stdout, and nothing else",
        )

    def run(self, options):
        instance = _instance(options)
        if options["response"] is None:
            return _document(instance)
        if options["json"]:
            raise CommandError("--response is raw: it goes without --json.")
        write_body(queue.response(instance), options["response"], self.command)
        return None

    def text(self, document):
        parts = [_facts(document)]
        for name in ("inputs", "response"):
            if document[name] is not None:
                parts.append(_SECTIONS[name](document[name]))
        parts.append(_log(document["log"]))
        return "\n\n".join(parts)


def _instance(options):
    by_identifier = (options["type"], options["identifier"])
    if options["uuid"] is not None:
        if any(by_identifier):
            raise CommandError("Give either a uuid, or --type and --identifier.")
        return find(options["uuid"])
    if not all(by_identifier):
        raise CommandError("Which one? Give a uuid, or --type and --identifier.")
    return queue.get(type=queue.get_type(options["type"]), identifier=options["identifier"])


def _document(instance):
    log = LogRecord.objects.using(settings.DATABASE).of_instance(instance)
    task = queue.task(instance)
    return {
        **documents.instance(instance),
        "task": documents.task(task),
        "waits_for": list(waiting.why(instance, task)),
        "inputs": documents.inputs(queue.inputs(instance)),
        "ran": ran(timeline(instance), overview.now()),
        "response": documents.response(queue.response(instance)),
        "log": [documents.log_record(record) for record in log],
    }


def _facts(document):
    now = overview.now()
    task = document["task"] or {"due_at": None, "daemon": None, "request": ""}
    counts = ", ".join(f"{document[name]} {name}" for name in ("restarts", "retries", "lost"))
    waits = task["daemon"] is None
    return present.pairs(
        [
            ("uuid", document["uuid"]),
            ("type", document["type"]),
            ("identifier", document["identifier"]),
            ("state", state_of(document)),
            ("progress", _progress(document)),
            ("collection", document["collection"]),
            ("priority", document["priority"]),
            ("attempt", f"{document['attempt']} ({counts})"),
            ("created", f"{_at(document['created'], now)} {_by(document)}".rstrip()),
            ("due", _at(task["due_at"], now) if waits else None),
            ("start before", _at(document["start_before"], now)),
            *(("waits for", each) for each in document["waits_for"]),
            ("held by", task["daemon"]),
            ("asked to", documents.asked(document["state"], task["request"])),
            ("started", _at(document["started"], now)),
            ("finished", _at(document["finished"], now)),
            ("elapsed", wording.duration(documents.took(document, now))),
            ("ran", wording.duration(document["ran"])),
        ]
    )


def _at(time, now):
    if time is None:
        return None
    relative = wording.age(time, now)
    return f"{wording.moment(time)} ({relative}{' ago' if time <= now else ''})"


def _by(document):
    return f"by {document['created_by']}" if document["created_by"] else ""


def _progress(document):
    if document["progress"] is None:
        return None
    return f"{wording.percent(document['progress'])} {document['progress_message']}".rstrip()


def _inputs(document):
    if document["format"] != codec.JSON:
        return f"inputs: a signed {document['format']}, not opened here"
    value = document["value"]
    if not isinstance(value, dict):
        return f"inputs: {_value(value)}"
    rows = [(f"{present.INDENT}{present.printable(name)}", _value(value[name])) for name in value]
    return "inputs\n" + (present.pairs(rows) or f"{present.INDENT}none")


def _value(stored):
    """A stored value as Python writes it, shortened."""
    try:
        decoded = codec.from_json(json.dumps(stored))
    except CorruptData:
        decoded = stored
    return wording.shorten(repr(decoded), SHOWN)


def _response(document):
    rows = [
        ("content type", document["content_type"]),
        ("size", wording.size(document["size"]) if document["content_type"] else None),
        ("stored as", document["file"]),
        ("value", _value(document["value"]) if document["value"] is not None else None),
    ]
    files = [
        ("file", f"{f['path']} ({f['content_type']}, {wording.size(f['size'])})")
        for f in document["files"]
    ]
    rows = [(f"{present.INDENT}{name}", value) for name, value in rows + files]
    return "response\n" + (present.pairs(rows) or f"{present.INDENT}none")


_SECTIONS = {"inputs": _inputs, "response": _response}


def _log(records):
    return "\n".join(["log", *(line for record in records for line in _log_lines(record))])


def _log_lines(record):
    """One record: its time and attempt, what it says, and who; a traceback below it."""
    first, *more = present.lines(record["message"]) or [""]
    what = f"{record['event']} → {record['state']}" if record["event"] else ""
    level = "" if record["level"] <= logging.INFO else logging.getLevelName(record["level"])
    said = ": ".join(part for part in (what, level, first) if part)
    who = f" [{present.printable(record['who'])}]" if record["who"] else ""
    attempt = "" if record["attempt"] is None else f"#{record['attempt']}"
    time = wording.moment(record["time"], precise=True)
    yield f"{present.INDENT}{time}  {attempt:<3} {said}{who}"
    for line in more:
        yield f"{present.INDENT * 3}{line}"
