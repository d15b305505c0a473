"""`list`, `show`, `enqueue`."""

import json
import logging
import shutil
import sys
from contextlib import closing
from datetime import timedelta
from io import BytesIO
from pathlib import Path

from django.core.management.base import CommandError

from .. import contracts, queue, text
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
from ..operations.operation import RETRIES, TIMEOUT
from ..options import EXISTING
from ..payload import binding, codec
from ..payload import json as tagged_json
from ..reports import documents, overview, paging
from ..reports.explaining.causes import OPEN
from ..reports.explaining.explain import why
from ..reports.timeline import ran, timeline, took
from ..states import TERMINAL, State
from ..web import permissions
from ..web.permissions import VIEW_INSTANCE, VIEW_RESPONSE, holds
from . import arguments, present
from .base import Subcommand, actor, current, find, instances

# Writing a raw response to a file or to stdout.


def write_body(response, target, command):
    """Write the body of a Response to the path ``target``, or to stdout if that is "-"."""
    with closing(_opened(response)) as body:
        if target != "-":
            _to_file(body, target)
        elif command.stdout.isatty():
            _to_terminal(body, response, command)
        else:
            _to_pipe(body, command)


def _opened(response):
    if not response.file:
        return BytesIO(response.body)
    try:
        return response.open()
    except OSError as error:
        raise CommandError(f"The stored response cannot be read: {error}") from error


def _to_file(body, target):
    try:
        with Path(target).open("wb") as file:
            shutil.copyfileobj(body, file)
    except OSError as error:
        raise CommandError(f"{target} cannot be written: {error.strerror}.") from error


def _to_pipe(body, command):
    stream = getattr(command.stdout, "buffer", None)
    if stream is None:  # call_command() collects text
        command.stdout.write(_text(body), ending="")
        return
    command.stdout.flush()
    shutil.copyfileobj(body, stream)
    stream.flush()


def _to_terminal(body, response, command):
    """Write a text with its control characters escaped. Refuse a body that is not text."""
    kind = response.content_type.partition(";")[0].strip().lower()
    if not (kind == "application/json" or kind.startswith("text/")):
        raise CommandError(
            f"The response is {response.content_type or 'binary'}: not for a terminal. "
            "Give --response a file, or redirect it."
        )
    command.stdout.write("\n".join(present.lines(_text(body))))


def _text(body):
    try:
        return body.read().decode()
    except UnicodeDecodeError:
        raise CommandError("The response is not text: give --response a file.") from None


# ``enqueue``: enqueue an Instance of a Type that this process declares.

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
            permissions.require_enqueue(acting.user, [called])
        contracts.require(task_type, args, kwargs)
        if acting is None:
            instance = called.enqueue(*args, **kwargs)
        else:
            call = queue.Call(task_type=called, args=args, kwargs=kwargs)
            [instance] = permissions.enqueue(acting.user, [call])
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
        lasted = text.duration(took(document, overview.now()))
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
        return text.shorten(json.dumps(response["value"]), 1000)
    return f"response: {present.printable(response['content_type'])}, {text.size(response['size'])}"


def _last_words(document):
    """Return the reason of a failure, and the line of the log record that names the error."""
    records = LogRecord.objects.using(settings.DATABASE).transitions()
    last = records.filter(instance__uuid=document["uuid"]).in_order().last()
    said = documents.headline(last.message) if last is not None else ""
    return ": ".join(filter(None, [document["reason"], present.printable(said)]))


# ``list``: list Instances, newest first, a page at a time.

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
        text.shorten(document["type"], 40),
        text.shorten(document["identifier"] or "", 60),
        state_of(document),
        document["retries"] + document["restarts"],
        text.percent(document["progress"]),
        text.age(document["created"], now),
        text.duration(took(document, now)),
    ]


def state_of(document):
    """Return the state of an Instance's document, with the reason if it has one."""
    return f"{document['state']} {document['reason']}".rstrip()


