"""What is odd, in what is stored, who asks, or how a project is set: never a fault of ours."""

import html
import re

import pytest
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.db import OperationalError, connection

from atp.models import Daemon, Inputs, Instance, LogRecord, Response
from atp.reports import timeline
from atp.states import Event, Reason, State
from tests.app.tasks import echo, keyword

ECHO = "/atp/types/tests.echo/enqueue/"


def shown(answer):
    assert answer.status_code == 200, answer.content.decode()
    return answer.content.decode()


def page_of(client, instance, what=""):
    return client.get(f"/atp/instances/{instance.uuid}/{what}")


# What is stored


def test_arguments_may_have_any_name(operator, world):
    """But for that of the context, which the handler is given by the worker."""
    operator.post(ECHO, {"inputs": '{"self": 1, "task_type": 2}'})
    assert Inputs.objects.get().value == {"self": 1, "task_type": 2}
    refused = operator.post(ECHO, {"inputs": '{"context": 3}'})
    assert "is the context, and no argument" in html.unescape(refused.content.decode())
    assert Inputs.objects.count() == 1


def test_half_a_character_in_json(full, operator):
    """JSON of others may cut a character in two."""
    data = b'{"title": "\\ud83d"}'
    instance = full.finished(content_type="application/json", data=data, size=len(data))
    assert "\\ud83d" in shown(page_of(operator, instance))
    other = echo.enqueue(x=1)
    Inputs.objects.filter(instance=other).update(data=data.decode())
    assert "\\ud83d" in shown(page_of(operator, other))
    assert "\\ud83d" in shown(operator.get(f"{ECHO}?like={other.uuid}"))


def test_no_log(full, operator):
    """As while it is being purged."""
    failed = full[State.FAILED]
    LogRecord.objects.filter(instance=failed).delete()
    assert timeline.timeline(failed).spans == ()
    shown(page_of(operator, failed))
    failed.delete()


@pytest.mark.parametrize("name", ["a\n", "a\r\nX-Evil: 1", "ü\u202e", "", '"', "../../etc"])
def test_names_of_published_files(name, full, operator):
    path = storages["default"].save("atp/file.bin", ContentFile(b"x"))
    entry = {"name": name, "path": path, "content_type": "text/plain", "size": 1, "attempt": 1}
    instance = full[State.FINISHED]
    Response.objects.filter(instance=instance).update(files=[entry])
    answer = page_of(operator, instance, "files/0")
    assert answer.getvalue() == b"x"
    assert "X-Evil" not in answer


# What PostgreSQL does not take as JSON.
NUL = [{"name": "a", "path": "a\x00b", "content_type": "x/y", "size": 1, "attempt": 1}]
HALVES = ([{"worker": 0, "pid": 1, "type": "\ud800", "instance": 7, "since": 7}], ["\ud800"])
IS_SQLITE = connection.vendor == "sqlite"


@pytest.mark.each_database
@pytest.mark.parametrize(
    "files",
    [7, ["x"], [{}], [{"name": "a", "path": None}], [[]], {"name": "a"}, *[NUL] * IS_SQLITE],
)
def test_files_of_another_shape(files, full, operator):
    instance = full[State.FINISHED]
    Response.objects.filter(instance=instance).update(files=files)
    shown(page_of(operator, instance))
    assert page_of(operator, instance, "files/0").status_code == 404


def test_a_content_type_without_a_body(full, operator):
    instance = full.finished(content_type="application/json", data=None, size=0)
    assert page_of(operator, instance, "response").status_code == 404
    shown(page_of(operator, instance))


@pytest.mark.parametrize("data", ["{", "", "9" * 6000, "[" * 2000])
def test_inputs_that_cannot_be_read(data, full, operator):
    instance = full[State.FAILED]
    Inputs.objects.filter(instance=instance).update(data=data)
    shown(page_of(operator, instance))
    assert operator.get(f"{ECHO}?like={instance.uuid}").status_code == 400


@pytest.mark.each_database
@pytest.mark.parametrize(
    ("workers", "types"),
    [
        ("text", 7),
        (7, None),
        ([1], [{}]),
        ([None], [None]),
        ([{"worker": 0, "pid": 1, "instance": None, "since": "2026-01-01T00:00:00"}], {}),
        *[HALVES] * IS_SQLITE,
    ],
)
def test_daemons_of_another_version(workers, types, full, operator):
    if types is not None:
        Daemon.objects.update(types=types)
    Daemon.objects.update(workers=workers)
    for address in ("/atp/", "/atp/daemons/", f"/atp/daemons/{Daemon.objects.get().uuid}/"):
        shown(operator.get(address))


def test_what_was_missed_took_no_time(full, operator):
    """It had been tried, and then waited until it was too late."""
    instance, move = full.claimed()
    move(Event.START)
    move(Event.RETRY, message="busy")
    Instance.objects.filter(pk=instance.pk).update(
        state=State.FAILED, reason=Reason.MISSED, finished=full.world.store.now()
    )
    instance.task.delete()
    assert "<dt>Elapsed</dt>" not in shown(page_of(operator, instance))
    instance.delete()


def test_why_the_last_attempt_ended_while_it_waits_for_the_next(full, operator):
    instance, move = full.claimed()
    move(Event.START)
    move(Event.RETRY, message="the service is busy")
    assert "The last attempt: the service is busy" in shown(page_of(operator, instance))


# Who asks


def test_release_of_what_nobody_holds_any_more(full, operator):
    """G6: told, and not logged as if it had happened."""
    waiting = full[State.ACCEPTED]
    before = waiting.log.count()
    answer = operator.post(f"/atp/instances/{waiting.uuid}/release/")
    assert answer.status_code == 409
    assert "no daemon holds it" in answer.content.decode()
    assert waiting.log.count() == before


