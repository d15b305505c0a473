"""The admin (docs/admin.md)."""

from dataclasses import replace

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.urls import reverse

from atp import queue
from atp.admin.base import COUNTED, BoundedPaginator
from atp.models import (
    Daemon,
    Edge,
    ErrorGroup,
    Failing,
    Gate,
    Graph,
    Inputs,
    Instance,
    Limit,
    LogRecord,
    Node,
    Response,
    Schedule,
    Slot,
    SpareLease,
    Task,
    Type,
)
from atp.states import Event, Reason, State
from atp.verbs.table import INSTANCE, VERBS

from .populated import ESCAPE, MARKUP, SCHEDULE, populate, world_in

MODELS = (
    *(Type, Instance, Inputs, Response, LogRecord, Task, Daemon, Gate, Limit, SpareLease),
    *(Schedule, Slot, Graph, Node, Edge, Failing),
)
ESCAPED = "&lt;script&gt;"


@pytest.fixture
def world(db, tmp_path):
    with world_in(tmp_path) as world:
        yield world


@pytest.fixture
def full(world):
    full = populate(world)
    queue.hold("tests.add", reason=MARKUP)
    queue.limit("tests.echo", max_running=300)
    # On PostgreSQL a daemon that joins has one already.
    SpareLease.objects.get_or_create(daemon=full.host.row, defaults={"until": world.store.now()})
    return full


@pytest.fixture
def whole(full):
    """That, and a graph."""
    failed = Node.objects.get(graph=full.graph(), name="part-1")
    Failing.objects.get_or_create(node=failed)
    return full


def user(*permissions):
    made = User.objects.create_user("operator", password="secret", is_staff=True)
    for codename in permissions:
        made.user_permissions.add(
            Permission.objects.get(content_type__app_label="atp", codename=codename)
        )
    return made


def view_all():
    return [f"view_{model._meta.model_name}" for model in MODELS]


def address(model, page, *args):
    return reverse(f"admin:atp_{model._meta.model_name}_{page}", args=args)


def act(client, action, *rows, model=Instance, **data):
    selected = [row.pk for row in rows]
    return client.post(
        address(model, "changelist"), {"action": action, "_selected_action": selected, **data}
    )


def told(response):
    return [str(message) for message in get_messages(response.wsgi_request)]


# Pages


@pytest.mark.parametrize("model", MODELS)
def test_lists_take_few_queries(whole, admin_client, model, django_assert_max_num_queries):
    for number in range(10):
        whole.failed(identifier=f"more-{number}")
    assert model.objects.exists()
    with django_assert_max_num_queries(9) as found:
        page = admin_client.get(address(model, "changelist"))
    assert page.status_code == 200
    whole = f'SELECT COUNT(*) AS "__count" FROM "{model._meta.db_table}"'
    assert not [query for query in found.captured_queries if query["sql"].endswith(whole)]


@pytest.mark.parametrize("model", MODELS)
def test_every_row_has_a_page(whole, admin_client, model, django_assert_max_num_queries):
    for row in model.objects.all():
        with django_assert_max_num_queries(12):
            page = admin_client.get(address(model, "change", row.pk))
        assert page.status_code == 200
        assert 'name="_save"' not in page.content.decode()


def test_an_instance_is_shown_with_all_that_belongs_to_it(full, admin_client):
    instance = full[State.FINISHED]
    page = admin_client.get(address(Instance, "change", instance.pk)).content.decode()
    assert "application/json, " in page
    assert "&quot;number&quot;: 7" in page
    assert "finish → FINISHED" in page
    assert f'href="{address(Type, "change", instance.type_id)}"' in page
    listed = f"{address(LogRecord, 'changelist')}?instance__id__exact={instance.pk}"
    assert f'href="{listed}"' in page
    assert admin_client.get(listed).context["cl"].result_count == instance.log.count()


