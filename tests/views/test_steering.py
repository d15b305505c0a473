"""Buttons and forms that change waiting Tasks and send commands to daemons."""

import re

import pytest

from atp import queue
from atp.commands import DaemonCommand, Mode
from atp.models import LogRecord
from atp.states import CLAIMED, State

from .test_acting import errors


def change(operator, instance, **given):
    return operator.post(f"/atp/instances/{instance.uuid}/change/", given)


def test_the_change_form_changes_a_waiting_task(full, operator):
    waiting = full[State.ACCEPTED]
    page = f"/atp/instances/{waiting.uuid}/"
    queue.change(waiting, priority=4, collection="maps")
    answer = operator.get(f"{page}change/")
    assert answer.context["form"].initial == {"priority": 4, "collection": "maps"}
    shown = answer.content.decode()
    hidden = dict(re.findall(r'type="hidden" name="(initial-\w+)"(?: value="(.*?)")?', shown))
    given = {"priority": "9", "collection": "books", "due": "2100-01-31T18:00"} | hidden
    answer = change(operator, waiting, **given)
    assert answer["Location"] == page
    found = full[State.ACCEPTED]
    assert (found.priority, found.collection) == (9, "books")
    assert found.task.due_at.isoformat() == "2100-01-31T18:00:00+00:00"
    assert found.log.last().who == "user root via page"
    # The button to run it now is shown only if the Task is not due.
    assert 'id="run-now"' in operator.get(page).content.decode()
    change(operator, waiting, due="0s")
    found = full[State.ACCEPTED]
    assert (found.priority, found.collection) == (9, "books")
    assert found.task.due_at <= full.world.store.now()
    shown = operator.get(page).content.decode()
    assert 'id="run-now"' not in shown
    assert 'id="change"' in shown


def test_the_change_form_keeps_changes_made_by_others(full, operator):
    """Only fields that the user changed are written; a form without changes is not logged."""
    waiting = full[State.ACCEPTED]
    shown = {"initial-priority": "0", "initial-collection": "", "priority": "0"}
    queue.change(waiting, priority=8)
    change(operator, waiting, **shown, collection="books", due="")
    found = full[State.ACCEPTED]
    assert (found.priority, found.collection) == (8, "books")
    shown["initial-collection"], before = "books", LogRecord.objects.count()
    answer = change(operator, waiting, **shown, collection="books")
    answer = operator.get(answer["Location"])
    assert "Nothing was changed." in answer.content.decode()
    assert LogRecord.objects.count() == before
    change(operator, waiting, **shown, collection="")
    assert full[State.ACCEPTED].collection == ""


def test_the_daemon_page_sends_commands(full, operator):
    """Stopping asks for confirmation. A command without effect has no button and returns 409."""
    host = full.host
    page = f"/atp/daemons/{host.uuid}/"

    def buttons():
        return set(re.findall(rf'{page}(\w+)/"', operator.get(page).content.decode()))

    assert buttons() == {"quiet", "stop"}
    answer = operator.post(f"{page}resume/")
    assert answer.status_code == 409
    assert "it is running" in errors(answer)
    assert 'name="sure"' in operator.post(f"{page}stop/").content.decode()
    assert host.row.request == ""
    for order, left in (
        (DaemonCommand.QUIET, {"resume", "stop"}),
        (DaemonCommand.RESUME, {"quiet", "stop"}),
    ):
        answer = operator.post(f"{page}{order}/", {"sure": "yes"}, follow=True)
        assert answer.redirect_chain == [(page, 302)]
        assert f"It has been told to {order.label}." in answer.content.decode()
        assert LogRecord.objects.about("daemon:host:1").last().who == "user root via page"
        assert buttons() == left
    operator.post(f"{page}stop/", {"sure": "yes"})
    assert host.row.request == "stop"
    assert buttons() == set()
    host.lose_lease()
    assert buttons() == set()
    assert operator.post(f"{page}quiet/").status_code == 409
    gone = full.world.host("tests.add", name="gone")
    full.world.store.daemons.leave(gone.uuid)
    assert "It has stopped at" in operator.get(f"/atp/daemons/{gone.uuid}/").content.decode()
    assert f"/atp/daemons/{gone.uuid}/" in operator.get("/atp/daemons/").content.decode()
    # An order is no page, and what there is not is none.
    assert operator.get(f"{page}quiet/").status_code == 405
    for path in (f"{page}sleep/", "/atp/daemons/x/quiet/"):
        assert operator.post(path).status_code == 404


@pytest.mark.slow
def test_pages_show_the_mode_and_the_pending_command_of_a_daemon(full, operator):
    host = full.host

    def pages():
        paths = ("/atp/", "/atp/daemons/", f"/atp/daemons/{host.uuid}/")
        return [operator.get(path).content.decode() for path in paths]

    assert not any("told to" in shown for shown in pages())
    queue.command(host.uuid, "quiet")
    assert all("told to go quiet" in shown for shown in pages())
    assert "No daemon claims tests.add, tests.echo: an operator told each daemon" in pages()[0]
    full.world.store.daemons.renew(host.uuid, lease=30, mode=Mode.QUIET)
    for shown in pages():
        assert '<span class="condition quiet">quiet</span>' in shown
        assert "> told to" not in shown
    queue.command(host.uuid, "resume")
    assert "told to resume" in pages()[1]


def test_an_unclaimed_instance_is_deleted_at_once_and_a_claimed_one_is_cancelled(full, operator):
    """An Instance that a daemon holds is deleted only after its attempt has ended (G12)."""
    for state in State:
        instance = full[state]
        page = f"/atp/instances/{instance.uuid}/"
        asked = operator.get(f"{page}delete/").content.decode()
        assert ("A daemon holds it" in asked) == (state in CLAIMED)
        assert ("It is cancelled first" in asked) == (state == State.ACCEPTED)
        answer = operator.post(f"{page}delete/")
        if state in CLAIMED:
            assert answer["Location"] == page
            assert instance.task.request == "cancel"
        else:
            assert answer["Location"] == "/atp/instances/"
            assert operator.get(page).status_code == 404
            assert operator.post(f"{page}delete/").status_code == 404
