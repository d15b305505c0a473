"""Unusual data, requests and settings cause no server error."""

import re

import pytest
from django.contrib.staticfiles.storage import StaticFilesStorage
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.db import connection

from atp.models import Daemon, Inputs, Instance, LogRecord, Response
from atp.reports import timeline
from atp.states import Event, Reason, State
from tests.app.tasks import echo

from .pages import check_page

ECHO = "/atp/types/tests.echo/enqueue/"


def page_of(client, instance, what=""):
    return client.get(f"/atp/instances/{instance.uuid}/{what}")


def test_arguments_cannot_have_the_name_of_the_context(operator, world):
    """The worker itself passes the context to the handler. Any other name is possible."""
    operator.post(ECHO, {"inputs": '{"self": 1, "task_type": 2}'})
    assert Inputs.objects.get().value == {"self": 1, "task_type": 2}
    refused = operator.post(ECHO, {"inputs": '{"context": 3}'})
    check_page(refused, "is the context, not an argument", status=422)


def test_unpaired_surrogates_in_json_are_shown(full, operator):
    """Other programs can write JSON that contains half of a surrogate pair."""
    data = b'{"title": "\\ud83d"}'
    instance = full.finished(content_type="application/json", data=data, size=len(data))
    check_page(page_of(operator, instance), "\\ud83d")
    other = echo.enqueue(x=1)
    Inputs.objects.filter(instance=other).update(data=data.decode())
    for answer in (page_of(operator, other), operator.get(f"{ECHO}?like={other.uuid}")):
        check_page(answer, "\\ud83d")


def test_pages_work_without_a_log(full, operator):
    """An Instance can be without a log while it is being purged."""
    failed = full[State.FAILED]
    LogRecord.objects.filter(instance=failed).delete()
    assert timeline.timeline(failed).spans == ()
    check_page(page_of(operator, failed))
    failed.delete()
    # Nor a body, but a content type.
    instance = full.finished(content_type="application/json", data=None, size=0)
    assert page_of(operator, instance, "response").status_code == 404
    check_page(page_of(operator, instance))


def test_unsafe_names_of_published_files_are_cleaned(full, operator):
    """File names are offered without folders and control characters (G14)."""
    path = storages["default"].save("atp/file.bin", ContentFile(b"x"))
    entry = {"path": path, "content_type": "text/plain", "size": 1, "attempt": 1}
    instance = full[State.FINISHED]
    for name, told in (
        ("a\r\nX-Evil: 1", None),
        ("ü\u202e", None),
        ("../../etc/passwd", "passwd"),
        ("..\\a\x07.txt", "a.txt"),
        ("..", "file"),
        ("/", "file"),
    ):
        Response.objects.filter(instance=instance).update(files=[{**entry, "name": name}])
        answer = page_of(operator, instance, "files/0")
        assert answer.getvalue() == b"x"
        assert "X-Evil" not in answer
        assert "\n" not in answer["Content-Disposition"]
        if told:
            assert answer["Content-Disposition"].endswith(f'filename="{told}"')


# What PostgreSQL does not take as JSON.
NUL = [{"name": "a", "path": "a\x00b", "content_type": "x/y", "size": 1, "attempt": 1}]
HALVES = ([{"worker": 0, "pid": 1, "type": "\ud800", "instance": 7, "since": 7}], ["\ud800"])
IS_SQLITE = connection.vendor == "sqlite"


@pytest.mark.slow
@pytest.mark.each_database
def test_malformed_rows_do_not_break_the_pages(full, operator):
    instance = full[State.FINISHED]
    for files in (7, ["x"], [{}], [{"name": "a", "path": None}], [[]], {"name": "a"}, NUL):
        if files is not NUL or IS_SQLITE:
            Response.objects.filter(instance=instance).update(files=files)
        check_page(page_of(operator, instance))
        assert page_of(operator, instance, "files/0").status_code == 404
    instance = full[State.FAILED]
    for data in ("{", "", "9" * 6000, "[" * 2000):
        Inputs.objects.filter(instance=instance).update(data=data)
        check_page(page_of(operator, instance))
        assert operator.get(f"{ECHO}?like={instance.uuid}").status_code == 400
    naive = {"worker": 0, "pid": 1, "instance": None, "since": "2026-01-01T00:00:00"}
    nonsense = {"worker": 0, "pid": 1, "instance": "no uuid", "since": "never"}
    for workers, types in (
        ("text", 7),
        ([1], [{}]),
        ([None], [None]),
        ([naive, nonsense], {}),
        *[HALVES] * IS_SQLITE,
    ):
        Daemon.objects.update(types=types, workers=workers)
        for address in ("/atp/", "/atp/daemons/", f"/atp/daemons/{Daemon.objects.get().uuid}/"):
            check_page(operator.get(address))


def test_a_missed_instance_shows_no_elapsed_time(full, operator):
    """A retry waited too long. Before, the page shows why the last attempt failed."""
    instance, move = full.claimed()
    move(Event.START)
    move(Event.RETRY, message="the service is busy")
    check_page(page_of(operator, instance), "The last attempt: the service is busy")
    Instance.objects.filter(pk=instance.pk).update(
        state=State.FAILED, reason=Reason.MISSED, finished=full.world.store.now()
    )
    instance.task.delete()
    check_page(page_of(operator, instance), lacks=["<dt>Elapsed</dt>"])
    instance.delete()


def test_numbers_in_a_drawing_are_not_localized(full, operator, settings):
    for language, separator in (("de", False), ("fr", True), ("ar", True)):
        settings.LANGUAGE_CODE, settings.USE_THOUSAND_SEPARATOR = language, separator
        answer = check_page(page_of(operator, full[State.FAILED]))
        drawing = answer[answer.index('<svg class="timeline"') :]
        assert re.search(r'viewBox="0 0 1003 24"', drawing)
        for x, width in re.findall(r'x="(.*?)" y="0" width="(.*?)"', drawing):
            assert float(x) >= 0
            assert float(width) > 0


class StorageElsewhere(StaticFilesStorage):
    """A static files storage with the URL of another server."""

    def url(self, name):
        return f"https://files.example/{name}"


def test_static_files_on_another_server_are_allowed_by_the_policy(full, operator, settings):
    settings.STORAGES = {
        **settings.STORAGES,
        "staticfiles": {"BACKEND": f"{__name__}.StorageElsewhere"},
    }
    policy = operator.get("/atp/")["Content-Security-Policy"]
    assert "script-src 'self' https://files.example;" in policy
    assert "connect-src 'self';" in policy


def test_an_instance_of_a_lost_daemon_offers_no_release(full, operator):
    running = full[State.RUNNING]
    full.host.lose_lease()
    lost = '<span class="condition lost">lost</span>'
    check_page(page_of(operator, running), lost, lacks=["/release/"])
    check_page(operator.get("/atp/"), "was lost while it held Tasks")
    check_page(operator.get("/atp/daemons/"), lacks=["workers busy"])


def test_a_stale_instance_shows_why_it_was_lost(full, operator):
    instance = echo.using(priority=100).enqueue()
    while not instance.is_terminal:
        [case] = full.host.claim(limit=1)
        full.host.move(case, Event.START)
        full.host.move(case, Event.EXPIRE, message="its worker died by SIGSEGV")
        instance.refresh_from_db()
    assert instance.reason == Reason.STALE
    check_page(page_of(operator, instance), "its worker died by SIGSEGV\ngiven up")
