"""Tests of ATP's pages in the Django admin (docs/admin.md)."""

from dataclasses import replace

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.urls import reverse

from atp import models, queue
from atp.admin.base import BoundedPaginator
from atp.models import Daemon, Edge, Graph, Inputs, Instance, LogRecord, Node, Schedule, Task, Type
from atp.operations.table import INSTANCE, OPERATIONS
from atp.states import Event, Reason, State

from .populated import ESCAPE, MARKUP, SCHEDULE, populate

MODELS = (
    *(Type, Instance, Inputs, models.Response, LogRecord, Task, Daemon, models.Gate, models.Limit),
    *(models.SpareLease, Schedule, models.Slot, Graph, Node, Edge, models.Failing),
    models.ErrorGroup,
)
ESCAPED = "&lt;script&gt;"
LEFT = "Skipped, because their state does not allow this: 1"


@pytest.fixture
def full(world):
    full = populate(world)
    queue.hold("tests.add", reason=MARKUP)
    queue.limit("tests.echo", max_running=300)
    # On PostgreSQL a daemon that joins has one already.
    models.SpareLease.objects.get_or_create(
        daemon=full.host.row, defaults={"until": world.store.now()}
    )
    return full


@pytest.fixture
def whole(full):
    """Add a graph and an error group to the populated queue."""
    full.error()
    failed = Node.objects.get(graph=full.graph(), name="part-1")
    models.Failing.objects.get_or_create(node=failed)
    return full


def user(*permissions):
    made = User.objects.create_user("operator", password="secret", is_staff=True)
    for codename in permissions:
        made.user_permissions.add(
            Permission.objects.get(content_type__app_label="atp", codename=codename)
        )
    return made


def address(model, page, *args):
    return reverse(f"admin:atp_{model._meta.model_name}_{page}", args=args)


def act(client, action, *rows, model=Instance, **data):
    selected = [row.pk for row in rows]
    return client.post(
        address(model, "changelist"), {"action": action, "_selected_action": selected, **data}
    )


def told(response):
    return [str(message) for message in get_messages(response.wsgi_request)]


@pytest.mark.slow
def test_pages_of_the_admin_take_few_queries_and_escape_stored_text(
    whole, admin_client, django_assert_max_num_queries
):
    """G14: no admin page of any model shows stored text unescaped."""
    for number in range(10):
        whole.failed(identifier=f"more-{number}")
    seen = 0
    for model in MODELS:
        with django_assert_max_num_queries(9) as found:
            pages = [admin_client.get(address(model, "changelist"))]
        counted = f'SELECT COUNT(*) AS "__count" FROM "{model._meta.db_table}"'
        assert not [query for query in found.captured_queries if query["sql"].endswith(counted)]
        assert model.objects.exists()
        for row in model.objects.order_by("-pk")[:10]:
            with django_assert_max_num_queries(15):
                pages.append(admin_client.get(address(model, "change", row.pk)))
        for page in pages:
            assert page.status_code == 200, model
            content = page.content.decode()
            assert 'name="_save"' not in content, model
            assert MARKUP not in content, model
            assert "<script>alert" not in content, model
            seen += ESCAPED in content
    assert seen > 10


@pytest.mark.slow
def test_admin_pages_link_to_related_rows(full, admin_client):
    """The page of an Instance also shows its response, its inputs and its log."""

    def shown(url):
        return admin_client.get(url).content.decode()

    def page(row):
        return address(type(row), "change", row.pk)

    ended, running, daemon = full[State.FINISHED], full[State.RUNNING], full.host.row
    schedule, graph = queue.get_schedule(SCHEDULE), full.graph()
    merge, task = Node.objects.get(graph=graph, name="merge"), running.task
    for row, *parts in (
        (ended, "application/json, ", "&quot;number&quot;: 7", "finish → FINISHED"),
        (graph, "2 FINISHED, 1 FAILED, 1 RUNNING, 2 ACCEPTED"),
        *(
            (row, f'href="{page(linked)}"')
            for row, linked in ((ended, ended.type), (running, task))
        ),
        *((row, f'href="{page(linked)}"') for row, linked in ((task, daemon), (daemon, running))),
    ):
        assert [part for part in parts if part not in shown(page(row))] == []
    for row, model, query, count in (
        (ended, LogRecord, f"instance__id__exact={ended.pk}", ended.log.count()),
        (daemon, LogRecord, "subject__exact=daemon%3Ahost%3A1", 1),
        (running.type, Instance, "type=tests.echo", 11),
        (schedule, models.Slot, f"schedule__id__exact={schedule.pk}", 4),
        (schedule, LogRecord, f"subject__exact=schedule%3A{SCHEDULE}", 2),
        (graph, Node, f"graph__id__exact={graph.pk}", 6),
        (merge, Edge, f"downstream__exact={merge.pk}", 3),
        (merge, Edge, f"upstream__exact={merge.pk}", 1),
    ):
        url = f"{address(model, 'changelist')}?{query}"
        assert f'href="{url}"' in shown(page(row)), url
        assert admin_client.get(url).context["cl"].result_count == count, url


