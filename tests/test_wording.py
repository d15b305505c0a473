"""Tests of texts: times, errors, gates, limits and messages of the log."""

import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from zoneinfo import ZoneInfo

from django.utils import timezone

from atp import messages, middleware, querysets, text
from atp.authoring import context
from atp.authoring.logs import describe_exception
from atp.fields import uuid7
from atp.models import Gate, Limit, Type
from atp.states import Event
from atp.text import did_you_mean

NOW = datetime(2030, 1, 31, 18, tzinfo=UTC)
ECHO = Type(identifier="tests.echo")
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


def raised(error):
    try:
        raise error
    except type(error) as caught:
        return describe_exception(caught)


def test_local_time_that_occurs_twice_is_shown_with_its_time_zone():
    with timezone.override(ZoneInfo("Europe/Vienna")):
        for hour, told in ((0, "02:30:00 CEST"), (1, "02:30:00 CET"), (2, "03:30:00")):
            moment = datetime(2026, 10, 25, hour, 30, tzinfo=UTC)
            assert text.moment(moment).endswith(told)


def test_relative_times_are_worded_for_past_and_future():
    """An event that has happened is never shown as in the future, even if clocks differ.

    A difference below a second is now.
    """
    for seconds, age, ago, due in (
        (-5, "5 s", "5 s ago", "due for 5 s"),
        (-1, "1 s", "1 s ago", "due for 1 s"),
        (-0.038, "0 s", "just now", "now"),
        (0, "0 s", "just now", "now"),
        (0.068, "0 s", "just now", "now"),
        (5, "in 5 s", "just now", "in 5 s"),
    ):
        moment = NOW + timedelta(seconds=seconds)
        assert text.age(moment, NOW) == age
        assert text.ago(moment, NOW) == ago
        assert text.due(moment, NOW) == due


def test_numbers_have_a_comma_between_thousands():
    assert [text.number(each) for each in (0, 999, 25_000, -1_234_567)] == [
        *("0", "999", "25,000", "-1,234,567"),
    ]


def test_headline_of_a_traceback_is_its_exception():
    told = raised(ValueError("bins must be\npositive"))
    assert text.headline(told) == "ValueError: bins must be"
    group = ExceptionGroup("many", [ValueError("one"), KeyError("two")])
    assert text.headline(raised(group)) == "ExceptionGroup: many (2 sub-exceptions)"
    assert text.headline("daemon vm:1 was lost\nmore") == "daemon vm:1 was lost"


def test_repeated_traceback_refers_to_the_attempt_that_showed_it_first():
    """Text that ATP appends to a traceback, for example that no retry is left, is not compared."""
    trace = f"{raised(KeyError(7))}".rstrip("\n")
    other = trace.replace("KeyError: 7", "KeyError: 77")
    told = [(trace, 1), (trace, 2), (other, 3), (f"{trace} (retries used up: 2 of 2)", 4)]
    assert text.repetitions(told) == [None, 1, None, 1]
    assert text.repetitions([("busy", 1), ("busy", 2)]) == [None, None]


def test_only_frames_of_atp_are_removed_from_tracebacks():
    """The tracebacks include chains and groups of exceptions."""
    header = "Traceback (most recent call last):\n"
    for file in ("api/tasks.py", "pages/render.py", "shop/tasks.py"):
        trace = f'{header}  File "/srv/atp/{file}", line 3, in f\n    g()\nKeyError: 7'
        assert text.without_own_frames(trace) == trace  # the project is in a folder called atp
    project = '  File "/project/tasks.py", line 3, in f\n    g()\n'
    for file in (
        "/site-packages/atp/daemon/execution.py",  # from logs of earlier versions
        "/site-packages/atp/queue.py",
        "/site-packages/atp/backend/backend.py",
        "/site-packages/atp/operations/enqueueing.py",
        "/site-packages/atp/verbs/submissions/submission.py",
        *(module.__file__ for module in (context, querysets, middleware)),
    ):
        own = f'  File "{file}", line 9, in run\n    call()\n'
        told = f"{header}{own}{project}KeyError: 7"
        assert text.without_own_frames(told) == f"{header}{project}KeyError: 7"
        chain = (
            f"{header}{own}KeyError: 7\n\nDuring …:\n\n{header}{own}ValueError: two\n    lines\n"
        )
        assert text.without_own_frames(chain) == chain.replace(own, "")
        group = "".join(f"  | {line}\n" for line in f"{own}    ~~^^\n{project}".splitlines())
        group = f"  + Exception Group Traceback:\n{group}  | ExceptionGroup: two\n"
        found = text.without_own_frames(group)
        assert file not in found
        assert "".join(f"  | {line}\n" for line in project.splitlines()) in found
        assert "ExceptionGroup: two" in found


def test_misspelt_name_gets_a_hint():
    for name in ("prioriti", "PRIORITY"):
        assert did_you_mean(name, ["priority", "collection"]) == " Did you mean 'priority'?"
    for names in (["priority"], []):
        assert did_you_mean("xyz", names) == ""


