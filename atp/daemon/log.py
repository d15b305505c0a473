"""The daemon's log: facts, turned into text or JSON in one place.

Code calls ``journal.worker_died(worker=2, pid=77, how="was ended by SIGKILL")``. The table
below has the level and the words of each fact.
"""

import json
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from re import Match
from typing import Any

from .. import text as wording
from . import log_handlers
from .log_handlers import FAILED, ExcInfo, complaints, loggers
from .stderr import NonBlockingHandler

logger = logging.getLogger("atp.daemon")

_D, _I, _W, _E = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

FACTS: dict[str, tuple[int, str]] = {
    "daemon_started": (
        _I,
        "atpd {version} started: {processes} {places}, database {database}, {count} Types: {types}",
    ),
    "daemon_stopping": (_I, "stopping: {why}; running tasks get {grace:g} s"),
    "daemon_stopping_now": (_W, "stopping at once: {why}"),
    "daemon_stopped": (_I, "stopped after {seconds:.0f} s: {finished} finished, {failed} failed"),
    "went_quiet": (_I, "told to go quiet: the daemon claims no more Tasks, running tasks go on"),
    "resumed": (_I, "told to resume: the daemon claims Tasks again"),
    "nothing_to_serve": (
        _W,
        "no declared Type matches the options of this daemon: it will claim no Tasks",
    ),
    "joined": (_I, "joined the queue as daemon {daemon}"),
    "rejoined": (_W, "took a new identity, {daemon}: {kept} Tasks kept, {expired} expired"),
    "channel_lost": (
        _W,
        "a Task that an enqueue handed to this daemon may not have arrived: taking a new identity",
    ),
    "lease_lost": (_W, "the lease was lost: {why}"),
    "lease_over": (_E, "no renewal for {seconds:.0f} s: killing all workers before the lease ends"),
    "database_failed": (_E, "the database failed while {doing}: {error}"),
    "database_slow": (_W, "{doing} took over {seconds:g} s: the connection was cut"),
    "lock_met": (_W, "{doing} met a lock of another session: locked rows are left for later"),
    "results_locked": (
        _W,
        "the ends of {count} Instances are not recorded yet: other sessions have locked their rows",
    ),
    "results_unlocked": (
        _I,
        "all ends that waited for locks of other sessions are recorded, after {seconds:.1f} s",
    ),
    "database_silent": (
        _W,
        "the database did not answer within {seconds:g} s: the daemon starts, and tries again",
    ),
    "database_back": (_I, "the database is back after {seconds:.1f} s"),
    "delivering": (
        _W,
        "the grace is over, and the daemon is still busy with {doing}; changes of Instances that "
        "are not in the database yet: {count}; it gives up in {seconds:.0f} s",
    ),
    "undelivered": (
        _E,
        "gave up: {count} changes are not recorded in the database; the lease will run out",
    ),
    "storage_refused": (_W, "large responses and published files cannot be stored: {why}"),
    "claimed": (_D, "claimed {count} Tasks"),
    "started": (_D, "{type} {instance} started: attempt {attempt}, worker {worker}"),
    "finished": (_D, "{type} {instance} finished after {seconds:.3f} s"),
    "deferred": (_D, "{type} {instance} deferred itself: {why}"),
    "retried": (_W, "{type} {instance} will be tried again: {why}"),
    "misfit": (_W, "{type} {instance} is left to another daemon: {why}"),
    "failed": (_E, "{type} {instance} failed, {reason}: {why}"),
    "expired": (_W, "{type} {instance} attempt {attempt} was lost: {why}"),
    "taken_back": (_D, "unstarted Tasks taken back from worker {worker}: {count}"),
    "released": (_I, "{type} {instance} attempt {attempt} was handed back: {why}"),
    "refused": (
        _W,
        "{event} of {type} {instance} attempt {attempt} was refused: its Task was taken away",
    ),
    "unrecordable": (_E, "{event} of Instance {instance} cannot be recorded: {error}"),
    "summary": (_I, "in the last {seconds:.0f} s: {finished} finished, {failed} failed"),
    "worker_started": (_D, "worker {worker} started, pid {pid}"),
    "worker_died": (_E, "worker {worker}, pid {pid}, {how}"),
    "worker_retired": (_I, "worker {worker}, pid {pid}, retired: {why}"),
    "worker_killed": (_W, "worker {worker}, pid {pid}, was killed: {why}"),
    "loop_started": (_D, "loop {loop} started, pid {pid}"),
    "loop_died": (_E, "loop {loop}, pid {pid}, {how}"),
    "loop_retired": (_I, "loop {loop}, pid {pid}, retires: {why}"),
    "loop_killed": (_W, "loop {loop}, pid {pid}, was killed: {why}"),
    "loop_failing": (_E, "loop {loop} dies as soon as it starts: next try in {seconds:g} s"),
    "worker_failing": (_E, "worker {worker} dies as soon as it starts: next try in {seconds:g} s"),
    "listening_ended": (_W, "no wakeups from the database, the daemon polls the queue: {error}"),
    "pooled": (
        _I,
        "a pooler is in front of the database: no wakeups from it, the daemon polls the queue",
    ),
    "type_left_out": (_I, "does not serve {type}: this host lacks {lacks}"),
    "engine_away": (_E, "the executor {executor} cannot be reached: {error}"),
    "follower_started": (_I, "the follower of {executor} started, pid {pid}"),
    "following": (_I, "the executor {executor} reaches this daemon at {host}, port {port}"),
    "follower_died": (_E, "the follower, pid {pid}, {how}: what it followed will end"),
    "ticket_refused": (
        _W,
        "{executor} has not run an attempt of {type}, and gets it again: {error}",
    ),
    "release_differs": (_W, "{host} runs {type} with release {there}, this daemon has {own}"),
    "messages_lost": (
        _W,
        "{type} {instance} attempt {attempt}: messages lost while its link was cut: {count}",
    ),
    "message_forged": (_W, "a message from an engine's host was refused: {error}"),
    "left_behind": (_W, "killed processes that worker {worker} had left behind: {count}"),
    "left_running": (_W, "killed processes that the workers had left behind: {count}"),
    "prints_dropped": (_W, "worker {worker} printed too much: {size} of its output was dropped"),
    "abandoned": (_W, "killed processes that a dead daemon of this host had left behind: {count}"),
    "cannot_fork": (_E, "a process cannot be started: {error}; next try in {seconds:g} s"),
    "dispatcher_died": (_E, "the dispatcher, pid {pid}, {how}: starting another in {seconds:g} s"),
    "dispatcher_hung": (_E, "the dispatcher, pid {pid}, gave no sign of life for {seconds:.0f} s"),
    "supervisor_died": (_E, "the supervisor died: killing the workers that are left"),
    "daemons_lost": (_W, "daemons lost: {daemons}; {expired} of their Tasks were taken away"),
    "found": (_E, "a scan found, and did not mend: {what}"),
    "mended": (_W, "a scan found and mended: {what}"),
    "scan_failed": (_E, "the scan failed: {error}"),
    "missed": (_W, "{count} Instances failed: they were not started before their start_before"),
    "dropped": (_W, "{count} Instances were dropped by a gate"),
    "dependants_failed": (_W, "{count} Instances failed, as Instances that they waited for failed"),
    "graphs_failed": (_E, "the upkeep of graphs failed: {error}"),
    "count_failed": (_E, "the upkeep of the statistics failed: {error}"),
    "planned": (_D, "planned {slots} slots of schedules: {enqueued} Instances enqueued"),
    "purged": (_I, "{count} Instances removed after their retention"),
    "failures_not_counted": (_W, "new failures were not counted in their error groups: {error}"),
    "purge_failed": (_W, "rows past their retention were not removed: {error}"),
    "handlers_failed": (_E, FAILED),
    "lines_dropped": (_W, "log lines dropped, as the project's log handlers were slow: {count}"),
    "receiver_failed": (_E, "a receiver of process_started failed in the {role}: {error!r}"),
    "reloading": (_I, "{file} changed: the daemon restarts"),
    "not_reloading": (_W, "{file} changed, but cannot be loaded: {error}"),
}