def test_a_release_is_asked_for_once(full, operator):
    running = full[State.RUNNING]
    address = f"/atp/instances/{running.uuid}/release/"
    assert address in shown(page_of(operator, running))
    operator.post(address)
    assert address not in shown(page_of(operator, running))


@pytest.mark.parametrize("name", [7, None])
def test_a_user_model_of_its_own(name, full, operator, monkeypatch):
    monkeypatch.setattr(User, "get_username", lambda self: name)
    failed = full[State.FAILED]
    assert operator.post(f"/atp/instances/{failed.uuid}/redrive/").status_code == 302
    assert failed.log.get(kind=Event.REDRIVE).who == f"user {name} via page"


def test_a_login_in_mid_action_leads_back_to_the_instance(full, client):
    failed = full[State.FAILED]
    answer = client.post(f"/atp/instances/{failed.uuid}/redrive/")
    assert answer["Location"] == f"/login/?next=/atp/instances/{failed.uuid}/"


def test_fields_that_an_action_has_not(full, operator):
    failed = full[State.FAILED]
    address = f"/atp/instances/{failed.uuid}/redrive/"
    assert operator.post(address, {"force": "yes"}).status_code == 400
    assert operator.post(ECHO, {"inputs": ["{}", "{}"]}).status_code == 400
    assert full[State.FAILED].state == State.FAILED


def test_who_may_not_see_instances_is_not_shown_what_workers_do(full, visitor, allow):
    allow("view_daemon")
    for address in ("/atp/daemons/", f"/atp/daemons/{Daemon.objects.get().uuid}/"):
        assert str(full[State.RUNNING].uuid) not in shown(visitor.get(address))


def test_enqueue_again_is_offered_where_it_can_be_done(full, visitor, allow):
    allow("view_instance", "operate", "view_inputs")
    assert "Enqueue again" not in shown(page_of(visitor, full[State.FAILED]))
    allow("enqueue")
    assert "Enqueue again" in shown(page_of(visitor, full[State.FAILED]))


def test_enqueue_again_is_the_same_again(operator, world):
    """An empty collection is none, also where the Type has one of its own."""
    address = "/atp/types/tests.keyword/enqueue/"
    form = operator.get(address).context["form"]
    assert (form.initial["collection"], form.initial["priority"]) == ("books", 5)
    other = keyword.using(collection="").enqueue(path="a")
    again = operator.get(f"{address}?like={other.uuid}").context["form"].initial
    operator.post(address, {name: "" if value is None else value for name, value in again.items()})
    assert [i.collection for i in Instance.objects.all()] == ["", ""]


def test_a_filter_shows_what_it_filters_by(full, operator):
    answer = shown(operator.get("/atp/instances/?state=failed"))
    assert '<option value="FAILED" selected>' in answer


# How a project is set


@pytest.mark.parametrize("address", ["/atp/", ECHO])
def test_a_database_that_does_not_even_know_who_asks(address, full, operator, monkeypatch):
    """G14: sessions and users are in it too."""

    def fail(*args, **kwargs):
        raise OperationalError("connection refused by 10.0.0.7")

    monkeypatch.setattr("django.contrib.auth.get_user", fail)
    monkeypatch.setattr("django.contrib.auth.middleware.auth.get_user", fail)
    answer = operator.get(address)
    assert answer.status_code == 503
    assert "does not answer" in answer.content.decode()
    assert "10.0.0.7" not in answer.content.decode()
    assert operator.get(address, headers={"HX-Request": "true"}).status_code == 503


@pytest.mark.parametrize(
    ("language", "separator"), [("de", False), ("fr", True), ("en-us", True), ("ar", True)]
)
def test_numbers_of_a_drawing_are_not_translated(language, separator, full, operator, settings):
    settings.LANGUAGE_CODE, settings.USE_THOUSAND_SEPARATOR = language, separator
    answer = shown(page_of(operator, full[State.FAILED]))
    drawing = answer[answer.index('<svg class="timeline"') :]
    assert re.search(r'viewBox="0 0 1003 24"', drawing)
    for x, width in re.findall(r'x="(.*?)" y="0" width="(.*?)"', drawing):
        assert float(x) >= 0
        assert float(width) > 0


def test_static_files_on_another_server(full, operator, settings):
    settings.STORAGES = {
        **settings.STORAGES,
        "staticfiles": {"BACKEND": "tests.views.elsewhere.StorageElsewhere"},
    }
    policy = operator.get("/atp/")["Content-Security-Policy"]
    assert "script-src 'self' https://files.example;" in policy
    assert "connect-src 'self';" in policy


def test_what_a_lost_daemon_holds(full, operator):
    """Nobody is there who could be asked for anything."""
    running = full[State.RUNNING]
    full.host.lose_lease()
    told = shown(page_of(operator, running))
    assert '<span class="condition lost">lost</span>' in told
    assert "/release/" not in told
    assert "was lost with work in hand" in shown(operator.get("/atp/"))
    assert "workers busy" not in shown(operator.get("/atp/daemons/"))


def test_why_it_was_lost_is_said_of_what_is_stale(full, operator):
    instance = echo.using(priority=100).enqueue()
    while not instance.is_terminal:
        [case] = full.host.claim(limit=1)
        full.host.move(case, Event.START)
        full.host.move(case, Event.EXPIRE, message="its worker died by SIGSEGV")
        instance.refresh_from_db()
    assert instance.reason == Reason.STALE
    assert "its worker died by SIGSEGV\ngiven up" in shown(page_of(operator, instance))


def test_when_what_waits_is_due(full, operator):
    row = shown(operator.get("/atp/instances/?state=ACCEPTED"))
    assert "in 3 h" in row