def test_admin_never_renders_a_response_as_html(full, admin_client):
    """G14: HTML is escaped even if the content type is ``text/html``.

    A binary or large response is shown only as a size. A pickle is not loaded.
    """
    for content_type, data, present, absent in (
        ("text/html", f"<b>bold</b>{MARKUP}{ESCAPE}".encode(), "&lt;b&gt;bold&lt;/b&gt;", "<b>b"),
        ("image/svg+xml", b"<svg onload=", "image/svg+xml, 12 bytes", "onload"),
        ("text/plain", b"x" * 50_000, "text/plain, 50000 bytes", "x" * 5000),
    ):
        row = full.finished(content_type=content_type, data=data, size=len(data))
        page = admin_client.get(address(models.Response, "change", row.pk)).content.decode()
        assert present in page
        assert absent not in page
    Inputs.objects.filter(pk=full[State.ACCEPTED].pk).update(format="pickle", data="evil")
    page = admin_client.get(address(Instance, "change", full[State.ACCEPTED].pk))
    assert "a signed pickle, not opened here" in page.content.decode()


def found(client, model, **query):
    response = client.get(address(model, "changelist"), query)
    assert response.status_code == 200
    return {row.pk for row in response.context["cl"].result_list}


@pytest.mark.slow
def test_each_admin_filter_selects_the_matching_rows(full, admin_client, rf, settings):
    """A filter with an unknown value is ignored."""
    assert found(admin_client, Instance, state="RUNNING") == {full[State.RUNNING].pk}
    assert found(admin_client, Instance, reason="ERROR") == {full[State.FAILED].pk}
    assert found(admin_client, Instance, type="tests.add") == {full[State.ACCEPTED].pk}
    assert found(admin_client, Task, claimed="no") == {full[State.ACCEPTED].pk}
    assert len(found(admin_client, LogRecord, kind="fail")) == 1
    assert len(found(admin_client, LogRecord, from_level="40")) == 1
    for query in ({"state": "x"}, {"type": "x\x00"}, {"reason": "'"}):
        assert len(found(admin_client, Instance, **query)) == 6
    # The paginator does not count a long history.
    paginator = BoundedPaginator(Instance.objects.order_by("-pk"), 2)
    assert (paginator.count, len(paginator.page(3))) == (6, 2)
    # The rows are read from the queue's database.
    settings.ATP = {**settings.ATP, "DATABASE": "elsewhere"}
    for model in MODELS:
        assert admin.site.get_model_admin(model).get_queryset(rf.get("/")).db == "elsewhere", model


@pytest.mark.slow
def test_admin_search_finds_rows_by_uuid_and_identifier(full, admin_client):
    for model in (Instance, Inputs, Task, LogRecord):
        instance = full[State.FAILED] if model is not Task else full[State.RUNNING]
        of = {"instance": instance} if model is LogRecord else {"pk": instance.pk}
        expected = set(model.objects.filter(**of).values_list("pk", flat=True))
        uuid = str(instance.uuid)
        for term in (uuid, uuid.upper(), uuid.replace("-", "")):
            assert found(admin_client, model, q=term) == expected, model
        if instance.identifier:
            assert found(admin_client, model, q=MARKUP[:8]) == expected, model
        assert found(admin_client, model, q="ffffffffffff") == set()


@pytest.mark.slow
def test_admin_shows_nothing_without_permission_and_allows_no_edits(whole, client):
    """G14: not even a superuser can edit rows, because a state is never assigned directly."""
    urls = []
    for model in MODELS:
        row = model.objects.first()
        urls += [address(model, "changelist"), address(model, "change", row.pk)]
    for url in urls:
        assert client.get(url).status_code == 302, url  # to the login
    client.force_login(user())
    for url in urls:
        assert client.get(url).status_code == 403, url
    before, data = whole.world.snapshot(), {"state": "FINISHED", "identifier": "x", "post": "yes"}
    client.force_login(User.objects.create_superuser("root", password="secret"))
    for model in MODELS:
        row = model.objects.first()
        for page in ("add", "delete", "change"):
            url = address(model, page, *([row.pk] if page != "add" else []))
            assert page == "change" or client.get(url).status_code == 403, url
            assert client.post(url, data).status_code == 403, url
    assert whole.world.snapshot() == before


