"""The messages of the log, in words."""

import ast
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import UUID

import pytest

from atp.models import LogRecord
from atp.rows.log import Kind
from atp.states import Event
from atp.words import attempt_messages, log_messages
from atp.words.orders import Order

from . import imports

SELECTING = {"filter", "exclude", "get", "update_or_create", "get_or_create"}
NOW = datetime(2030, 1, 31, 18, tzinfo=UTC)
UUID_5 = UUID(int=5)
GATE = SimpleNamespace(
    mode="drop",
    who="ann",
    since=NOW,
    until=NOW + timedelta(hours=1),
    reason="spam",
    subject="queue",
)
NO_LIMITS = {
    "max_running": None,
    "max_running_per_collection": None,
    "rate": "",
    "burst": 1,
    "weight": 1.0,
    "max_waiting": None,
    "max_wait": None,
}
TAKEN = "its Task was taken away"
TWICE = "its effects may have happened twice"
KEEP = "(keep_processes=True on its Type would prevent this)"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (log_messages.changed([("priority", 3, -5)], NOW), "priority 3 → -5"),
        (
            log_messages.changed([("due", NOW, GATE.until), ("collection", "a", "")], NOW),
            "due now → 2030-01-31 19:00:00 UTC; collection a → none",
        ),
        (log_messages.dropped(GATE), "dropped by ann (queue): spam"),
        (log_messages.gate("hold", reason="why"), "gate: hold: why"),
        (
            log_messages.gate("hold", until=GATE.until, was=GATE),
            "gate: hold, until 2030-01-31 19:00:00 UTC (was: dropped by ann, "
            "since 2030-01-31 18:00:00 UTC, until 2030-01-31 19:00:00 UTC: spam)",
        ),
        (log_messages.orphan_removed(7), "a Task without an Instance was removed: key 7"),
        (log_messages.registered(), "registered"),
        (log_messages.unregistered(), "unregistered"),
        (log_messages.started(), "started"),
        (log_messages.rejoined(), "joined again"),
        (log_messages.limits_set(NO_LIMITS), "limits: none"),
        (
            log_messages.limits_set(NO_LIMITS | {"rate": "5/s", "weight": 2.0}),
            "limits: rate: 5/s, burst: 1; weight: 2",
        ),
        (
            log_messages.limits_left(NO_LIMITS | {"max_running": 4}, is_known=True),
            "limits left to the code: max_running: 4",
        ),
        (
            log_messages.limits_left(NO_LIMITS, is_known=False),
            "limits left to the code, unchanged until the next registration: none",
        ),
        (
            log_messages.limits_declared({"max_running": 4}),
            "limits declared by the code: max_running: 4",
        ),
        (
            log_messages.parameters({"max_restarts": (3, 7), "retention": (None, timedelta(1))}),
            "changed: max_restarts: 3 → 7, retention: None → 1 day, 0:00:00",
        ),
        (log_messages.removed(["a", "b"]), "Instances removed: 2 (a, b)"),
        (log_messages.left(UUID_5), f"stopped ({UUID_5})"),
        (log_messages.lost(UUID_5, 1), f"lost; 1 of its Tasks were taken away ({UUID_5})"),
        (log_messages.ordered(Order.QUIET), "told to go quiet"),
        (
            log_messages.mended(log_messages.no_task("RUNNING"), log_messages.attempt_expired()),
            "it was RUNNING, but had no Task: its attempt was expired",
        ),
    ],
)
def test_of_the_queue(message, expected):
    assert message == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (attempt_messages.asked("release"), "release requested"),
        (attempt_messages.cancelled(), "cancelled"),
        (attempt_messages.cancelled("ann via shell"), "cancelled by ann via shell"),
        (
            attempt_messages.given_up(4, 3, 4, "it died"),
            "given up after 4 attempts were lost while running (restarts allowed: 3); "
            "the last attempt: it died",
        ),
        (
            attempt_messages.given_up(0, 1, 12, ""),
            "given up after 12 attempts were lost before they were seen running; "
            "the last attempt: reason unknown",
        ),
        (attempt_messages.left_out(15), "15 messages of this attempt are left out here"),
        (attempt_messages.daemon_lost("lost:1"), "daemon lost:1 was lost"),
        (attempt_messages.worker_stuck(), "it started none of the tasks it was given"),
        (attempt_messages.worker_stuck(is_ready=False), "it was not ready in time"),
        (
            attempt_messages.left_transaction_open(),
            "the handler left a transaction open, which was rolled back",
        ),
        (attempt_messages.daemon_stopping(), "the daemon is stopping"),
        (attempt_messages.resumed_to_end("why"), "resumed so that it can end: why"),
        (
            attempt_messages.killed_after_grace(0.5),
            "it did not end in its grace of 0.5 s, and was killed",
        ),
        (attempt_messages.worker_died("exited with status 7"), "its worker exited with status 7"),
        (attempt_messages.timed_out(1.5), "its time-out of 1.5 s has passed"),
        (attempt_messages.with_processes(1), "with 1 process that it had started"),
        (attempt_messages.with_processes(2), "with 2 processes that it had started"),
        (
            attempt_messages.too_much_memory(3 << 20, 1, 2 << 20),
            "it and its child process took 3.0 MiB of memory, its Type allows 2.0 MiB (max_memory)",
        ),
        (attempt_messages.retries_used_up(2, 2), "(retries used up: 2 of 2)"),
        (
            attempt_messages.left_behind(["sleep"], 1),
            f"1 process that it left behind was ended: sleep {KEEP}",
        ),
        (
            attempt_messages.left_behind(["cat", "sleep"], 3),
            f"3 processes that it left behind were ended: cat, sleep {KEEP}",
        ),
        (
            attempt_messages.left_behind(list("abcdef"), 6, ended=False),
            "6 processes that it left behind could not be ended: a, b, c, d, e, …",
        ),
        (
            attempt_messages.late(1, Event.FINISH, 41, transactional=False),
            f"attempt 1 finished 41 s after {TAKEN}; {TWICE}",
        ),
        (
            attempt_messages.late(1, Event.FAIL, -3, transactional=False),
            f"attempt 1 failed and could not record this before {TAKEN}; {TWICE}",
        ),
        (
            attempt_messages.late(2, Event.RETRY, None, transactional=True),
            f"attempt 2 asked to be tried again after {TAKEN}; all that it wrote was rolled back",
        ),
        (
            attempt_messages.late(1, None, None, transactional=False),
            f"attempt 1 reported progress, messages or files after {TAKEN}; {TWICE}",
        ),
        (
            attempt_messages.refused(1, Event.EXPIRE, 1.25),
            f"attempt 1 was lost 1.2 s after {TAKEN}",
        ),
        (
            attempt_messages.refused_after_end(1, Event.PAUSE),
            "attempt 1 was paused after it had ended: refused",
        ),
    ],
)
def test_of_an_attempt(message, expected):
    assert message == expected


def test_a_kind_is_no_event():
    """Else what is no transition would look like one."""
    names = [*Event.values, *Kind.values]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= LogRecord._meta.get_field("kind").max_length


def test_messages_are_called_by_the_name_of_their_module():
    """What is imported by its own name is not replaced by nonsense."""
    for name, source, _ in imports.sources():
        for node in ast.walk(ast.parse(source)):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            assert not module.endswith(("attempt_messages", "log_messages")), name


def test_no_query_compares_messages():
    for name, source, _ in imports.sources():
        for call in ast.walk(ast.parse(source)):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") in SELECTING:
                given = {keyword.arg or "" for keyword in call.keywords}
                assert not any(each.partition("__")[0] == "message" for each in given), name
