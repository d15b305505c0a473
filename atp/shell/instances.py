"""The subcommands ``list``, ``show`` and ``enqueue``."""

from __future__ import annotations

import json
import logging
import shutil
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

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
from ..models import Instance, Kind, LogRecord, Response
from ..operations.operation import RETRIES, TIMEOUT
from ..operations.table import INSTANCE, OPERATIONS
from ..options import EXISTING
from ..payload import binding, codec
from ..payload import json as tagged_json
from ..querysets import InstanceQuerySet
from ..reports import documents, listing, overview, paging
from ..reports.documents import Document
from ..reports.explaining.causes import OPEN
from ..reports.explaining.explain import why
from ..reports.listing import MOST_EXPORTED, NEWEST_FIRST, Export, daemons_named
from ..reports.timeline import attempt_duration, run_time_without_pauses, timeline
from ..states import TERMINAL, State
from ..web import permissions
from ..web.permissions import VIEW_INPUTS, VIEW_INSTANCE, VIEW_RESPONSE, holds
from . import arguments, present
from .base import Subcommand, acting_user, actor, find_instance, visible_instances

# The exit status if the Instance has not ended within the time of --wait.
STILL_LIVE = 3
# The exit status if the user interrupts --wait.
INTERRUPTED = 130
# The most characters of one value that ``show`` prints.
_MAX_VALUE = 1000
_OPTIONS = (
    *("identifier", "existing", "priority", "collection", "run_after", "start_before"),
    *("timeout", "max_retries", "unique"),
)
_FILTERS = (
    *("state", "reason", "collection", "identifier", "created_by"),
    *("ended_after", "ended_before", "longer_than", "tried_again"),
)
# The number of Instances that ``list`` shows, and the formats in which it writes all of them.
_LISTED = 20
FORMATS = {"csv": "CSV", "jsonl": "JSON lines"}