@pytest.mark.slow
def test_admin_operations_are_logged_with_the_user(full, client):
    """G6: each transition is logged with its actor. Rows whose state forbids it are skipped."""
    client.force_login(user("view_instance", "operate"))
    more = [full.failed() for _ in range(3)]
    response = act(client, "redrive", full[State.FAILED], full[State.RUNNING])
    assert told(response) == [LEFT, "Redrive (1): It is back in the queue."]
    assert full[State.FAILED].state == State.ACCEPTED
    record = full[State.FAILED].log.last()
    assert (record.event, record.who) == (Event.REDRIVE, "user operator via admin")
    response = act(
        client, "cancel", full[State.ACCEPTED], full[State.RUNNING], full[State.FINISHED]
    )
    ended = "Cancel (2): It is cancelled. If a daemon holds it, that daemon ends it."
    assert told(response)[-2:] == [LEFT, ended]
    assert full[State.ACCEPTED].reason == Reason.CANCELLED
    assert full[State.RUNNING].log.last().who == "user operator via admin"
    # The action covers all rows that the filter selects, not only those on the page.
    client.post(
        address(Instance, "changelist") + "?state=FAILED",
        {"action": "redrive", "_selected_action": [more[0].pk], "select_across": "1"},
    )
    assert {queue.get(each.uuid).state for each in more} == {State.ACCEPTED}


def test_admin_delete_asks_for_confirmation_and_is_logged(full, client):
    """G12: an operator's delete is logged, and live Instances are kept."""
    client.force_login(user("view_instance", "delete_instance"))
    chosen = [full[State.FAILED], full[State.FINISHED], full[State.RUNNING]]
    page = act(client, "delete_selected", *chosen)
    assert page.status_code == 200
    content = page.content.decode()
    assert str(chosen[0].uuid) in content
    assert str(chosen[2].uuid) not in content
    assert Instance.objects.count() == 6
    response = act(client, "delete_selected", *chosen, post="yes")
    assert "Instances removed: 2" in told(response)
    assert set(Instance.objects.filter(pk__in=[i.pk for i in chosen])) == {chosen[2]}
    record = LogRecord.objects.about("type:tests.echo").last()
    assert record.who == "user operator via admin"
    assert str(chosen[0].uuid) in record.message


def test_admin_action_reports_rows_that_it_skips_or_that_somebody_else_changed_first(
    full, admin_client, monkeypatch
):
    before = full.world.snapshot()
    monkeypatch.setattr("atp.admin.base.MOST", 1)
    for action in ("redrive", "delete_selected"):
        assert told(act(admin_client, action, full[State.RUNNING], post="yes"))[-1] == LEFT
        response = act(admin_client, action, full[State.FAILED], full[State.FINISHED], post="yes")
        assert "at most 1 rows" in told(response)[-1]
    assert full.world.snapshot() == before
    # Somebody else redrives the Instances first.
    delete, redrive = queue.delete, OPERATIONS[INSTANCE]["redrive"]

    def beaten(verb):
        def call(*instances, by):
            queue.redrive(*instances, by="somebody quicker")
            return verb(*instances, by=by)

        return call

    monkeypatch.setattr(queue, "delete", beaten(delete))
    monkeypatch.setitem(
        OPERATIONS[INSTANCE], "redrive", replace(redrive, call=beaten(redrive.call))
    )
    rows = {"redrive": full[State.FAILED], "delete_selected": full.failed()}
    for number, (action, row) in enumerate(rows.items(), 1):
        response = act(admin_client, action, row, post="yes")
        assert sum("it is ACCEPTED" in each for each in told(response)) == number
        assert queue.get(row.uuid).log.last().who == "somebody quicker"


@pytest.mark.slow
def test_admin_shows_inputs_and_daemons_only_with_their_own_permissions(full, client):
    """G14: inputs (also of schedules) need ``view_inputs``, and daemons need ``view_daemon``."""
    one, task = full[State.FINISHED], Task.objects.filter(daemon__isnull=False).first()
    Instance.objects.filter(pk=one.pk).update(own={"carried": {"tenant": "secret-tenant"}})
    schedule = queue.get_schedule(SCHEDULE)
    parts = (
        (address(Instance, "change", one.pk), "secret-tenant"),
        (address(Schedule, "change", schedule.pk), "&quot;first&quot;"),
        (address(Task, "changelist"), "host:1"),
        (address(Task, "change", task.pk), "host:1"),
    )
    operator = user("view_instance", "view_schedule", "view_task", "view_errorgroup")
    client.force_login(operator)
    page = client.get(address(Instance, "change", one.pk)).content.decode()
    assert "tests.echo" in page
    for absent in ("&quot;number&quot;", "application/json", "finish → FINISHED", "text/html"):
        assert absent not in page
    for page, part in parts:
        assert part not in client.get(page).content.decode(), page
    # A filter could reveal a hidden value one character at a time.
    for model, given in (
        (Schedule, {"data__contains": "first"}),
        (Instance, {"own__carried__tenant__startswith": "a"}),
        (models.ErrorGroup, {"title__startswith": "ValueError: t"}),
        (Task, {"instance__inputs__data__contains": "first"}),
    ):
        assert client.get(address(model, "changelist"), given).status_code == 400, model
    for permission in ("view_inputs", "view_daemon"):
        operator.user_permissions.add(Permission.objects.get(codename=permission))
    for page, part in parts:
        assert part in client.get(page).content.decode(), page
