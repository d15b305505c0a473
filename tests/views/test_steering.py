"""Buttons and forms: daemons are told, and what waits is changed."""

import re
from datetime import timedelta

import pytest

from atp import queue
from atp.models import LogRecord
from atp.states import CLAIMED, State
from atp.words.orders import Mode, Order

from .test_acting import errors


def change(operator, instance, **given):
    return operator.post(f"/atp/instances/{instance.uuid}/change/", given)


# What waits


def test_the_form_begins_with_what_is(full, operator):
    waiting = full[State.ACCEPTED]
    queue.change(waiting, priority=4, collection="books")
    form = operator.get(f"/atp/instances/{waiting.uuid}/change/").context["form"]
    assert form.initial == {"priority": 4, "collection": "books"}


def test_a_change(full, operator):
    waiting = full[State.ACCEPTED]
    shown = operator.get(f"/atp/instances/{waiting.uuid}/change/").content.decode()
    hidden = dict(re.findall(r'type="hidden" name="(initial-\w+)"(?: value="(.*?)")?', shown))
    given = {"priority": "9", "collection": "books", "due": "2100-01-31T18:00"} | hidden
    answer = operator.post(f"/atp/instances/{waiting.uuid}/change/", given)
    assert answer["Location"] == f"/atp/instances/{waiting.uuid}/"
    found = full[State.ACCEPTED]
    assert (found.priority, found.collection) == (9, "books")
    assert found.task.due_at.isoformat() == "2100-01-31T18:00:00+00:00"
    assert found.log.last().who == "user root via page"


def test_what_somebody_else_has_changed_meanwhile_stays(full, operator):
    """Who changes one thing does not put back another."""
    waiting = full[State.ACCEPTED]
    shown = {"initial-priority": "0", "initial-collection": "", "priority": "0"}
    queue.change(waiting, priority=8)
    change(operator, waiting, **shown, collection="books", due="")
    found = full[State.ACCEPTED]
    assert (found.priority, found.collection) == (8, "books")


def test_a_collection_is_taken_away(full, operator):
    waiting = full[State.ACCEPTED]
    queue.change(waiting, collection="books")
    given = {"initial-collection": "books", "collection": "", "initial-priority": "0"}
    change(operator, waiting, **given, priority="0")
    assert full[State.ACCEPTED].collection == ""


def test_nothing_different_is_not_logged(full, operator):
    waiting, before = full[State.ACCEPTED], LogRecord.objects.count()
    given = {"initial-collection": "", "collection": "", "initial-priority": "0", "priority": "0"}
    answer = operator.post(f"/atp/instances/{waiting.uuid}/change/", given, follow=True)
    assert "Nothing was changed." in answer.content.decode()
    assert LogRecord.objects.count() == before


def test_run_now(full, operator):
    """The button is the form with one field, and there only where it makes a difference."""
    waiting = full[State.ACCEPTED]
    queue.change(waiting, priority=4, collection="books")
    page = f"/atp/instances/{waiting.uuid}/"
    assert 'id="run-now"' in operator.get(page).content.decode()
    change(operator, waiting, due="0s")
    found = full[State.ACCEPTED]
    assert (found.priority, found.collection) == (4, "books")
    assert found.task.due_at <= full.world.store.now()
    shown = operator.get(page).content.decode()
    assert 'id="run-now"' not in shown
    assert 'id="change"' in shown


@pytest.mark.parametrize("state", sorted(set(State) - {State.ACCEPTED}))
def test_what_does_not_wait(state, full, operator):
    """G6: no button, and refused with the state."""
    instance = full[state]
    shown = operator.get(f"/atp/instances/{instance.uuid}/").content.decode()
    assert "/change/" not in shown
    before = LogRecord.objects.count()
    answer = change(operator, instance, due="0s")
    assert answer.status_code == 409
    assert state in errors(answer)
    assert operator.get(f"/atp/instances/{instance.uuid}/change/").status_code == 409
    assert LogRecord.objects.count() == before


@pytest.mark.parametrize(
    ("given", "status", "told"),
    [
        ({"priority": "1000"}, 422, "from -100 to 100"),
        ({"priority": "high"}, 422, "whole number"),
        ({"collection": "a\nb"}, 422, "printable"),
        ({"collection": "x" * 201}, 422, "200 are allowed"),
        ({"due": "soon"}, 422, "neither a time"),
        ({"due": "9999-12-31T23:59-10:00"}, 422, "calendar"),
        ({"colour": "red"}, 400, "colour"),
    ],
)
def test_bad_input_is_told_and_nothing_is_written(given, status, told, full, operator):
    """G13."""
    before = LogRecord.objects.count()
    answer = change(operator, full[State.ACCEPTED], **given)
    assert answer.status_code == status
    assert told in errors(answer)
    assert LogRecord.objects.count() == before


def test_never_due_after_its_start_before(world, operator):
    from tests.app.tasks import echo

    limited = echo.using(start_before=timedelta(hours=1)).enqueue()
    answer = change(operator, limited, due="2h")
    assert answer.status_code == 422
    assert "earlier than start_before" in errors(answer)


# Daemons


@pytest.mark.parametrize("order", Order)
def test_a_daemon_is_told(order, full, operator):
    host = full.host
    if order == Order.RESUME:
        queue.command(host.uuid, "quiet")
    address = f"/atp/daemons/{host.uuid}/{order}/"
    answer = operator.post(address, {"sure": "yes"}, follow=True)
    assert answer.redirect_chain == [(f"/atp/daemons/{host.uuid}/", 302)]
    assert f"It has been told to {order.label}." in answer.content.decode()
    assert host.row.request == {"resume": ""}.get(order, order)
    assert LogRecord.objects.about("daemon:host:1").last().who == "user root via page"