class Enqueue(Subcommand):
    name = "enqueue"
    help = "Enqueue an Instance, and wait for its end if asked to."

    def add_arguments(self, parser: ArgumentParser) -> None:
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
        choices = f"if the identifier or key is taken: {', '.join(EXISTING)}"
        add("--existing", metavar="WHAT", help=choices)
        add("--priority", type=arguments.priority, help="from -100 to 100, higher first")
        add("--collection", type=arguments.text, help="label of a subset of the Type's Instances")
        moment: dict[str, Any] = {"type": arguments.moment, "metavar": "WHEN"}
        add("--run-after", **moment, help="start at or after 2030-01-31T18:00, or a delay as 1h30m")
        add("--start-before", **moment, help="FAILED (MISSED) if it has not started by then")
        add(
            "--timeout",
            type=arguments.make_reader(TIMEOUT),
            metavar="TIME",
            help="time-out, as 90s or 2h, instead of the Type's",
        )
        add(
            "--max-retries",
            type=arguments.make_reader(RETRIES),
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

    def run(self, options: dict[str, Any]) -> Document:
        task_type = queue.declared(options["type"])
        args, kwargs = _read_inputs(options["inputs"])
        values = {name: options[name] for name in _OPTIONS if options[name] is not None}
        if isinstance(values.get("start_before"), timedelta):
            values["start_before"] = overview.now() + values["start_before"]
        if "existing" in values and not values.keys() & {"identifier", "unique"}:
            raise InvalidOption(
                "--existing needs --identifier or --unique. It says what to do if one of them is "
                "taken."
            )
        called, acting = task_type.using(created_by=actor(), **values), acting_user()
        if acting is not None:
            permissions.require_enqueue(acting.user, [called])
        contracts.require(task_type, args, kwargs)
        if acting is None:
            instance = called.enqueue(*args, **kwargs)
        else:
            call = queue.Call(task_type=called, args=args, kwargs=kwargs)
            [instance] = permissions.enqueue(acting.user, [call])
        if options["wait"] is not None:
            self._warn_of_obstacle(instance)
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

    def _warn_of_obstacle(self, instance: Instance) -> None:
        """Warn the user of ``--wait`` if nobody knows when the Instance can start."""
        acting = acting_user()
        if acting is not None and not holds(acting.user, VIEW_INSTANCE, instance):
            return
        for reason in queue.explain(instance).reasons:
            if reason.code in OPEN:
                self.say(f"{instance.uuid} waits. {present.printable(reason.sentence)}")
                return

    def text(self, document: Document) -> str:
        line = f"{document['uuid']}  {_describe_state(document)}"
        lasted = text.duration(attempt_duration(document, overview.now()))
        if document["finished"] and lasted and document["attempt"] > 1:
            line += f" after {document['attempt']} attempts; the last took {lasted}"
        elif document["finished"] and lasted:
            line += f" after {lasted}"
        response = document["response"]
        if response and response["content_type"]:
            line += f"\n{_describe_output(response)}"
        return line

    def check(self, document: Document, options: dict[str, Any]) -> None:
        if options["wait"] is None:
            return
        if document["state"] not in TERMINAL:
            problem = f"{document['uuid']} is still {_describe_state(document)}."
            raise CommandError(problem, returncode=STILL_LIVE)
        if document["state"] == State.FAILED:
            raise CommandError(f"{document['uuid']} is FAILED: {_describe_failure(document)}")


def _read_inputs(text: str) -> binding.Arguments:
    """Parse JSON text, or stdin for "-", into positional and keyword arguments.

    Raises InvalidInputs.
    """
    text = _read_stdin() if text == "-" else text
    try:
        return binding.split_arguments(tagged_json.from_plain(tagged_json.parse_json(text)))
    except NotSerializable as error:
        raise InvalidInputs(f"The inputs are {error}") from None
    except CorruptData as error:
        raise InvalidInputs(f"The inputs cannot be read. {error}") from None


def _read_stdin() -> str:
    try:
        return "" if sys.stdin is None else sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise InvalidInputs(f"The inputs are not UTF-8: {error}") from None


def _wait(instance: Instance, seconds: float) -> None:
    try:
        instance.wait(timeout=None if seconds == float("inf") else seconds)
    except WaitTimeout:
        pass  # the document shows it, and check() sets the exit status
    except KeyboardInterrupt:
        message = f"No longer waiting; {instance.uuid} stays in the queue."
        raise CommandError(message, returncode=INTERRUPTED) from None


def _describe_output(response: Document) -> str:
    if response["value"] is not None:
        return text.shorten(json.dumps(response["value"]), 1000)
    return f"response: {present.printable(response['content_type'])}, {text.size(response['size'])}"


def _describe_failure(document: Document) -> str:
    """Return why an Instance FAILED: the reason, and the headline of the error in the log."""
    records = LogRecord.objects.using(settings.DATABASE).transitions()
    last = records.filter(instance__uuid=document["uuid"]).in_order().last()
    error = documents.headline(last.message) if last is not None else ""
    return ": ".join(filter(None, [document["reason"], present.printable(error)]))


class List(Subcommand):
    name = "list"
    help = "Instances, newest first."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--type", type=arguments.text, help="of this Type")
        add("--state", type=arguments.state, help=", ".join(State.values))
        add("--reason", type=arguments.reason, help="FAILED for this reason")
        add("--collection", type=arguments.text, help="of this collection")
        add("--identifier", type=arguments.text, help="with this identifier")
        add("--created-by", type=arguments.text, help="enqueued by this user")
        for name in ("created", "ended"):
            for side in ("after", "before"):
                add(
                    f"--{name}-{side}",
                    type=_read_time,
                    metavar="TIME",
                    help=f"{name} {side} 2030-01-31T18:00, inclusive",
                )
        add("--daemon", type=arguments.text, help="held by this daemon: host:pid, or its uuid")
        add(
            "--longer-than",
            type=arguments.delay,
            metavar="TIME",
            help="whose last attempt ran, or has run, longer than this, as 90s or 5m",
        )
        add("--tried-again", action="store_true", help="with an attempt that raised or was lost")
        add(
            "--input",
            type=arguments.text,
            metavar="TEXT",
            help="with this text in the inputs, or this argument as key=value; needs --type, and "
            "without --created-after covers a day",
        )
        add("--limit", type=arguments.positive, help="at most this many (default: 20)")
        add("--before", type=arguments.uuid_prefix, metavar="UUID", help="older than this one")
        formats = parser.add_mutually_exclusive_group()
        for name, words in FORMATS.items():
            formats.add_argument(
                f"--{name}", action="store_true", help=f"write all that match as {words}"
            )

    def run(self, options: dict[str, Any]) -> Document | None:
        rows = _select_instances(options)
        format = next((name for name in FORMATS if options[name]), None)
        if format is not None:
            if options["json"]:
                raise CommandError(f"--{format} cannot be used with --json.")
            self._export(rows, format, options["limit"])
            return None
        page = paging.page(rows, NEWEST_FIRST, size=options["limit"] or _LISTED)
        last = page.reached or (page.rows[-1] if page.rows else None)
        return {
            "time": overview.now(),
            "instances": [documents.instance(row) for row in page.rows],
            "next": None if page.next is None or last is None else last.uuid,
            "searched_to": None if page.reached is None else page.reached.created,
        }

    def _export(self, rows: InstanceQuerySet[Instance], format: str, limit: int | None) -> None:
        """Write all rows to stdout, as soon as each is read."""
        acting = acting_user()
        sees_inputs = acting is None or acting.user.has_perm(VIEW_INPUTS)
        export = Export(
            rows,
            errors=lambda rows: _permitted(rows, permissions.may_see_errors),
            inputs=(lambda rows: _permitted(rows, _may_see_inputs)) if sees_inputs else None,
            most=limit or MOST_EXPORTED,
        )
        try:
            for line in export.csv() if format == "csv" else export.json_lines():
                self.command.stdout.write(line, ending="")
            self.command.stdout.flush()
        except OSError as error:
            raise CommandError(f"The output cannot be written: {error.strerror}.") from error

    def text(self, document: Document) -> str:
        if not document["instances"]:
            table = "There are no such Instances."
            return "\n\n".join([table, *_describe_search(document)])
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
        table = present.table(headings, [_row(row, now) for row in document["instances"]])
        if document["searched_to"]:
            return "\n\n".join([table, *_describe_search(document)])
        if document["next"]:
            table += f"\n\nOlder ones: --before {document['next']}"
        return table


def _describe_search(document: Document) -> list[str]:
    """Return the sentence that says how far a search came, in a list.

    The list is empty if the search came to the end.
    """
    if not document["searched_to"]:
        return []
    time = text.moment(document["searched_to"])
    return [f"Searched back to {time}. Search on: --before {document['next']}"]


def _read_time(given: str) -> datetime:
    """Parse a time; without an offset it is in the current time zone. A delay is an error."""
    time = arguments.moment(given)
    if isinstance(time, timedelta):
        raise ArgumentTypeError(f"{given!r} is a delay from now, not a time")
    return time


def _permitted(
    instances: Sequence[Instance], may: Callable[[Any, Instance], bool]
) -> list[Instance]:
    """Return those of the Instances for which ``may(user, instance)`` is True for ``--user``."""
    acting = acting_user()
    return [each for each in instances if acting is None or may(acting.user, each)]


def _may_see_inputs(user: Any, instance: Instance) -> bool:
    return holds(user, VIEW_INPUTS, instance)


def _select_instances(options: Mapping[str, Any]) -> InstanceQuerySet[Instance]:
    values = {name: options[name] for name in _FILTERS if options[name] is not None}
    if options["type"] is not None:
        values["type"] = queue.get_type(options["type"])
    rows: Any = visible_instances()
    acting, now = acting_user(), overview.now()
    if options["before"] is not None:
        rows = rows.filter(pk__lt=find_instance(options["before"]).pk)
    # An empty text selects the Instances without a value; selected() would select all of them.
    empty = [name for name in ("collection", "created_by") if options[name] == ""]
    rows = rows.filter(**dict.fromkeys(empty, ""))
    if options["identifier"] == "":
        rows = rows.filter(identifier=None)
    after, before = options["created_after"], options["created_before"]
    if options["input"]:
        after, before = listing.span_of_search(after, before, now)
        if acting is not None:
            rows = permissions.narrow_rows(acting.user, VIEW_INPUTS, rows)
    if options["daemon"]:
        if acting is not None:
            permissions.require(acting.user, permissions.EVERYTHING, permissions.VIEW_DAEMON)
        values["daemons"] = daemons_named(options["daemon"])
    rows = rows.filter(rows.created_between(after, before)).selected(**values, now=now)
    if options["input"]:
        return listing.search_inputs(rows, values.get("type"), options["input"])
    return rows


def _row(document: Document, now: datetime) -> list[object]:
    return [
        document["uuid"],
        text.shorten(document["type"], 40),
        text.shorten(document["identifier"] or "", 60),
        _describe_state(document),
        document["retries"] + document["restarts"],
        text.percent(document["progress"]),
        text.age(document["created"], now),
        text.duration(attempt_duration(document, now)),
    ]


def _describe_state(document: Document) -> str:
    """Return an Instance's state from its document, with the reason if the Instance FAILED."""
    return f"{document['state']} {document['reason']}".rstrip()


class Show(Subcommand):
    name = "show"
    help = "One Instance with its inputs, response, steps and log; or its raw response."

    def add_arguments(self, parser: ArgumentParser) -> None:
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

    def run(self, options: dict[str, Any]) -> Document | None:
        instance = _find_instance(options)
        if options["response"] is None:
            return _show_document(instance)
        if options["json"]:
            raise CommandError("--response writes raw bytes, so it cannot be used with --json.")
        response = queue.response(instance)
        if response is None or (response.data is None and not response.file):
            state = " ".join(filter(None, [instance.state, instance.reason]))
            raise CommandError(f"The Instance has no response. It is {state}.")
        _write_body(response, options["response"], self.command)
        return None

    def text(self, document: Document) -> str:
        parts = [_format_facts(document)]
        if document["inputs"] is not None:
            parts.append(_format_inputs(document["inputs"]))
        if document["response"] is not None:
            parts.append(_format_response(document["response"]))
        if document["steps"]:
            parts.append(_format_steps(document["steps"]))
        parts.append(_format_log(document["log"]))
        return "\n\n".join(parts)


# How long ``stack`` waits for the daemon, and how often it looks, in seconds.
_STACK_WITHIN, _STACK_EVERY = 10.0, 0.1


class Stack(Subcommand):
    name = "stack"
    help = OPERATIONS[INSTANCE]["stack"].explanation

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "uuid", type=arguments.uuid_prefix, help="its uuid, or its first digits"
        )

    def run(self, options: dict[str, Any]) -> Document:
        operation = OPERATIONS[INSTANCE]["stack"]
        instance = find_instance(options["uuid"])
        if (acting := acting_user()) is not None:
            permissions.require_operation(acting.user, operation, instance, {})
        records = LogRecord.objects.using(settings.DATABASE).filter(instance=instance)
        before = records.order_by("-pk").values_list("pk", flat=True).first() or 0
        outcome = operation.perform(instance, actor())
        found = None
        until = time.monotonic() + _STACK_WITHIN
        is_seen = not _is_in_transaction()
        while is_seen and found is None and time.monotonic() < until:
            time.sleep(_STACK_EVERY)
            found = records.filter(kind=Kind.STACK, pk__gt=before).order_by("pk").first()
        return {
            "uuid": instance.uuid,
            "outcome": outcome.told,
            "stack": None if found is None else documents.log_record(found),
            "is_awaited": is_seen,
        }

    def text(self, document: Document) -> str:
        if document["stack"] is None:
            return f"{document['uuid']}: {document['outcome']}"
        facts, _, frames = document["stack"]["message"].partition("\n\n")
        lines = present.printable_lines(facts)
        if frames:
            lines += ["", *present.printable_lines(text.handler_frames(frames))]
        return "\n".join(lines)

    def check(self, document: Document, options: dict[str, Any]) -> None:
        if document["stack"] is None and document["is_awaited"]:
            raise CommandError(
                f"The daemon has not written the stack within {_STACK_WITHIN:.0f} s. The attempt "
                "may have ended, or the daemon may be busy."
            )


