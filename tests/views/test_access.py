"""The permissions that the pages and their buttons require (G14)."""

import html
import re
from urllib.parse import unquote

import pytest
from django.contrib.auth.models import Permission, User
from django.db import transaction

from atp import queue, urls
from atp.models import Instance
from atp.states import State

from .pages import ACTING, PAGES, VIEW_ALL, check_page


def test_the_list_of_pages_is_complete():
    named = list(dict.fromkeys(page.name for page in PAGES))
    assert named == [pattern.name for pattern in urls.urlpatterns]


@pytest.mark.slow
def test_every_page_requires_a_login(full, client):
    """After the login the user returns to the page of an attempted action (G14)."""
    for page in PAGES:
        address = page.address(full)
        before = full.world.snapshot()
        answer = getattr(client, page.method)(address)
        assert answer.status_code == 302, page.path
        back = re.sub(r"(hosts/|ticked/)?(redrive|quiet|resume)/(\?.*)?$", "", address)
        assert unquote(answer["Location"]).startswith(f"/login/?next={back}"), page.path
        assert full.world.snapshot() == before, page.path


@pytest.mark.slow
def test_each_page_requires_exactly_its_permissions(full, visitor, user, codes):
    for page in PAGES:
        address = page.address(full)
        before = full.world.snapshot()
        granted = {*VIEW_ALL, *ACTING} - {*page.needs}
        for lacking in page.needs:
            user.user_permissions.set(codes[name] for name in granted)
            answer = getattr(visitor, page.method)(address)
            assert answer.status_code == 403, page.path
            assert f"atp.{lacking}" in answer.content.decode(), page.path
            granted.add(lacking)
        assert full.world.snapshot() == before, page.path
        user.user_permissions.set(codes[name] for name in page.needs)
        with transaction.atomic():
            answer = getattr(visitor, page.method)(address)
            transaction.set_rollback(True)
        assert answer.status_code == page.shows, page.path


@pytest.mark.slow
def test_each_part_of_a_page_requires_its_permission(full, visitor, user, codes):
    """A user with all other permissions sees the page without the part, link or button (G14)."""
    finished, failed, waiting = (
        f"/atp/instances/{full[state].uuid}/"
        for state in (State.FINISHED, State.FAILED, State.ACCEPTED)
    )
    types, echo, schedule = "/atp/types/", "/atp/types/tests.echo/", "/atp/schedules/nightly/"
    daemon, group = f"/atp/daemons/{full.host.uuid}/", full.error()
    graph = f"/atp/graphs/{full.graph().uuid}/"
    merge = Instance.objects.get(node__name="merge")
    Instance.objects.filter(pk=full[State.FAILED].pk).update(error=group.pk)
    Instance.objects.filter(pk=full[State.ACCEPTED].pk).update(created_by="schedule nightly")
    parts = {
        "view_inputs": ((finished, "<h2>Inputs</h2>"), (schedule, "<h2>Inputs</h2>")),
        "view_response": ((finished, "<h2>Response</h2>"),),
        "view_step": ((finished, "<h2>Steps</h2>"),),
        "view_logrecord": ((finished, "<h2>Log</h2>"), (schedule, "<h2>Log</h2>")),
        "view_type": (("/atp/", f'href="{types}"'), (schedule, f'href="{echo}"')),
        "view_daemon": (("/atp/", 'href="/atp/daemons/"'),),
        "view_instance": tuple(
            (page, "/atp/instances/") for page in (schedule, graph, f"{graph}nodes/")
        ),
        "view_graph": ((f"/atp/instances/{merge.uuid}/", f'<a href="{graph}">mosaic</a>, node'),),
        "view_schedule": ((echo, schedule), (waiting, schedule)),
        "view_errorgroup": ((failed, f"/atp/failures/{group.digits}/"),),
        "operate": ((failed, "Redrive"), (waiting, "/change/"), (graph, 'class="actions"')),
        "enqueue": ((types, "Enqueue"), (failed, "Enqueue again")),
        "control": (
            (daemon, f"{daemon}quiet/"),
            ("/atp/", "/gate/"),
            (f"{types}tests.add/", "/gate/"),
            (schedule, 'id="resume"'),
        ),
        "delete_instance": ((failed, 'id="delete"'),),
    }
    every = {*VIEW_ALL, *ACTING}
    for permission, shown in parts.items():
        for granted in (every - {permission}, every):
            user.user_permissions.set(codes[name] for name in granted)
            for address, part in shown:
                answer = visitor.get(address)
                assert answer.status_code == 200, address
                is_shown = part in answer.content.decode()
                assert is_shown == (permission in granted), (permission, address, part)


def test_the_enqueue_form_and_the_instance_page_hide_forbidden_inputs_and_errors(
    full, visitor, allow
):
    """The form to enqueue again shows inputs, and the error of an Instance is in its log (G14)."""
    allow("view_instance", "view_type", "enqueue")
    failed = full[State.FAILED].uuid
    like = visitor.get(f"/atp/types/tests.echo/enqueue/?like={failed}")
    check_page(like, lacks=["said"], status=403)
    check_page(visitor.get(f"/atp/instances/{failed}/"), lacks=["ValueError"])
    allow("view_logrecord")
    check_page(visitor.get(f"/atp/instances/{failed}/"), "ValueError")


def test_a_form_without_a_csrf_token_is_rejected(full, operator):
    """Otherwise another site could act with the login of the user (G14)."""
    operator.handler.enforce_csrf_checks = True
    answer = operator.post(f"/atp/instances/{full[State.FAILED].uuid}/redrive/")
    assert answer.status_code == 403
    assert full[State.FAILED].state == State.FAILED


def test_a_failed_refresh_reloads_the_whole_page(full, client):
    """The whole page then shows the login form, or says that the Instance was deleted."""
    address, part = f"/atp/instances/{full[State.FINISHED].uuid}/", {"HX-Request": "true"}
    queue.delete(full[State.FINISHED])
    for status in (401, 404):
        answer = client.get(address, headers=part)
        assert (answer.status_code, answer["HX-Refresh"]) == (status, "true")
        client.force_login(User.objects.create_superuser(f"root {status}"))


@pytest.mark.slow
def test_daemons_and_their_work_are_hidden_without_permission(full, visitor, allow):
    """A user without the permission sees "a daemon" instead of its name (G14)."""
    allow("view_daemon")
    running = full[State.RUNNING].uuid
    for address in ("/atp/daemons/", f"/atp/daemons/{full.host.uuid}/"):
        check_page(visitor.get(address), lacks=[str(running)])
    visitor.force_login(other := User.objects.create_user("eve"))
    other.user_permissions.set(Permission.objects.filter(codename="view_instance"))
    check_page(visitor.get(f"/atp/instances/{running}/"), "a daemon", lacks=["host:1"])
    full.host.lose_lease()
    for path in ("/atp/", "/atp/instances/"):
        check_page(visitor.get(path), lacks=["host:1"])


def test_the_login_page_contains_a_content_security_policy(client, db):
    """Django's login view sends no such header, so the page has a meta element."""
    text = html.unescape(client.get("/login/").content.decode())
    head, _, rest = text.partition("Content-Security-Policy")
    assert "<script" not in head
    assert "default-src 'none'; script-src 'self'" in rest
    assert "frame-ancestors" not in rest
