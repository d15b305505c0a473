"""The stack of an attempt on the page of its Instance, and in the shell."""

import io
import logging
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from atp import text
from atp.models import ASKED, Kind, LogRecord
from atp.shell import instances as shell
from atp.states import Event, State
from atp.store import get_store
from atp.store.values import Message, ProgressUpdate

from .pages import check_page

ATP = "/srv/lib/atp"
HANDLER = '  File "/srv/site/terrain/tasks.py", line 42 in merge\n'
LIBRARY = '  File "/usr/lib/python3.11/threading.py", line 324 in wait\n'
OWN = f'  File "{ATP}/authoring/steps.py", line 70 in step\n'
BELOW = (
    f'  File "{ATP}/daemon/worker/execution.py", line 98 in _call\n'
    f'  File "{ATP}/daemon/worker/worker.py", line 133 in _perform\n'
    '  File "/srv/site/manage.py", line 11 in <module>\n'
)
OTHER = "Thread 77 (most recent call first):\n" + LIBRARY
HEAD = "Main thread (most recent call first):\n"
FRAMES = f"{HEAD}{LIBRARY}{OWN}{HANDLER}{BELOW}\n{OTHER}"


def write_stack(full, instance, *, detail=ASKED, age=timedelta()):
    message = Message(
        time=get_store().now() - age,
        level=logging.INFO,
        text=f"stack: 61.3 MiB resident\n\n{FRAMES}",
        kind=Kind.STACK,
        detail=detail,
    )
    note = ProgressUpdate(instance=instance.pk, attempt=instance.attempt, messages=(message,))
    assert get_store().records.note([note], daemon=full.host.uuid) == []


def page(client, instance):
    return client.get(f"/atp/instances/{instance.uuid}/")


def test_stack_is_shown_without_the_frames_of_atp_around_the_handler():
    assert text.handler_frames(FRAMES) == f"{HEAD}{LIBRARY}{HANDLER}\n{OTHER}"


def test_page_shows_a_fresh_stack_and_folds_an_older_one(full, operator):
    instance, older = full[State.RUNNING], 'id="older-stack"'
    check_page(page(operator, instance), lacks=["<h2>Stack</h2>"])
    write_stack(full, instance, age=timedelta(minutes=5))
    check_page(page(operator, instance), f"<details {older}>")
    write_stack(full, instance)
    shown = "<h2>Stack</h2>", "terrain/tasks.py&quot;, line 42 in merge"
    check_page(page(operator, instance), *shown, lacks=[older, "With the frames of ATP"])


def test_page_shows_the_stack_before_a_kill_with_the_failure(full, operator):
    instance, move = full.claimed()
    move(Event.START)
    instance.refresh_from_db()
    write_stack(full, instance, detail="time-out")
    move(Event.EXPIRE, message="its time-out of 600 s has passed", detail="time-out")
    shown = page(operator, instance)
    check_page(shown, '<details id="stack-of-failure">', lacks=["<h2>Stack</h2>"])


def test_stack_needs_the_permission_to_see_the_log(full, visitor, allow):
    instance = full[State.RUNNING]
    write_stack(full, instance)
    allow("view_instance", "operate")
    # The button is there.
    check_page(page(visitor, instance), 'id="stack"', lacks=["line 42 in merge"])


def test_shell_prints_the_stack_when_the_daemon_has_written_it(full, monkeypatch):
    instance = full[State.RUNNING]
    monkeypatch.setattr(shell, "_is_in_transaction", lambda: False)
    monkeypatch.setattr(shell.time, "sleep", lambda _: write_stack(full, instance))
    out = io.StringIO()
    call_command("atp", "stack", str(instance.uuid), stdout=out)
    assert out.getvalue().splitlines()[:2] == ["stack: 61.3 MiB resident", ""]
    assert HANDLER in out.getvalue()
    assert "execution.py" not in out.getvalue()
    assert LogRecord.objects.filter(kind=Kind.ASK, detail="stack").count() == 1


def test_shell_fails_if_the_daemon_does_not_write_the_stack_in_time(full, monkeypatch):
    monkeypatch.setattr(shell, "_is_in_transaction", lambda: False)
    monkeypatch.setattr(shell, "_STACK_WITHIN", 0.0)
    for state, words in (
        (State.RUNNING, "has not written the stack"),
        (State.ACCEPTED, "cannot be taken: it is ACCEPTED"),
        (State.RUNNING, "has asked for it already"),
    ):
        with pytest.raises(CommandError, match=words):
            call_command("atp", "stack", str(full[state].uuid), stdout=io.StringIO())
