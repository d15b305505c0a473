"""Buttons and forms that change waiting Tasks and send commands to daemons."""

import re

import pytest

from atp import queue
from atp.commands import DaemonCommand, Mode
from atp.models import LogRecord
from atp.states import CLAIMED, State

from .pages import check_page
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
    check_page(operator.get(page), 'id="run-now"')
    change(operator, waiting, due="0s")
    found = full[State.ACCEPTED]
    assert (found.priority, found.collection) == (9, "books")
    assert found.task.due_at <= full.world.store.now()
    check_page(operator.get(page), 'id="change"', lacks=['id="run-now"'])


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
    check_page(operator.get(answer["Location"]), "Nothing was changed.")
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
    check_page(operator.post(f"{page}stop/"), 'name="sure"')
    assert host.row.request == ""
    for order, left in ((DaemonCommand.QUIET, "resume"), (DaemonCommand.RESUME, "quiet")):
        answer = operator.post(f"{page}{order}/", {"sure": "yes"}, follow=True)
        assert answer.redirect_chain == [(page, 302)]
        check_page(answer, f"It has been told to {order.label}.")
        assert LogRecord.objects.about("daemon:host:1").last().who == "user root via page"
        assert buttons() == {left, "stop"}
    operator.post(f"{page}stop/", {"sure": "yes"})
    assert host.row.request == "stop"
    assert buttons() == set()
    host.lose_lease()
    assert buttons() == set()
    assert operator.post(f"{page}quiet/").status_code == 409
    gone = full.world.host("tests.add", name="gone")
    full.world.store.daemons.leave(gone.uuid)
    left = f"/atp/daemons/{gone.uuid}/"
    check_page(operator.get(left), "It has stopped at")
    check_page(operator.get("/atp/daemons/"), left)
    assert operator.get(f"{page}quiet/").status_code == 405
    for path in (f"{page}sleep/", "/atp/daemons/x/quiet/"):
        assert operator.post(path).status_code == 404


@pytest.mark.slow
def test_pages_show_the_mode_and_the_pending_command_of_a_daemon(full, operator):
    host = full.host

    paths = "/atp/", "/atp/daemons/", f"/atp/daemons/{host.uuid}/"

    def check(*parts, lacks=()):
        for path in paths:
            check_page(operator.get(path), *parts, lacks=lacks)

    check(lacks=["told to"])
    queue.command(host.uuid, "quiet")
    check("told to go quiet")
    unserved = "No daemon claims tests.add, tests.echo: an operator told each daemon"
    check_page(operator.get("/atp/"), unserved)
    full.world.store.daemons.renew(host.uuid, lease=30, mode=Mode.QUIET)
    check('<span class="condition quiet">quiet</span>', lacks=["> told to"])
    queue.command(host.uuid, "resume")
    check_page(operator.get("/atp/daemons/"), "told to resume")


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
