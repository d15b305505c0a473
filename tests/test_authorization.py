"""Tests of ``ATP["AUTHORIZE"]``, the rule that limits permissions to Types and lanes (G14)."""

from functools import partial

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.test import override_settings
from django.urls import reverse

from atp import Graph, queue
from atp.models import Graph as Row
from atp.models import Instance, LogRecord, Task
from atp.states import State
from atp.web.permissions import EVERYTHING, Grant

from . import rules
from .api.client import Api, problem
from .api.test_routes import CLOSED, OPERATIONS, address, body_of
from .app.tasks import add, echo
from .helpers import shell
from .populated import populate
from .views.pages import PAGES

# Where the API answers with an empty list if nothing may be seen: the operations without a row.
LISTS = {
    name: "results"
    for name in {*CLOSED} - {"list_daemons"}
    if name.startswith("list_") and "{" not in OPERATIONS[name][0]
} | {"get_problems": "problems"}


@pytest.fixture
def full(world, media):
    return populate(world)


@pytest.fixture
def rule(settings, monkeypatch):
    """Return a function that sets the rule, for example ``rule("tests.echo", operate=[])``.

    Until the function is called, the rule restricts nothing.
    """
    monkeypatch.setattr(rules, "HOLDS", {})

    def of(*places, **of_permissions):
        rules.HOLDS["others"] = places
        for name, found in of_permissions.items():
            rules.HOLDS[f"atp.{name}"] = found

    with override_settings(ATP={**settings.ATP, "AUTHORIZE": "tests.rules.may"}):
        yield of


@pytest.fixture
def root(db):
    return User.objects.create_superuser("root", password="secret")


@pytest.fixture
def api(root):
    return Api(root)


@pytest.fixture
def page(root, client):
    client.force_login(root)
    return client


@pytest.fixture
def lanes(world):
    """Enqueue one Instance in each of two lanes, and one of another Type."""
    return {
        "a": echo.using(collection="a", identifier="of-a").enqueue(said="of a"),
        "b": echo.using(collection="b", identifier="of-b").enqueue(said="of b"),
        "add": add.enqueue(1, 2),
    }


# With a rule that allows nothing, each user interface must refuse everything.


@pytest.mark.slow
def test_api_refuses_every_operation_that_the_rule_forbids(full, api, rule):
    calls = {name: (*address(name, full), body_of(name)) for name in CLOSED}
    before, wrong = full.world.snapshot(), {}
    rule()
    for name, (method, path, body) in calls.items():
        answer = api.call(method, path, body)
        if name in LISTS:
            is_closed = answer.status_code == 200 and answer.json()[LISTS[name]] == []
        else:
            is_closed = answer.status_code in (403, 404)
        if not is_closed:
            wrong[name] = answer.status_code, answer.body
    assert wrong == {}
    assert full.world.snapshot() == before


@pytest.mark.slow
def test_pages_refuse_everything_that_the_rule_forbids(full, page, rule):
    paths = [(case, case.address(full)) for case in PAGES]
    uuids = [str(uuid) for uuid in Instance.objects.values_list("uuid", flat=True)]
    before, wrong = full.world.snapshot(), []
    rule()
    for case, path in paths:
        # What is ticked is refused one by one: nothing changes, as the snapshot shows.
        data = {"ticked": uuids} if case.name == "ticked" else {}
        for answer in (getattr(page, case.method)(path, data), page.post(path, data)):
            if answer.status_code == 200:
                shown = b"".join(answer).decode()
                is_closed = case.name in ("overview", "export") or case.name.endswith("s")
                is_closed &= not any(text in shown for text in (*uuids, "tests."))
            else:
                is_closed = answer.status_code in (403, 404, 405) or bool(data)
            if not is_closed:
                wrong.append((path, answer.status_code))
    assert wrong == []
    assert full.world.snapshot() == before