def test_pages_are_linked(full, admin_client):
    running = full[State.RUNNING]
    page = admin_client.get(address(Instance, "change", running.pk)).content.decode()
    task = address(Task, "change", running.pk)
    assert f'href="{task}"' in page
    page = admin_client.get(task).content.decode()
    daemon = address(Daemon, "change", full.host.row.pk)
    assert f'href="{daemon}"' in page
    page = admin_client.get(daemon).content.decode()
    assert f'href="{address(Instance, "change", running.pk)}"' in page
    assert "alive" in page
    log = f"{address(LogRecord, 'changelist')}?subject__exact=daemon%3Ahost%3A1"
    assert f'href="{log}"' in page
    assert admin_client.get(log).context["cl"].result_count == 1
    page = admin_client.get(address(Type, "change", running.type_id)).content.decode()
    instances = f"{address(Instance, 'changelist')}?type=tests.echo"
    assert f'href="{instances}"' in page
    assert admin_client.get(instances).context["cl"].result_count == 5


def test_markup_is_never_html(full, admin_client):
    """G14: whatever is stored, no page of any model shows it unescaped."""
    seen = 0
    for model in MODELS:
        urls = [address(model, "changelist")]
        urls += [address(model, "change", row.pk) for row in model.objects.all()]
        for url in urls:
            content = admin_client.get(url).content.decode()
            assert MARKUP not in content
            assert "<script>alert" not in content
            seen += ESCAPED in content
    assert seen > 10


def test_a_response_is_never_html(full, admin_client):
    """G14: not even one that says it is; and bytes and large ones are a size."""
    data = f"<b>bold</b>{MARKUP}{ESCAPE}".encode()
    html = full.finished(content_type="text/html", data=data, size=len(data))
    page = admin_client.get(address(Response, "change", html.pk)).content.decode()
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    picture = full.finished(content_type="image/svg+xml", data=b"<svg onload=", size=12)
    page = admin_client.get(address(Response, "change", picture.pk)).content.decode()
    assert "image/svg+xml, 12 bytes" in page
    assert "onload" not in page
    large = full.finished(content_type="text/plain", data=b"x" * 50_000, size=50_000)
    page = admin_client.get(address(Response, "change", large.pk)).content.decode()
    assert "text/plain, 50000 bytes" in page
    assert "x" * 5000 not in page


def test_a_pickle_is_not_opened(full, admin_client):
    """G14: no pickle unless asked for."""
    instance = full[State.ACCEPTED]
    Inputs.objects.filter(pk=instance.pk).update(format="pickle", data="evil")
    page = admin_client.get(address(Instance, "change", instance.pk))
    assert "a signed pickle, not opened here" in page.content.decode()


# Filters and search


def found(client, model, **query):
    response = client.get(address(model, "changelist"), query)
    assert response.status_code == 200
    return {row.pk for row in response.context["cl"].result_list}


def test_instances_are_filtered(full, admin_client):
    for state in State:
        assert found(admin_client, Instance, state=state) == {full[state].pk}
    assert found(admin_client, Instance, reason="ERROR") == {full[State.FAILED].pk}
    assert found(admin_client, Instance, type="tests.add") == {full[State.ACCEPTED].pk}
    assert found(admin_client, Instance, type="tests.add", state="FAILED") == set()
    assert found(admin_client, Task, claimed="no") == {full[State.ACCEPTED].pk}
    assert len(found(admin_client, Task, claimed="yes")) == 3
    assert len(found(admin_client, LogRecord, kind="fail")) == 1
    assert len(found(admin_client, LogRecord, from_level="40")) == 1


@pytest.mark.parametrize("query", [{"state": "x"}, {"type": "x\x00"}, {"reason": "'"}])
def test_a_filter_that_there_is_not_changes_nothing(full, admin_client, query):
    assert len(found(admin_client, Instance, **query)) == 6


@pytest.mark.parametrize("model", [Instance, Inputs, Task, LogRecord])
def test_rows_are_found_by_uuid_and_identifier(full, admin_client, model):
    instance = full[State.FAILED] if model is not Task else full[State.RUNNING]
    rows = model.objects.filter(
        **({"pk": instance.pk} if model is not LogRecord else {"instance": instance})
    )
    expected = set(rows.values_list("pk", flat=True))
    uuid = str(instance.uuid)
    for term in (uuid, uuid.upper(), uuid.replace("-", "")):
        assert found(admin_client, model, q=term) == expected
    if instance.identifier:
        assert found(admin_client, model, q=MARKUP[:8]) == expected
    assert found(admin_client, model, q="ffffffffffff") == set()