def _is_in_transaction() -> bool:
    """Return True if a transaction is open, so that no daemon sees the command before its end."""
    return connections[settings.DATABASE].in_atomic_block


def _find_instance(options: Mapping[str, Any]) -> Instance:
    """Return the Instance that the options name, by uuid, or by Type and identifier.

    Raises CommandError if the options do not name exactly one Instance.
    """
    by_identifier = (options["type"], options["identifier"])
    if options["uuid"] is not None:
        if any(by_identifier):
            raise CommandError("Give either a uuid, or --type and --identifier.")
        return find_instance(options["uuid"])
    if not all(by_identifier):
        raise CommandError("Name the Instance: give a uuid, or --type and --identifier.")
    found = queue.get(type=queue.get_type(options["type"]), identifier=options["identifier"])
    return find_instance(str(found.uuid))


def _show_document(instance: Instance) -> Document:
    log = LogRecord.objects.using(settings.DATABASE).of_instance(instance)
    task = queue.task(instance)
    now = overview.now()
    return {
        **documents.instance(instance),
        "task": documents.task(task),
        "waits_for": list(why(instance, task)),
        "hooks": [hook.uuid for hook in documents.enqueued_hooks(instance)],
        "hook_of": instance.hook_of,
        "inputs": documents.inputs(queue.inputs(instance)),
        "ran": run_time_without_pauses(timeline(instance), now),
        "response": documents.response(queue.response(instance)),
        "steps": [documents.step_document(row, now) for row in queue.steps(instance)],
        "log": [documents.log_record(record) for record in log],
    }