@pytest.mark.slow
def test_admin_shows_no_rows_that_the_rule_forbids(full, page, rule):
    full.graph()
    own = [model for model in admin.site._registry if model._meta.app_label == "atp"]
    found = {model: model.objects.first() for model in own}
    rule()
    for model, row in found.items():
        name = f"admin:atp_{model._meta.model_name}"
        shown = page.get(reverse(f"{name}_changelist"))
        assert shown.context["cl"].result_count == 0, model
        if row is not None:
            # Django leads to the index if there is no such row.
            assert page.get(reverse(f"{name}_change", args=[row.pk])).status_code == 302, model


# Lanes and Types


def seen_by(api):
    return {each["uuid"] for each in api.get("instances").json()["results"]}


def test_lists_contain_only_the_lanes_that_the_rule_allows(lanes, api, page, rule):
    for places, names in (
        (["tests.e*", ("tests.a*", "")], {"a", "b", "add"}),
        ([("tests.*", "b")], {"b"}),
        ([("tests.echo", "")], set()),
        (["TESTS.ECHO"], set()),
    ):
        rule(*places)
        assert seen_by(api) == {str(lanes[name].uuid) for name in names}, places
    rule(("tests.echo", "a"))
    assert seen_by(api) == {str(lanes["a"].uuid)}
    assert [each["collection"] for each in api.get("tasks").json()["results"]] == ["a"]
    shown = page.get("/atp/instances/").content.decode()
    assert [str(each.uuid) in shown for each in lanes.values()] == [True, False, False]
    assert "tests.add" not in shown  # nor among the Types to choose from
    for model, number in ((Instance, 1), (Task, 1), (LogRecord, 1)):
        url = reverse(f"admin:atp_{model._meta.model_name}_changelist")
        assert page.get(url).context["cl"].result_count == number


def test_hidden_instance_is_reported_as_not_found(lanes, api, page, rule):
    other, unknown = str(lanes["b"].uuid), "00000000-0000-7000-8000-000000000000"
    rule(("tests.echo", "a"))
    for part in ("", "/inputs", "/log", "/explanation", "/response"):
        answers = [api.get(f"instances/{uuid}{part}").json() for uuid in (other, unknown)]
        texts = [str(answer).replace(other, unknown) for answer in answers]
        assert answers[0]["status"] == 404
        assert texts[0] == texts[1]
    for way in ("", "cancel/", "change/", "log/"):
        assert page.get(f"/atp/instances/{other}/{way}").status_code in (404, 405)
        assert page.post(f"/atp/instances/{other}/{way}").status_code in (404, 405)
    assert queue.get(lanes["b"].uuid).state == State.ACCEPTED


def test_rule_narrows_each_permission_separately_and_grants_none(lanes, api, page, rule):
    rule("tests.echo", operate=[("tests.echo", "a")], view_inputs=[])
    a, b = (f"instances/{lanes[name].uuid}" for name in "ab")
    assert api.get(f"{b}/inputs").status_code == 403
    assert "of b" not in page.get(f"/atp/{b}/").content.decode()
    answer = api.post(f"{b}/cancel")
    assert (answer.status_code, problem(answer)) == (403, "permission-denied")
    assert "atp.operate" in answer.json()["detail"]
    assert 'id="cancel"' not in page.get(f"/atp/{b}/").content.decode()
    assert 'id="cancel"' in page.get(f"/atp/{a}/").content.decode()
    # Nor can an Instance be moved into a forbidden lane.
    assert api.send("PATCH", a, {"collection": "b"}).status_code == 403
    assert page.post(f"/atp/{a}/change/", {"collection": "b"}).status_code == 403
    assert queue.get(lanes["a"].uuid).collection == "a"
    assert api.send("PATCH", a, {"priority": 3}).status_code == 200
    assert api.post(f"{a}/cancel").status_code == 200
    # A rule gives nobody a permission.
    assert Api(User.objects.create_user("olga")).get("instances").status_code == 403


# Enqueueing