def test_uuid7_contains_the_time_and_is_random_and_ordered(monkeypatch):
    before = time.time_ns() // 1_000_000
    made = uuid7().int >> 80
    assert before <= made <= time.time_ns() // 1_000_000
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    many = {uuid7() for _ in range(1000)}
    assert len(many) == 1000
    assert {(each.version, each.variant) for each in many} == {(7, "specified in RFC 4122")}
    clock = iter(range(10**18, 10**18 + 50 * 10**6, 10**6))
    monkeypatch.setattr(time, "time_ns", lambda: next(clock))
    ordered = [uuid7() for _ in range(50)]
    assert ordered == sorted(ordered)


def gate(mode="hold", type=None, collection=None, **columns):
    return Gate(mode=mode, type=type, collection=collection, since=NOW, **columns)


def test_message_about_a_gate_names_another_gate_that_still_applies():
    shut = gate("drop", who="ann", until=NOW, reason="spam")
    assert text.describe_gate(shut, text.utc_text) == (
        "dropped by ann, since 2030-01-31 18:00:00 UTC, until 2030-01-31 18:00:00 UTC: spam"
    )
    assert text.describe_gate(None) == "open"
    for mode, place, shut, expected in (
        ("open", ("tests.echo", "a"), gate(), "Nothing moves there yet: everything is held"),
        ("open", ("tests.echo", "a"), gate(type=ECHO), "Nothing moves there yet: tests.echo is"),
        ("open", ("tests.echo", None), gate("drop"), "everything is dropped"),
        ("hold", ("tests.echo", "a"), gate("drop", type=ECHO), "still fail: tests.echo"),
    ):
        assert expected in text.describe_gate_change(mode, *place, gate(), [shut])
    for mode, place, shut in (
        ("open", ("tests.echo", "a"), gate(type=ECHO, collection="b")),
        ("open", ("tests.add", "a"), gate(type=ECHO)),
        ("open", ("tests.echo", None), gate(type=ECHO, collection="a")),
        ("open", (None, None), gate(type=ECHO)),
        ("hold", ("tests.echo", "a"), gate()),
        ("drop", ("tests.echo", "a"), gate()),
    ):
        sentence = text.describe_gate_change(
            mode, *place, None if mode != "open" else gate(), [shut]
        )
        assert "yet" not in sentence
        assert "still fail" not in sentence


def test_limits_are_described_in_words():
    limit = Limit(max_running=3, rate="5/s", burst=2, weight=2)
    assert text.describe_limits(limit) == "3 at a time; 5/s, 2 at once; weight 2"
    assert text.describe_limits(Limit()) == text.describe_limits(None) == "nothing is limited"


def test_log_messages_have_the_expected_text():
    later = NOW + timedelta(hours=1)
    shut = SimpleNamespace(
        mode="drop", who="ann", since=NOW, until=later, reason="spam", subject="queue"
    )
    of_rate = NO_LIMITS | {"rate": "5/s", "weight": 2.0}
    late, left_behind = messages.late_result, messages.processes_left_behind
    changed = [("priority", 3, -5), ("due", NOW, later), ("collection", "a", "")]
    for message, expected in (
        (
            messages.task_changed(changed, NOW),
            "priority 3 → -5; due now → 2030-01-31 19:00:00 UTC; collection a → none",
        ),
        (
            messages.gate_set("hold", until=later, was=shut),
            "gate: hold, until 2030-01-31 19:00:00 UTC (was: dropped by ann, "
            "since 2030-01-31 18:00:00 UTC, until 2030-01-31 19:00:00 UTC: spam)",
        ),
        (messages.limits_set(of_rate), "limits: rate: 5/s, burst: 1; weight: 2"),
        (
            messages.limits_left_to_code(NO_LIMITS, is_known=False),
            "limits left to the code, unchanged until the next registration: none",
        ),
        (
            messages.attempts_given_up(4, 3, 4, "it died"),
            "given up after 4 attempts were lost while running (restarts allowed: 3); "
            "the last attempt: it died",
        ),
        (
            messages.attempts_given_up(0, 1, 12, ""),
            "given up after 12 attempts were lost before they were seen running; "
            "the last attempt: reason unknown",
        ),
        (left_behind(["sleep"], 1), f"1 process that it left behind was ended: sleep {KEEP}"),
        (
            left_behind(list("abcdef"), 6, ended=False),
            "6 processes that it left behind could not be ended: a, b, c, d, e, …",
        ),
        (
            late(1, Event.FINISH, 41, transactional=False),
            f"attempt 1 finished 41 s after {TAKEN}; {TWICE}",
        ),
        (
            late(2, Event.RETRY, None, transactional=True),
            f"attempt 2 asked to be tried again after {TAKEN}; all that it wrote was rolled back",
        ),
        (
            late(1, None, None, transactional=False),
            f"attempt 1 reported progress, messages or files after {TAKEN}; {TWICE}",
        ),
    ):
        assert message == expected
