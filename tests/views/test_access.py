"""Who may see what, and do what (G14)."""

import html
import re

import pytest

from atp import queue, urls
from atp.models import Instance, LogRecord
from atp.states import Event, State

from ..populated import MARKUP
from .pages import (
    ACTING,
    ENQUEUE,
    INPUTS,
    INSTANCE,
    LOG,
    OPERATE,
    PAGES,
    RESPONSE,
    STEP,
    TYPE,
    VIEW_ALL,
)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)


def test_the_list_of_pages_is_whole():
    named = list(dict.fromkeys(page.name for page in PAGES))
    assert named == [pattern.name for pattern in urls.urlpatterns]


@each_page
def test_nothing_without_a_login(page, full, client):
    """G14: closed by default."""
    address = page.address(full)
    before = LogRecord.objects.count()
    answer = getattr(client, page.method)(address)
    assert answer.status_code == 302
    back = re.sub(r"(redrive|quiet|resume)/$", "", address)
    assert answer["Location"].startswith(f"/login/?next={back}")
    assert LogRecord.objects.count() == before


@each_page
def test_nothing_without_the_permission(page, full, visitor, allow):
    """G14: each permission that a page takes is needed, and named where it is lacking."""
    allow(*({*VIEW_ALL, *ACTING} - {*page.needs}))
    address = page.address(full)
    before = LogRecord.objects.count()
    for lacking in page.needs:
        answer = getattr(visitor, page.method)(address)
        assert answer.status_code == 403
        assert f"atp.{lacking}" in answer.content.decode()
        allow(lacking)
    assert LogRecord.objects.count() == before


@each_page
def test_the_permissions_are_enough(page, full, visitor, allow):
    allow(*page.needs)
    answer = getattr(visitor, page.method)(page.address(full))
    assert answer.status_code == page.shows


def test_the_menu_has_what_one_may_see(full, visitor, allow):
    allow(INSTANCE)
    shown = visitor.get("/atp/").content.decode()
    assert "/atp/instances/" in shown
    assert 'href="/atp/types/"' not in shown
    assert "Daemons" not in shown


def test_parts_of_an_instance_take_permissions_of_their_own(full, visitor, allow):
    allow(INSTANCE)
    address = f"/atp/instances/{full[State.FINISHED].uuid}/"
    parts = {LOG: "<h2>Log</h2>", INPUTS: "<h2>Inputs</h2>", RESPONSE: "<h2>Response</h2>"}
    parts[STEP] = "<h2>Steps</h2>"
    shown = visitor.get(address).content.decode()
    assert not any(heading in shown for heading in parts.values())
    for permission, heading in parts.items():
        allow(permission)
        assert heading in visitor.get(address).content.decode()


def test_why_it_failed_takes_the_permission_to_see_the_log(full, visitor, allow):
    allow(INSTANCE)
    address = f"/atp/instances/{full[State.FAILED].uuid}/"
    assert "ValueError" not in visitor.get(address).content.decode()
    allow(LOG)
    assert "ValueError" in visitor.get(address).content.decode()


def test_who_may_only_look_sees_no_buttons(full, visitor, allow):
    allow(*VIEW_ALL)
    address = f"/atp/instances/{full[State.FAILED].uuid}/"
    assert "Redrive" not in visitor.get(address).content.decode()
    assert "Enqueue" not in visitor.get("/atp/types/").content.decode()
    allow(OPERATE)
    assert "Redrive" in visitor.get(address).content.decode()
    assert "Enqueue" not in visitor.get("/atp/types/").content.decode()
    allow(ENQUEUE)
    assert "Enqueue" in visitor.get("/atp/types/").content.decode()


def test_the_inputs_of_another_take_the_permission_to_see_them(full, visitor, allow):
    allow(TYPE, ENQUEUE, INSTANCE)
    address = f"/atp/types/tests.echo/enqueue/?like={full[State.FAILED].uuid}"
    answer = visitor.get(address)
    assert answer.status_code == 403
    assert "said" not in answer.content.decode()


def test_an_action_is_logged_with_its_actor_and_channel(full, visitor, allow):
    """G6: who did it, and through what."""
    allow(INSTANCE, OPERATE)
    failed = full[State.FAILED]
    visitor.post(f"/atp/instances/{failed.uuid}/redrive/")
    assert failed.log.get(kind=Event.REDRIVE).who == "user olga via page"


def test_an_enqueue_is_logged_with_its_actor_and_channel(visitor, allow, db):
    allow(TYPE, INSTANCE, ENQUEUE)
    visitor.post("/atp/types/tests.echo/enqueue/", {"inputs": "{}"})
    instance = Instance.objects.get()
    assert instance.created_by == "user olga via page"
    assert instance.log.get().who == "user olga via page"


def test_a_name_that_is_no_line_of_text_is_logged_as_one(full, visitor, user, allow):
    allow(INSTANCE, OPERATE)
    user.username = f"{'o' * 140}\n\x1b{MARKUP}"[:150]
    user.save()
    failed = full[State.FAILED]
    assert visitor.post(f"/atp/instances/{failed.uuid}/redrive/").status_code == 302
    who = failed.log.get(kind=Event.REDRIVE).who
    assert who.isprintable()
    assert who.endswith(" via page")


def test_a_form_from_elsewhere_is_refused(full, client, allow, user):
    """G14: whoever is logged in here does not act because another site says so."""
    client.handler.enforce_csrf_checks = True
    allow(INSTANCE, OPERATE)
    client.force_login(user)
    answer = client.post(f"/atp/instances/{full[State.FAILED].uuid}/redrive/")
    assert answer.status_code == 403
    assert full[State.FAILED].state == State.FAILED


def test_a_part_that_refreshes_itself_asks_for_a_login_of_the_whole_page(full, client):
    answer = client.get("/atp/", headers={"HX-Request": "true"})
    assert answer.status_code == 401
    assert answer["HX-Refresh"] == "true"


def test_a_part_whose_instance_is_gone_has_the_page_say_so(full, operator):
    address = f"/atp/instances/{full[State.FINISHED].uuid}/"
    queue.delete(full[State.FINISHED])
    answer = operator.get(address, headers={"HX-Request": "true"})
    assert (answer.status_code, answer["HX-Refresh"]) == (404, "true")


@pytest.mark.parametrize("path", ["/atp/", "/atp/instances/"])
def test_names_of_daemons_take_the_permission_to_see_them(path, full, visitor, allow):
    """G14."""
    allow(INSTANCE)
    full.host.lose_lease()
    assert "host:1" not in visitor.get(path).content.decode()


def test_the_login_page_contains_its_policy(client, db):
    """Django's view sends none."""
    text = html.unescape(client.get("/login/").content.decode())
    head, _, rest = text.partition("Content-Security-Policy")
    assert "<script" not in head
    assert "default-src 'none'; script-src 'self'" in rest
    assert "frame-ancestors" not in rest