def _format_facts(document: Document) -> str:
    now = overview.now()
    task = document["task"] or {"due_at": None, "daemon": None, "request": ""}
    counts = ", ".join(f"{document[name]} {name}" for name in ("restarts", "retries", "lost"))
    waits = task["daemon"] is None
    return present.pairs(
        [
            ("uuid", document["uuid"]),
            ("type", document["type"]),
            ("identifier", document["identifier"]),
            ("state", _describe_state(document)),
            ("progress", _describe_progress(document)),
            ("collection", document["collection"]),
            ("priority", document["priority"]),
            ("tried again", f"{document['retries'] + document['restarts']} ({counts})"),
            ("claims", document["attempt"]),
            ("created", _describe_enqueue(document, now)),
            ("due", _describe_time(task["due_at"], now) if waits else None),
            ("start before", _describe_time(document["start_before"], now)),
            ("unique", document["unique"]),
            ("time-out", text.duration(document["timeout"]) or None),
            ("max. retries", document["max_retries"]),
            *(("waits for", each) for each in document["waits_for"]),
            ("held by", task["daemon"]),
            ("asked to", documents.pending_command(document["state"], task["request"])),
            ("hook of", document["hook_of"]),
            ("started", _describe_time(document["started"], now)),
            ("finished", _describe_time(document["finished"], now)),
            ("elapsed", text.duration(attempt_duration(document, now))),
            ("ran", text.duration(document["ran"])),
            *(("hook", uuid) for uuid in document["hooks"]),
        ]
    )