def test_a_long_history_is_not_counted(full):
    paginator = BoundedPaginator(Instance.objects.order_by("-pk"), 2)
    assert paginator.count == 6
    assert len(paginator.page(3)) == 2
    assert COUNTED >= 1000


# Permissions (G14)


@pytest.mark.parametrize("model", MODELS)
def test_nobody_sees_anything_without_the_permission(whole, client, model):
    row = model.objects.first()
    urls = [address(model, "changelist"), address(model, "change", row.pk)]
    for url in urls:
        assert client.get(url).status_code == 302  # to the login
    client.force_login(user())
    for url in urls:
        assert client.get(url).status_code == 403


@pytest.mark.parametrize("model", MODELS)
def test_not_even_a_superuser_edits(whole, admin_client, model):
    """The state is never assigned freely."""
    row = model.objects.first()
    before = whole.world.snapshot()
    assert admin_client.get(address(model, "add")).status_code == 403
    assert admin_client.get(address(model, "delete", row.pk)).status_code == 403
    for page in ("add", "delete", "change"):
        url = address(model, page, *([row.pk] if page != "add" else []))
        data = {"state": "FINISHED", "identifier": "x", "post": "yes"}
        assert admin_client.post(url, data).status_code == 403
    assert whole.world.snapshot() == before


def test_parts_of_a_page_need_their_own_permission(full, client):
    client.force_login(user("view_instance"))
    page = client.get(address(Instance, "change", full[State.FINISHED].pk)).content.decode()
    assert "tests.echo" in page
    for absent in ("&quot;number&quot;", "application/json", "finish → FINISHED", "text/html"):
        assert absent not in page


@pytest.mark.parametrize(
    ("action", "permission"),
    [("redrive", "operate"), ("cancel", "operate"), ("delete_selected", "delete_instance")],
)
def test_an_action_needs_its_permission(full, client, action, permission):
    operator = user(*view_all())
    client.force_login(operator)
    before = full.world.snapshot()
    page = client.get(address(Instance, "changelist"))
    assert f'value="{action}"' not in page.content.decode()
    of = State.RUNNING if action == "cancel" else State.FAILED
    act(client, action, full[of], post="yes")
    assert full.world.snapshot() == before
    operator.user_permissions.add(Permission.objects.get(codename=permission))
    page = client.get(address(Instance, "changelist"))
    assert f'value="{action}"' in page.content.decode()
    act(client, action, full[of], post="yes")
    assert full.world.snapshot() != before


# Actions


def test_redrive_is_logged_with_the_user(full, client):
    """G6: each move is logged with its actor."""
    client.force_login(user("view_instance", "operate"))
    response = act(client, "redrive", full[State.FAILED], full[State.RUNNING])
    assert told(response) == [
        "Left alone, as their state does not allow it: 1",
        "Redrive (1): It is back in the queue.",
    ]
    assert full[State.FAILED].state == State.ACCEPTED
    record = full[State.FAILED].log.last()
    assert (record.event, record.who) == (Event.REDRIVE, "user operator via admin")
    assert full[State.RUNNING].state == State.RUNNING


def test_cancel_is_logged_with_the_user(full, client):
    client.force_login(user("view_instance", "operate"))
    response = act(
        client, "cancel", full[State.ACCEPTED], full[State.RUNNING], full[State.FINISHED]
    )
    assert told(response) == [
        "Left alone, as their state does not allow it: 1",
        "Cancel (2): It is cancelled. If a daemon holds it, that daemon ends it.",
    ]
    assert full[State.ACCEPTED].reason == Reason.CANCELLED
    assert full[State.RUNNING].log.last().who == "user operator via admin"
    again = act(client, "cancel", full[State.RUNNING])
    assert "has been asked to be cancelled already" in told(again)[-1]