def __getattr__(name: str) -> Callable[..., None]:
    """Return the function that logs the fact of this name."""
    if name not in FACTS:
        raise AttributeError(name)
    level, words = FACTS[name]

    def emit(*, exc_info: ExcInfo = None, **values: Any) -> None:
        if tells(name):
            extra = {"fact": name, "values": values}
            loggers.emit(logger, level, _text(name, words, values), exc_info, extra)

    return emit


def tells(name: str) -> bool:
    """Tell whether this fact is logged at all. Frequent callers ask before they collect values."""
    return log_handlers.is_enabled(logger, FACTS[name][0])


def _text(name: str, words: str, values: Mapping[str, Any]) -> str:
    """Return the words of a fact in one line; its name and keys if a value cannot be formatted.

    The values may have text of a handler or a client, and the project's own handlers write this.
    """
    try:
        return wording.one_line(words.format_map(values))
    except Exception:
        return f"{name} {sorted(values)}"


class Style:
    """The style of the log, which :func:`configure` sets."""

    is_json = False


class TextFormatter(logging.Formatter):
    """A formatter of lines for people: local time, level, process, words.

    A record is one line. A traceback follows it in lines that are marked, so that no text in it
    looks like a line of the daemon.
    """

    is_of_atp = True

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(process)d %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        record.asctime = self.formatTime(record)
        parts = [wording.one_line(self.formatMessage(record))]
        # Not what another formatter has put into record.exc_text.
        if record.exc_info:
            parts.append(wording.continuation_lines(self.formatException(record.exc_info)))
        elif record.exc_text:
            parts.append(wording.continuation_lines(record.exc_text))
        if record.stack_info:
            parts.append(wording.continuation_lines(record.stack_info))
        return "\n".join(parts)


class JSONFormatter(logging.Formatter):
    """A formatter of JSON lines: time, level, pid, fact, message, and the fact's values."""

    is_of_atp = True

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "pid": record.process,
            "fact": getattr(record, "fact", ""),
            "message": record.getMessage(),
            **getattr(record, "values", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json_line(line)


def json_line(values: Mapping[str, Any]) -> str:
    """Return values as one line of JSON, in which harmful characters are escaped."""
    text = json.dumps(values, default=str, ensure_ascii=False)
    return wording.HARMFUL.sub(_escaped_in_json, text)


def _escaped_in_json(found: Match[str]) -> str:
    return json.dumps(found[0])[1:-1].replace("\x7f", "\\u007f")


def configure(style: str | None, verbosity: int = 1) -> None:
    """Send the daemon's log to standard error, as "text" or "json".

    If ``style`` is None and the project has handlers for the ``atp`` or the root logger, these
    get the log instead.
    """
    Style.is_json = style == "json"
    complaints.formatter = JSONFormatter() if style == "json" else TextFormatter()
    parent = logging.getLogger("atp")
    if style is None and parent.hasHandlers():
        return
    handler = NonBlockingHandler()
    handler.setFormatter(complaints.formatter)
    parent.handlers = [handler]
    parent.propagate = False
    parent.setLevel({0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG))