def test_batch_enqueue_is_refused_if_the_rule_forbids_one_of_its_entries(world, api, page, rule):
    rule("tests.*", enqueue=[("tests.echo", "a")])
    allowed = {"type": "tests.echo", "collection": "a"}
    for refused in ({"type": "tests.echo"}, {**allowed, "collection": "b"}, {"type": "tests.add"}):
        assert api.post("instances", [allowed, refused]).status_code == 403
        assert api.post("instances", refused).status_code == 403
        form = {"inputs": "{}", "collection": refused.get("collection", "")}
        assert page.post(f"/atp/types/{refused['type']}/enqueue/", form).status_code == 403
    assert not Instance.objects.exists()
    assert api.post("instances", [allowed]).status_code == 201
    form = {"inputs": "{}", "collection": "a"}
    assert page.post("/atp/types/tests.echo/enqueue/", form).status_code == 302


def test_enqueue_cannot_find_or_change_an_instance_in_a_forbidden_lane(world, lanes, api, rule):
    echo.using(collection="b", unique="k").enqueue(said="b")
    rule(("tests.echo", "a"))
    before = world.snapshot()
    mine = {"type": "tests.echo", "collection": "a"}
    for existing, status in (("raise", 409), ("return", 403), ("redrive", 403)):
        answer = api.post("instances", [mine, {**mine, "identifier": "of-b", "existing": existing}])
        assert answer.status_code == status
        assert str(lanes["b"].uuid) not in str(answer.json())
        assert "ACCEPTED" not in str(answer.json())
    for existing in ("replace", "debounce"):
        keyed = {**mine, "unique": "k", "existing": existing, "run_after": 60}
        assert api.post("instances", keyed).status_code == 403
    assert world.snapshot() == before
    again = api.post("instances", {**mine, "identifier": "of-a", "existing": "return"})
    assert again.json()["uuid"] == str(lanes["a"].uuid)


# Bulk operations, error groups, graphs, schedules, gates


def test_bulk_operation_is_refused_if_its_filter_reaches_beyond_the_rule(full, api, rule):
    rule("tests.e*", "tests.add", operate=["tests.e*"])
    before = full.world.snapshot()
    for filter in ({"all": True}, {"type": "tests.add"}, {"type": "*"}, {"type": "tests.?cho"}):
        for name in ("redrive", "cancel"):
            answer = api.post(f"matching/{name}", filter | {"dry_run": True})
            assert answer.status_code == 403
            assert api.post(f"matching/{name}", filter).status_code == 403
    assert full.world.snapshot() == before
    for filter in ({"type": "tests.echo"}, {"type": "tests.e*"}, {"type": "tests.ec*"}):
        answer = api.post("matching/redrive", filter | {"dry_run": True})
        assert answer.status_code == 200
    rule("tests.e*", operate=[("tests.echo", "a")])
    assert api.post("matching/cancel", {"type": "tests.echo"}).status_code == 403
    lane = {"type": "tests.echo", "collection": "a", "dry_run": True}
    assert api.post("matching/cancel", lane).status_code == 200


def test_error_group_is_hidden_unless_the_rule_allows_its_whole_type(full, api, page, rule):
    group = full.error()
    rule("tests.add", ("tests.echo", ""))
    assert api.get("errors").json()["results"] == []
    assert api.get(f"errors/{group.name}").status_code == 404
    assert api.post(f"errors/{group.name}/redrive").status_code == 404
    assert page.get(f"/atp/failures/{group.name}/").status_code == 404
    assert api.post("matching/redrive", {"error": group.name}).status_code == 403
    rule("tests.echo")
    assert api.get(f"errors/{group.name}").status_code == 200


def test_graph_is_hidden_if_the_rule_forbids_the_type_of_one_node(world, api, page, rule):
    with Graph("mixed") as mixed:
        first = mixed.add(echo, said=1)
        mixed.add(add, 1, 2, after=first)
    with Graph("own") as own:
        own.add(echo, said=1)
    rule("tests.echo")
    uuids = {each.name: str(each.uuid) for each in Row.objects.all()}
    assert [each["name"] for each in api.get("graphs").json()["results"]] == ["own"]
    for way in ("", "/nodes", "/graph.mmd"):
        assert api.get(f"graphs/{uuids['mixed']}{way}").status_code == 404
    assert api.post(f"graphs/{uuids['mixed']}/cancel").status_code == 404
    assert page.get(f"/atp/graphs/{uuids['mixed']}/").status_code == 404
    assert api.post(f"graphs/{uuids['own']}/cancel").status_code == 200
    assert Instance.objects.filter(state=State.FAILED).count() == 1