def _describe_time(time: datetime | None, now: datetime) -> str | None:
    if time is None:
        return None
    relative = text.ago(time, now) if time <= now else text.due(time, now)
    return f"{text.moment(time)} ({relative})"


def _describe_enqueue(document: Document, now: datetime) -> str:
    by = f" by {document['created_by']}" if document["created_by"] else ""
    return f"{_describe_time(document['created'], now)}{by}"


def _describe_progress(document: Document) -> str | None:
    if document["progress"] is None:
        return None
    return f"{text.percent(document['progress'])} {document['progress_message']}".rstrip()


def _format_inputs(document: Document) -> str:
    carried = document["carried"]
    below = f"\n\ncarried\n{_format_values(carried)}" if carried else ""
    if document["format"] != codec.JSON:
        return f"inputs: a signed {document['format']}, not opened here{below}"
    value = document["value"]
    if not isinstance(value, dict):
        return f"inputs: {_format_value(value)}{below}"
    return "inputs\n" + (_format_values(value) or f"{present.INDENT}none") + below


def _format_values(values: Mapping[str, Any]) -> str:
    return present.pairs(
        (f"{present.INDENT}{present.printable(name)}", _format_value(value))
        for name, value in values.items()
    )


def _format_value(stored: object) -> str:
    """Return a stored value as JSON, in the form that ``atp enqueue`` takes.

    A long value is cut.
    """
    return text.shorten(present.printable(json.dumps(stored, ensure_ascii=False)), _MAX_VALUE)


def _format_response(document: Document) -> str:
    value = document["value"]
    rows: list[tuple[str, object]] = [
        ("content type", document["content_type"]),
        ("size", text.size(document["size"]) if document["content_type"] else None),
        ("stored as", document["file"]),
        ("value", None if value is None else _format_value(value)),
    ]
    rows += [
        ("file", f"{f['path']} ({f['content_type']}, {text.size(f['size'])})")
        for f in document["files"]
    ]
    lines = present.pairs((f"{present.INDENT}{name}", value) for name, value in rows)
    return "response\n" + (lines or f"{present.INDENT}none")


