"""Who may see what, and do what (G14)."""

import html
import re

from django.contrib.auth.models import Permission, User
from django.db import transaction

from atp import queue, urls
from atp.states import State

from .pages import ACTING, PAGES, VIEW_ALL


def test_the_list_of_pages_is_whole():
    named = list(dict.fromkeys(page.name for page in PAGES))
    assert named == [pattern.name for pattern in urls.urlpatterns]


def test_nothing_without_a_login(full, client):
    """G14: closed by default; whoever was in mid action is led back to the page."""
    for page in PAGES:
        address = page.address(full)
        before = full.world.snapshot()
        answer = getattr(client, page.method)(address)
        assert answer.status_code == 302, page.path
        back = re.sub(r"(redrive|quiet|resume)/$", "", address)
        assert answer["Location"].startswith(f"/login/?next={back}"), page.path
        assert full.world.snapshot() == before, page.path


def test_nothing_without_the_permission(full, visitor, user):
    """G14: each permission that a page takes is needed, named where it is lacking, and enough."""
    own = dict(
        Permission.objects.filter(content_type__app_label="atp").values_list("codename", "pk")
    )
    for page in PAGES:
        address = page.address(full)
        before = full.world.snapshot()
        granted = {*VIEW_ALL, *ACTING} - {*page.needs}
        for lacking in page.needs:
            user.user_permissions.set(own[name] for name in granted)
            answer = getattr(visitor, page.method)(address)
            assert answer.status_code == 403, page.path
            assert f"atp.{lacking}" in answer.content.decode(), page.path
            granted.add(lacking)
        assert full.world.snapshot() == before, page.path
        user.user_permissions.set(own[name] for name in page.needs)
        with transaction.atomic():
            answer = getattr(visitor, page.method)(address)
            transaction.set_rollback(True)
        assert answer.status_code == page.shows, page.path


def test_parts_of_an_instance_take_permissions_of_their_own(full, visitor, allow):
    """G14."""
    allow("view_instance")
    address = f"/atp/instances/{full[State.FINISHED].uuid}/"
    failed = f"/atp/instances/{full[State.FAILED].uuid}/"
    parts = {
        "view_inputs": "<h2>Inputs</h2>",
        "view_response": "<h2>Response</h2>",
        "view_step": "<h2>Steps</h2>",
    }
    allow("view_type", "enqueue")
    like = visitor.get(f"/atp/types/tests.echo/enqueue/?like={full[State.FAILED].uuid}")
    assert like.status_code == 403
    assert "said" not in like.content.decode()
    shown = visitor.get(address).content.decode()
    assert not any(heading in shown for heading in (*parts.values(), "<h2>Log</h2>"))
    for permission, heading in parts.items():
        allow(permission)
        assert heading in visitor.get(address).content.decode()
    # Why it failed is told by the log.
    assert "ValueError" not in visitor.get(failed).content.decode()
    allow("view_logrecord")
    assert "ValueError" in visitor.get(failed).content.decode()
    assert "<h2>Log</h2>" in visitor.get(address).content.decode()


def test_who_may_only_look_sees_no_buttons(full, visitor, allow):
    """G14: neither of Instances, Types, daemons nor graphs; and the menu has what one may see."""
    allow("view_instance")
    shown = visitor.get("/atp/").content.decode()
    assert "/atp/instances/" in shown
    assert 'href="/atp/types/"' not in shown
    assert "Daemons" not in shown
    allow(*VIEW_ALL)
    failed, waiting = (f"/atp/instances/{full[s].uuid}/" for s in (State.FAILED, State.ACCEPTED))
    types = "/atp/types/"
    daemon = f"/atp/daemons/{full.host.uuid}/"
    graph = f"/atp/graphs/{full.graph().uuid}/"
    offered = {
        "operate": ((failed, "Redrive"), (waiting, "/change/"), (graph, 'class="actions"')),
        "enqueue": ((types, "Enqueue"), (failed, "Enqueue again")),
        "control": (
            (daemon, f"{daemon}quiet/"),
            ("/atp/", "/gate/"),
            (f"{types}tests.add/", "/gate/"),
        ),
        "delete_instance": ((failed, 'id="delete"'),),
    }
    for permission, parts in offered.items():
        for address, part in parts:
            assert part not in visitor.get(address).content.decode(), part
        allow(permission)
        for address, part in parts:
            assert part in visitor.get(address).content.decode(), part


def test_a_form_from_elsewhere_is_refused(full, client, allow, user):
    """G14: whoever is logged in here does not act because another site says so."""
    client.handler.enforce_csrf_checks = True
    allow("view_instance", "operate")
    client.force_login(user)
    answer = client.post(f"/atp/instances/{full[State.FAILED].uuid}/redrive/")
    assert answer.status_code == 403
    assert full[State.FAILED].state == State.FAILED


def test_a_part_that_refreshes_itself_has_the_whole_page_say_what_is_wrong(full, client):
    """That a login is needed, or that the Instance is gone."""
    part = {"HX-Request": "true"}
    answer = client.get("/atp/", headers=part)
    assert (answer.status_code, answer["HX-Refresh"]) == (401, "true")
    client.force_login(User.objects.create_superuser("root", password="secret"))
    address = f"/atp/instances/{full[State.FINISHED].uuid}/"
    queue.delete(full[State.FINISHED])
    answer = client.get(address, headers=part)
    assert (answer.status_code, answer["HX-Refresh"]) == (404, "true")


def test_what_is_told_of_daemons_takes_the_permission_to_see_them(full, visitor, allow):
    """G14: and what their workers do that to see Instances."""
    allow("view_daemon")
    for address in ("/atp/daemons/", f"/atp/daemons/{full.host.uuid}/"):
        assert str(full[State.RUNNING].uuid) not in visitor.get(address).content.decode()
    visitor.force_login(other := User.objects.create_user("eve"))
    other.user_permissions.set(Permission.objects.filter(codename="view_instance"))
    shown = visitor.get(f"/atp/instances/{full[State.RUNNING].uuid}/").content.decode()
    assert "host:1" not in shown
    assert "a daemon" in shown
    full.host.lose_lease()
    for path in ("/atp/", "/atp/instances/"):
        assert "host:1" not in visitor.get(path).content.decode()


def test_the_login_page_contains_its_policy(client, db):
    """Django's view sends none."""
    text = html.unescape(client.get("/login/").content.decode())
    head, _, rest = text.partition("Content-Security-Policy")
    assert "<script" not in head
    assert "default-src 'none'; script-src 'self'" in rest
    assert "frame-ancestors" not in rest