# ``show``: show an Instance with its inputs, response, steps and log.

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
        "hooks": [hook.uuid for hook in documents.written_hooks(instance)],
        "hook_of": instance.hook_of,
        "inputs": documents.inputs(queue.inputs(instance)),
        "ran": ran(timeline(instance), now),
        "response": documents.response(queue.response(instance)),
        "steps": [documents.step_document(row, now) for row in queue.steps(instance)],
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
            ("time-out", text.duration(document["timeout"]) or None),
            ("max. retries", document["max_retries"]),
            *(("waits for", each) for each in document["waits_for"]),
            ("held by", task["daemon"]),
            ("asked to", documents.asked(document["state"], task["request"])),
            ("hook of", document["hook_of"]),
            ("started", _at(document["started"], now)),
            ("finished", _at(document["finished"], now)),
            ("elapsed", text.duration(took(document, now))),
            ("ran", text.duration(document["ran"])),
            *(("hook", uuid) for uuid in document["hooks"]),
        ]
    )


def _at(time, now):
    if time is None:
        return None
    relative = text.ago(time, now) if time <= now else text.due(time, now)
    return f"{text.moment(time)} ({relative})"


def _by(document):
    return f"by {document['created_by']}" if document["created_by"] else ""


def _progress(document):
    if document["progress"] is None:
        return None
    return f"{text.percent(document['progress'])} {document['progress_message']}".rstrip()


def _show_inputs(document):
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
    return text.shorten(present.printable(json.dumps(stored, ensure_ascii=False)), SHOWN)


def _response(document):
    rows = [
        ("content type", document["content_type"]),
        ("size", text.size(document["size"]) if document["content_type"] else None),
        ("stored as", document["file"]),
        ("value", _value(document["value"]) if document["value"] is not None else None),
    ]
    files = [
        ("file", f"{f['path']} ({f['content_type']}, {text.size(f['size'])})")
        for f in document["files"]
    ]
    rows = [(f"{present.INDENT}{name}", value) for name, value in rows + files]
    return "response\n" + (present.pairs(rows) or f"{present.INDENT}none")


_SECTIONS = {"inputs": _show_inputs, "response": _response}


def _steps(documents):
    rows = []
    for step in documents:
        end = step["finished"] or step["until"]
        took = "" if end is None else text.duration(end - step["started"])
        if step["until"]:
            result = f"a sleep until {text.moment(step['until'])}"
        elif step["finished"] is None:
            result = "result not known"
        else:
            is_json = step["format"] == codec.JSON
            result = _value(step["value"]) if is_json else f"a signed {step['format']}"
        began = text.moment(step["started"], precise=True)
        name = f"{present.INDENT}{present.printable(step['name'])}"
        rows.append((name, f"#{step['attempt']} {began} {took}: {result}"))
    return "steps\n" + present.pairs(rows)


def _log(records):
    lines = ["log"]
    repeated = text.repetitions((record["message"], record["attempt"]) for record in records)
    for record, same_as in zip(records, repeated, strict=True):
        lines += _log_lines(record, same_as)
    return "\n".join(lines)


def _log_lines(record, same_as):
    """Yield the lines of a log record: time, attempt, message and actor; then its traceback."""
    first, *more = present.lines(text.without_own_frames(record["message"])) or [""]
    if same_as is not None:
        headline = present.printable(text.headline(record["message"]))
        first, more = f"{headline} (with the traceback of #{same_as})", []
    what = f"{record['event']} → {record['state']}" if record["event"] else ""
    level = "" if record["level"] <= logging.INFO else logging.getLevelName(record["level"])
    said = ": ".join(part for part in (what, level, first) if part)
    who = f" [{present.printable(record['who'])}]" if record["who"] else ""
    attempt = "" if record["attempt"] is None else f"#{record['attempt']}"
    time = text.moment(record["time"], precise=True)
    yield f"{present.INDENT}{time}  {attempt:<3} {said}{who}"
    for line in more:
        yield f"{present.INDENT * 3}{line}"
