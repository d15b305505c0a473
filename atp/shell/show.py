"""``show``: show an Instance with its inputs, response, steps and log."""

import json
import logging

from django.core.management.base import CommandError

from .. import queue
from ..conf import settings
from ..models import LogRecord
from ..payload import codec
from ..reports import documents, hooks, overview, steps
from ..reports.explaining.explain import why
from ..reports.timeline import ran, timeline, took
from ..words import wording
from . import arguments, present
from .base import Subcommand, find
from .body import write_body
from .listing import state_of

# The most characters of one value in the text.
SHOWN = 1000


class Show(Subcommand):
    name = "show"
    help = "One Instance with its inputs, response, steps and log; or its raw response."

    def add_arguments(self, parser):
        add = parser.add_argument
        add("uuid", nargs="?", type=arguments.uuid_prefix, help="its uuid, or its first digits")
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
            raise CommandError("--response writes raw bytes: give it without --json.")
        response = queue.response(instance)
        if response is None or (response.data is None and not response.file):
            state = " ".join(filter(None, [instance.state, instance.reason]))
            raise CommandError(f"There is no response: the Instance is {state}.")
        write_body(response, options["response"], self.command)
        return None

    def text(self, document):
        parts = [_facts(document)]
        for name in ("inputs", "response"):
            if document[name] is not None:
                parts.append(_SECTIONS[name](document[name]))
        if document["steps"]:
            parts.append(_steps(document["steps"]))
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
    found = queue.get(type=queue.get_type(options["type"]), identifier=options["identifier"])
    return find(str(found.uuid))


def _document(instance):
    log = LogRecord.objects.using(settings.DATABASE).of_instance(instance)
    task = queue.task(instance)
    now = overview.now()
    return {
        **documents.instance(instance),
        "task": documents.task(task),
        "waits_for": list(why(instance, task)),
        "hooks": [hook.uuid for hook in hooks.written(instance)],
        "hook_of": instance.hook_of,
        "inputs": documents.inputs(queue.inputs(instance)),
        "ran": ran(timeline(instance), now),
        "response": documents.response(queue.response(instance)),
        "steps": [steps.document(row, now) for row in queue.steps(instance)],
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
            ("tried again", f"{document['retries'] + document['restarts']} ({counts})"),
            ("claims", document["attempt"]),
            ("created", f"{_at(document['created'], now)} {_by(document)}".rstrip()),
            ("due", _at(task["due_at"], now) if waits else None),
            ("start before", _at(document["start_before"], now)),
            ("unique", document["unique"]),
            ("time-out", wording.duration(document["timeout"]) or None),
            ("max. retries", document["max_retries"]),
            *(("waits for", each) for each in document["waits_for"]),
            ("held by", task["daemon"]),
            ("asked to", documents.asked(document["state"], task["request"])),
            ("hook of", document["hook_of"]),
            ("started", _at(document["started"], now)),
            ("finished", _at(document["finished"], now)),
            ("elapsed", wording.duration(took(document, now))),
            ("ran", wording.duration(document["ran"])),
            *(("hook", uuid) for uuid in document["hooks"]),
        ]
    )


def _at(time, now):
    if time is None:
        return None
    relative = wording.ago(time, now) if time <= now else wording.due(time, now)
    return f"{wording.moment(time)} ({relative})"


def _by(document):
    return f"by {document['created_by']}" if document["created_by"] else ""


def _progress(document):
    if document["progress"] is None:
        return None
    return f"{wording.percent(document['progress'])} {document['progress_message']}".rstrip()


def _inputs(document):
    carried = document["carried"]
    below = f"\n\ncarried\n{_named(carried)}" if carried else ""
    if document["format"] != codec.JSON:
        return f"inputs: a signed {document['format']}, not opened here{below}"
    value = document["value"]
    if not isinstance(value, dict):
        return f"inputs: {_value(value)}{below}"
    return "inputs\n" + (_named(value) or f"{present.INDENT}none") + below


def _named(values):
    rows = [(f"{present.INDENT}{present.printable(name)}", _value(values[name])) for name in values]
    return present.pairs(rows)


def _value(stored):
    """Return a stored value as JSON, which ``atp enqueue`` takes; a long one is shortened."""
    return wording.shorten(present.printable(json.dumps(stored, ensure_ascii=False)), SHOWN)


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


def _steps(documents):
    rows = []
    for step in documents:
        end = step["finished"] or step["until"]
        took = "" if end is None else wording.duration(end - step["started"])
        if step["until"]:
            result = f"a sleep until {wording.moment(step['until'])}"
        elif step["finished"] is None:
            result = "result not known"
        else:
            is_json = step["format"] == codec.JSON
            result = _value(step["value"]) if is_json else f"a signed {step['format']}"
        began = wording.moment(step["started"], precise=True)
        name = f"{present.INDENT}{present.printable(step['name'])}"
        rows.append((name, f"#{step['attempt']} {began} {took}: {result}"))
    return "steps\n" + present.pairs(rows)


def _log(records):
    lines = ["log"]
    repeated = wording.repetitions((record["message"], record["attempt"]) for record in records)
    for record, same_as in zip(records, repeated, strict=True):
        lines += _log_lines(record, same_as)
    return "\n".join(lines)


def _log_lines(record, same_as):
    """Yield the lines of a log record: time, attempt, message and actor; then its traceback."""
    first, *more = present.lines(wording.without_own_frames(record["message"])) or [""]
    if same_as is not None:
        headline = present.printable(wording.headline(record["message"]))
        first, more = f"{headline} (with the traceback of #{same_as})", []
    what = f"{record['event']} → {record['state']}" if record["event"] else ""
    level = "" if record["level"] <= logging.INFO else logging.getLevelName(record["level"])
    said = ": ".join(part for part in (what, level, first) if part)
    who = f" [{present.printable(record['who'])}]" if record["who"] else ""
    attempt = "" if record["attempt"] is None else f"#{record['attempt']}"
    time = wording.moment(record["time"], precise=True)
    yield f"{present.INDENT}{time}  {attempt:<3} {said}{who}"
    for line in more:
        yield f"{present.INDENT * 3}{line}"