def test_to_stop_a_daemon_asks_once_more(full, operator):
    answer = operator.post(f"/atp/daemons/{full.host.uuid}/stop/")
    assert 'name="sure"' in answer.content.decode()
    assert full.host.row.request == ""


def test_a_daemon_that_has_stopped_is_told_of(full, operator):
    gone = full.world.host("tests.add", name="gone")
    full.world.store.leave(gone.uuid)
    assert "It has stopped at" in operator.get(f"/atp/daemons/{gone.uuid}/").content.decode()
    assert f"/atp/daemons/{gone.uuid}/" in operator.get("/atp/daemons/").content.decode()


def test_the_buttons_are_those_that_make_a_difference(full, operator):
    page = f"/atp/daemons/{full.host.uuid}/"

    def buttons():
        return set(re.findall(rf'{page}(\w+)/"', operator.get(page).content.decode()))

    assert buttons() == {"quiet", "stop"}
    queue.command(full.host.uuid, "quiet")
    assert buttons() == {"resume", "stop"}
    queue.command(full.host.uuid, "stop")
    assert buttons() == set()


def test_what_makes_none_is_refused(full, operator):
    answer = operator.post(f"/atp/daemons/{full.host.uuid}/resume/")
    assert answer.status_code == 409
    assert "it is running" in errors(answer)
    assert full.host.row.request == ""


def test_a_lost_one_has_no_buttons(full, operator):
    full.host.lose_lease()
    page = f"/atp/daemons/{full.host.uuid}/"
    assert f"{page}quiet/" not in operator.get(page).content.decode()
    assert operator.post(f"{page}quiet/").status_code == 409


@pytest.mark.parametrize(
    "path", ["{uuid}/sleep/", "x/quiet/", "00000000-0000-7000-8000-000000000000/quiet/"]
)
def test_what_there_is_not(path, full, operator):
    path = path.format(uuid=full.host.uuid)
    assert operator.post(f"/atp/daemons/{path}").status_code == 404


def test_an_order_is_no_page(full, operator):
    answer = operator.get(f"/atp/daemons/{full.host.uuid}/quiet/")
    assert answer.status_code == 405


def test_who_may_only_look_sees_no_buttons(full, visitor, allow):
    """G14."""
    allow("view_daemon", "view_instance")
    daemon, instance = f"/atp/daemons/{full.host.uuid}/", full[State.ACCEPTED]
    assert f"{daemon}quiet/" not in visitor.get(daemon).content.decode()
    page = f"/atp/instances/{instance.uuid}/"
    assert "/change/" not in visitor.get(page).content.decode()
    allow("operate", "control")
    assert f"{daemon}quiet/" in visitor.get(daemon).content.decode()
    assert "/change/" in visitor.get(page).content.decode()


def test_pages_say_what_a_daemon_does_and_is_about_to(full, operator):
    host = full.host
    for page in ("/atp/", "/atp/daemons/", f"/atp/daemons/{host.uuid}/"):
        assert "told to" not in operator.get(page).content.decode()
    queue.command(host.uuid, "quiet")
    for page in ("/atp/", "/atp/daemons/", f"/atp/daemons/{host.uuid}/"):
        assert "told to go quiet" in operator.get(page).content.decode()
    full.world.store.renew(host.uuid, lease=30, mode=Mode.QUIET)
    for page in ("/atp/", "/atp/daemons/", f"/atp/daemons/{host.uuid}/"):
        shown = operator.get(page).content.decode()
        assert '<span class="condition quiet">quiet</span>' in shown
        assert "> told to" not in shown
    queue.command(host.uuid, "resume")
    assert "told to resume" in operator.get("/atp/daemons/").content.decode()


def test_the_overview_says_which_types_nobody_claims(full, operator):
    assert "claims anything" not in operator.get("/atp/").content.decode()
    queue.command(full.host.uuid, "quiet")
    shown = operator.get("/atp/").content.decode()
    assert "No daemon that serves tests.add, tests.echo claims anything" in shown


# Deleting


@pytest.mark.parametrize("state", State)
def test_delete(full, operator, state):
    """G12: cancelled first; what a daemon holds is not removed before its end."""
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
        subject = f"type:{instance.type.identifier}"
        assert LogRecord.objects.about(subject).last().who == "user root via page"


@pytest.mark.parametrize("state", State)
def test_deleting_what_lives_takes_the_permission_to_operate(full, visitor, allow, state):
    """G14: who may delete may not end what runs by it."""
    allow("view_instance", "delete_instance")
    instance, before = full[state], full.world.snapshot()
    page = f"/atp/instances/{instance.uuid}/"
    assert ('id="delete"' in visitor.get(page).content.decode()) == instance.is_terminal
    statuses = [getattr(visitor, m)(f"{page}delete/").status_code for m in ("get", "post")]
    if instance.is_terminal:
        assert statuses == [200, 302]
    else:
        assert statuses == [403, 403]
        assert full.world.snapshot() == before


def test_who_may_not_delete_sees_no_link(full, visitor, allow):
    allow("view_instance", "operate")
    page = f"/atp/instances/{full[State.FAILED].uuid}/"
    assert 'id="delete"' not in visitor.get(page).content.decode()
    allow("delete_instance")
    assert 'id="delete"' in visitor.get(page).content.decode()