def test_a_graph_leads_to_its_nodes_and_they_to_their_edges(whole, admin_client):
    graph = whole.graph()
    shown = admin_client.get(address(Graph, "change", graph.pk)).content.decode()
    nodes = f"{address(Node, 'changelist')}?graph__id__exact={graph.pk}"
    assert f'href="{nodes}"' in shown
    assert "2 FINISHED, 1 FAILED, 1 RUNNING, 2 ACCEPTED" in shown
    assert admin_client.get(nodes).context["cl"].result_count == 6
    merge = Node.objects.get(graph=graph, name="merge")
    shown = admin_client.get(address(Node, "change", merge.pk)).content.decode()
    for end, count in (("downstream", 3), ("upstream", 1)):
        edges = f"{address(Edge, 'changelist')}?{end}__exact={merge.pk}"
        assert f'href="{edges}"' in shown
        assert admin_client.get(edges).context["cl"].result_count == count


def test_a_graph_is_redriven_and_cancelled(full, client):
    """G6: by the verbs of the table, each node logged with the user."""
    client.force_login(user("view_graph", "operate"))
    row = full.graph()
    assert told(act(client, "redrive", row, model=Graph)) == [
        "Redrive (1): Nodes back in the queue: 1."
    ]
    again = act(client, "redrive", row, model=Graph)
    assert told(again)[-1] == "Left alone, as their state does not allow it: 1"
    assert "Nodes cancelled: 4." in told(act(client, "cancel", row, model=Graph))[-1]
    log = LogRecord.objects.filter(instance__node__graph=row, who="user operator via admin")
    assert log.filter(instance__node__name="part-1").count() == 2


def test_a_schedule_is_resumed_and_run(full, client):
    """G6: by the verbs of the table, logged with the user."""
    client.force_login(user("view_schedule", "operate", "control"))
    row = queue.get_schedule(SCHEDULE)
    told_of = told(act(client, "resume", row, model=Schedule))
    assert told_of[0].startswith("Resume (1): It goes on.")
    again = act(client, "resume", row, model=Schedule)
    assert "Left alone, as their state does not allow it: 1" in told(again)
    assert "is enqueued" in told(act(client, "run", row, model=Schedule))[-1]
    assert queue.get_schedule(SCHEDULE).who == "user operator via admin"
    assert Instance.objects.latest("pk").created_by == "user operator via admin"


def test_a_schedule_leads_to_its_slots_and_its_log(full, admin_client):
    row = queue.get_schedule(SCHEDULE)
    page = admin_client.get(address(Schedule, "change", row.pk)).content.decode()
    slots = f"{address(Slot, 'changelist')}?schedule__id__exact={row.pk}"
    log = f"{address(LogRecord, 'changelist')}?subject__exact=schedule%3A{SCHEDULE}"
    assert f'href="{slots}"' in page
    assert f'href="{log}"' in page
    assert admin_client.get(slots).context["cl"].result_count == 4
    assert admin_client.get(log).context["cl"].result_count == 2


def test_the_inputs_of_a_schedule_need_their_own_permission(full, client):
    """G14: they may hold what not everybody is to see."""
    operator = user("view_schedule")
    client.force_login(operator)
    page = address(Schedule, "change", queue.get_schedule(SCHEDULE).pk)
    assert "&quot;first&quot;" not in client.get(page).content.decode()
    operator.user_permissions.add(Permission.objects.get(codename="view_inputs"))
    assert "&quot;first&quot;" in client.get(page).content.decode()


def test_redrive_of_all_that_a_filter_selects(full, client):
    more = [full.failed() for _ in range(3)]
    client.force_login(user("view_instance", "operate"))
    client.post(
        address(Instance, "changelist") + "?state=FAILED",
        {"action": "redrive", "_selected_action": [more[0].pk], "select_across": "1"},
    )
    assert {queue.get(i.uuid).state for i in [*more, full[State.FAILED]]} == {State.ACCEPTED}