def _format_steps(steps: Sequence[Document]) -> str:
    rows = []
    for step in steps:
        end = step["finished"] or step["until"]
        lasted = "" if end is None else text.duration(end - step["started"])
        if step["until"]:
            result = f"a sleep until {text.moment(step['until'])}"
        elif step["finished"] is None:
            result = "result not known"
        else:
            is_json = step["format"] == codec.JSON
            result = _format_value(step["value"]) if is_json else f"a signed {step['format']}"
        began = text.moment(step["started"], precise=True)
        name = f"{present.INDENT}{present.printable(step['name'])}"
        rows.append((name, f"#{step['attempt']} {began} {lasted}: {result}"))
    return "steps\n" + present.pairs(rows)


def _format_log(records: Sequence[Document]) -> str:
    lines = ["log"]
    repeated = text.repetitions((record["message"], record["attempt"]) for record in records)
    for record, same_as in zip(records, repeated, strict=True):
        lines += _format_record(record, same_as)
    return "\n".join(lines)


def _format_record(record: Document, same_as: int | None) -> Iterator[str]:
    """Yield a log record as lines of text.

    The first line has the time, the attempt, the message and the actor; the traceback follows. If
    an earlier attempt had the same traceback, ``same_as`` is its number, and the lines refer to it.
    """
    cut = text.handler_frames if record["kind"] == Kind.STACK else text.without_own_frames
    first, *more = present.printable_lines(cut(record["message"])) or [""]
    if same_as is not None:
        headline = present.printable(text.headline(record["message"]))
        first, more = f"{headline} (with the traceback of #{same_as})", []
    what = f"{record['event']} → {record['state']}" if record["event"] else ""
    level = "" if record["level"] <= logging.INFO else logging.getLevelName(record["level"])
    words = ": ".join(part for part in (what, level, first) if part)
    who = f" [{present.printable(record['who'])}]" if record["who"] else ""
    attempt = "" if record["attempt"] is None else f"#{record['attempt']}"
    time = text.moment(record["time"], precise=True)
    yield f"{present.INDENT}{time}  {attempt:<3} {words}{who}"
    for line in more:
        yield f"{present.INDENT * 3}{line}"


# ``show --response``: write the raw response to a file or to stdout.


def _write_body(response: Response, target: str, command: BaseCommand) -> None:
    """Write a Response's body to the file ``target``, or to stdout if ``target`` is "-"."""
    with closing(_open_body(response)) as body:
        if target != "-":
            _write_file(body, target)
        elif command.stdout.isatty():
            _write_terminal(body, response, command)
        else:
            _write_pipe(body, command)


def _open_body(response: Response) -> IO[bytes]:
    if not response.file:
        return BytesIO(response.body or b"")
    try:
        return response.open()
    except OSError as error:
        raise CommandError(f"The stored response cannot be read: {error}") from error


def _write_file(body: IO[bytes], target: str) -> None:
    try:
        with Path(target).open("wb") as file:
            shutil.copyfileobj(body, file)
    except OSError as error:
        raise CommandError(f"{target} cannot be written: {error.strerror}.") from error


def _write_pipe(body: IO[bytes], command: BaseCommand) -> None:
    stream = getattr(command.stdout, "buffer", None)
    if stream is None:  # call_command() collects text
        command.stdout.write(_decode(body), ending="")
        return
    command.stdout.flush()
    shutil.copyfileobj(body, stream)
    stream.flush()


def _write_terminal(body: IO[bytes], response: Response, command: BaseCommand) -> None:
    """Write a Response's body to a terminal, with control characters escaped.

    Raises CommandError if the body is not text.
    """
    kind = response.content_type.partition(";")[0].strip().lower()
    if not (kind == "application/json" or kind.startswith("text/")):
        raise CommandError(
            f"A terminal cannot show this response, which is {response.content_type or 'binary'}. "
            "Name a file after --response, or redirect the output."
        )
    command.stdout.write("\n".join(present.printable_lines(_decode(body))))


def _decode(body: IO[bytes]) -> str:
    try:
        return body.read().decode()
    except UnicodeDecodeError:
        raise CommandError("The response is not text. Name a file after --response.") from None