def test_schedule_can_be_set_only_within_the_rule(world, api, page, rule):
    rule("tests.*", control=[("tests.echo", "a")])
    made = {"identifier": "nightly", "type": "tests.echo", "every": 60, "collection": "a"}
    assert api.post("schedules", made | {"collection": "b"}).status_code == 403
    assert "nightly" not in {row.identifier for row in queue.schedules()}
    assert api.post("schedules", made).status_code == 201
    assert api.send("PATCH", "schedules/nightly", {"collection": "b"}).status_code == 403
    rule(("tests.echo", "b"))
    assert api.get("schedules").json()["results"] == []
    hidden, unknown = (api.get(f"schedules/{name}").json() for name in ("nightly", "nightl"))
    assert hidden["detail"].replace("nightly", "nightl") == unknown["detail"]


def test_restricted_user_cannot_hold_the_whole_queue_or_another_type(world, api, rule):
    rule("tests.echo", control=["tests.echo"])
    assert api.post("gates", {"mode": "hold"}).status_code == 403
    assert api.post("gates", {"mode": "hold", "type": "tests.add"}).status_code == 403
    queue.hold(reason="all")
    queue.hold("tests.add")
    told = api.post("gates", {"mode": "hold", "type": "tests.echo"}).json()["results"]
    # The user can see each gate that holds his own work.
    assert {each["type"] for each in told} == {None, "tests.echo"}


@pytest.mark.slow
def test_rule_restricts_a_user_of_the_shell(lanes, root, rule):
    """Subcommands that show or select more than single Instances are refused."""
    a, b = (str(lanes[name].uuid) for name in "ab")
    rule(("tests.echo", "a"))
    as_root = partial(shell, "--user", "root")
    listed = as_root("list")
    assert a[:8] in listed
    assert "tests.add" not in listed
    assert a in as_root("show", a)
    hidden = (f"show {b}", f"cancel {b}", f"change {b} --priority 3")
    more = (f"change {a} --collection b", "cancel --type tests.echo --yes", "types", "status")
    for told, *refused in (
        ("There is no Instance", *hidden, "show --type tests.echo --identifier of-b"),
        (r"atp\.enqueue does not apply", "enqueue tests.add [1,2]", "enqueue tests.echo"),
        ("does not apply", *more, "gate"),
    ):
        for words in refused:
            with pytest.raises(CommandError, match=told):
                as_root(*words.split())
    as_root("cancel", a)
    assert [queue.get(uuid).state for uuid in (a, b)] == [State.FAILED, State.ACCEPTED]


# The rule itself


def test_grant_covers_a_pattern_only_if_every_matching_type_is_allowed():
    scope = Grant(["dem.*", "a.?", ("b", "x")])
    assert scope.covers("dem.*")
    assert scope.covers("dem.alps.*")
    assert scope.covers("a.?")
    assert scope.covers("b", "x")
    for place in (EVERYTHING, ("*", None), ("de*", None), ("a.[b]", None), ("b", None), ("b", "y")):
        assert not scope.covers(*place)


def test_invalid_rule_is_reported_and_denies_access(lanes, api, rule, settings):
    rule()
    for returned in ("tests.echo", [7], [("a", "b", "c")], [("a", None)]):
        rules.HOLDS["others"] = returned
        with pytest.raises(ImproperlyConfigured, match="AUTHORIZE"):
            api.get("instances")
    for path in ("nowhere.rule", "tests.rules.HOLDS"):
        with override_settings(ATP={**settings.ATP, "AUTHORIZE": path}):
            [found] = [each for each in run_checks() if each.id == "atp.E021"]
        assert path in found.msg