def test_delete_asks_first_and_is_logged(full, client):
    """G12: an operator's delete is logged, and what lives stays."""
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


@pytest.mark.parametrize("action", ["redrive", "delete_selected"])
def test_an_action_with_nothing_to_do_says_so(full, admin_client, action):
    before = full.world.snapshot()
    response = act(admin_client, action, full[State.RUNNING], post="yes")
    assert told(response) == ["Left alone, as their state does not allow it: 1"]
    assert full.world.snapshot() == before


@pytest.mark.parametrize("action", ["redrive", "delete_selected"])
def test_an_action_takes_so_many_at_most(full, admin_client, action, monkeypatch):
    monkeypatch.setattr("atp.admin.verbs.MOST", 1)
    before = full.world.snapshot()
    response = act(admin_client, action, full[State.FAILED], full[State.FINISHED], post="yes")
    assert "At most 1 at a time" in told(response)[0]
    assert full.world.snapshot() == before


@pytest.mark.parametrize("action", ["redrive", "delete_selected"])
def test_somebody_quicker_is_told_of(full, admin_client, action, monkeypatch):
    delete, redrive = queue.delete, VERBS[INSTANCE]["redrive"]

    def beaten(verb):
        def call(*instances, by):
            queue.redrive(*instances, by="somebody quicker")
            return verb(*instances, by=by)

        return call

    monkeypatch.setattr(queue, "delete", beaten(delete))
    monkeypatch.setitem(VERBS[INSTANCE], "redrive", replace(redrive, call=beaten(redrive.call)))
    response = act(admin_client, action, full[State.FAILED], post="yes")
    assert "it is ACCEPTED" in told(response)[0]
    assert full[State.FAILED].log.last().who == "somebody quicker"


# The queue's own database


@pytest.mark.parametrize("model", MODELS)
def test_rows_come_from_the_database_of_the_queue(rf, settings, model):
    settings.ATP = {**settings.ATP, "DATABASE": "elsewhere"}
    request = rf.get("/")
    assert admin.site.get_model_admin(model).get_queryset(request).db == "elsewhere"


def test_no_column_of_a_slot_repeats_another(full, admin_client):
    """Its name is its time and its outcome, and both have a column."""
    page = admin_client.get(address(Slot, "changelist")).content.decode()
    row = Slot.objects.order_by("-pk").first()
    assert '<th class="field-at">' in page  # the link to it
    assert str(row) not in page


@pytest.mark.parametrize("may_see", [False, True])
def test_what_is_carried_takes_the_permission_to_see_inputs(full, client, may_see):
    """G14: hooks have inputs too."""
    one = full[State.FINISHED]
    Instance.objects.filter(pk=one.pk).update(own={"carried": {"tenant": "secret-tenant"}})
    client.force_login(user("view_instance", *["view_inputs"] * may_see))
    page = client.get(address(Instance, "change", one.pk)).content.decode()
    assert ("secret-tenant" in page) is may_see


@pytest.mark.parametrize(
    ("model", "name", "given"),
    [
        (Schedule, "view_schedule", {"data__contains": "first"}),
        (Instance, "view_instance", {"own__carried__tenant__startswith": "a"}),
        (ErrorGroup, "view_errorgroup", {"title__startswith": "ValueError: t"}),
        (Task, "view_task", {"instance__inputs__data__contains": "first"}),
    ],
)
def test_no_filter_tells_what_the_pages_hide(full, client, model, name, given):
    """G14: otherwise a user reads it out a character at a time."""
    client.force_login(user(name))
    assert client.get(address(model, "changelist"), given).status_code == 400


@pytest.mark.parametrize("may_see", [False, True])
def test_the_daemon_of_a_task_takes_the_permission_to_see_daemons(full, client, may_see):
    task = Task.objects.filter(daemon__isnull=False).first()
    client.force_login(user("view_task", *["view_daemon"] * may_see))
    for page in (address(Task, "changelist"), address(Task, "change", task.pk)):
        assert ("host:1" in client.get(page).content.decode()) is may_see
