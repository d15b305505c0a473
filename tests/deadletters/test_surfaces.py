"""Dead letters on the pages, in the API, in the shell and in the admin."""

import json
import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError
from django.urls import reverse

from atp import queue
from atp.deadletters import operations
from atp.deadletters import pages as failures
from atp.deadletters.operations import load_groups
from atp.models import Daemon, ErrorGroup, Instance
from atp.operations import matching
from atp.reports import overview
from atp.states import Reason
from atp.store import get_store
from tests.app.tasks import echo
from tests.helpers import shell

from .causes import failed, moves

CAUSE = failed("tests.echo", ("a",), exception="builtins.ValueError", title="ValueError: tile 7")
COUNT = 5


@pytest.fixture
def group(world):
    """An error group with dead letters in two collections."""
    fail(world)
    return ErrorGroup.objects.get()


def fail(world, *, is_counted=True):
    """Let COUNT more Instances fail for one cause."""
    host = world.host("tests.echo")
    for number in range(COUNT):
        echo.using(collection=f"user:{number % 2}").enqueue(number=number)
    message = "Traceback (most recent call last):\nValueError: tile {}"
    assert host.record(*moves(host.claim(), CAUSE, message)) == []
    if is_counted:
        get_store().errors.count()


def add_group(last_seen):
    """Add a group without dead letters."""
    row = ErrorGroup.objects.get()
    row.pk, row.fingerprint, row.last_seen = 1, b"a", last_seen
    row.save(force_insert=True)


@pytest.fixture
def user(group):
    user = User.objects.create_user("ann")
    names = ("view_errorgroup", "view_instance", "view_logrecord", "operate")
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    return user


@pytest.fixture
def logged_in(client, user):
    client.force_login(user)
    return client


def started():
    return Instance.objects.filter(type__identifier__startswith="atp.")


def test_the_failure_count_of_a_group_includes_uncounted_dead_letters(group, world):
    """Failures of a muted group do not count as recent failures of the Type."""

    def lately():
        return sum(each.failed_lately for each in overview.overview(history=False).types)

    fail(world, is_counted=False)
    [found] = load_groups([group])
    assert (found.row.count, found.failures, found.left) == (COUNT, 2 * COUNT, 2 * COUNT)
    # What has no collection is of none.
    Instance.objects.filter(error=group.pk).update(collection="")
    [found] = load_groups([group])
    assert found.collections == 0
    assert lately() == 2 * COUNT
    muted = queue.mute(group, until=timedelta(hours=1), by="ann")
    assert muted.muted_until > get_store().now()
    assert lately() == 0
    # A group shows no message if its last Instance has since failed for another cause.
    get_store().errors.count()
    group.refresh_from_db()
    [last] = Instance.objects.filter(uuid=group.last_instance)
    queue.redrive(last)
    host = world.host("tests.echo")
    claimed = [each for each in host.claim() if each.instance == last.pk]
    other = failed("tests.echo", ("b",), exception="builtins.OSError", title="OSError: full")
    assert host.record(*moves(claimed, other, "OSError: full")) == []
    get_store().errors.count()
    found = {each.row.exception: each.line for each in load_groups(queue.error_groups())}
    assert found == {"builtins.OSError": "OSError: full", "builtins.ValueError": ""}


def test_error_groups_can_be_listed_and_filtered_on_the_pages(logged_in, group, monkeypatch):
    """A group stays on the page of all groups after its last dead letter was redriven."""
    address = reverse("atp:failures")

    def listed(query=""):
        return [each.row for each in logged_in.get(f"{address}{query}").context["groups"]]

    text = logged_in.get(address).content.decode()
    assert "ValueError: tile 7" in text
    text = logged_in.get(reverse("atp:failure", args=[group.name])).content.decode()
    assert all(str(each.uuid) in text for each in Instance.objects.all())
    assert logged_in.get(reverse("atp:failure", args=["0123"])).status_code == 404
    assert listed() == listed("?left=true") == [group]
    assert listed("?left=false") == []
    Instance.objects.filter(error=group.pk).update(error=None)
    assert listed() == []
    assert listed("?left=") == listed("?left=false") == [group]
    # A further page keeps what was chosen.
    monkeypatch.setattr(failures, "PAGE_SIZE", 1)
    add_group(last_seen=group.last_seen - timedelta(days=1))
    found = logged_in.get(f"{address}?left=").context
    assert [row.pk for row in listed(f"?{found['query']}page={found['page'].next}")] == [1]


def test_the_failures_page_counts_the_failed_instances_that_have_no_group(
    logged_in, user, group, monkeypatch
):
    """The numbers lead to the lists of these Instances."""
    address = reverse("atp:failures")
    assert "Without a group" not in logged_in.get(address).content.decode()
    cancelled = echo.enqueue_many([{}] * 4)
    queue.cancel(*cancelled)
    Instance.objects.filter(pk=cancelled[0].pk).update(reason=Reason.MISSED)
    Instance.objects.filter(pk=cancelled[1].pk).update(reason=Reason.DROPPED)
    text = logged_in.get(address).content.decode()
    for reason, count in (("MISSED", 1), ("DROPPED", 1), ("CANCELLED", 2)):
        assert f'?state=FAILED&amp;reason={reason}">{count} {reason}</a>' in text
    assert "reason=ERROR" not in text
    text = logged_in.get(f"{address}?type=*.echo").content.decode()
    assert '?state=FAILED&amp;reason=MISSED">1 MISSED</a>' in text
    text = logged_in.get(f"{address}?type=tests.echo").content.decode()
    assert '?state=FAILED&amp;reason=MISSED&amp;type=tests.echo">1 MISSED</a>' in text
    assert "Without a group" not in logged_in.get(f"{address}?type=tests.a*").content.decode()
    monkeypatch.setattr(operations, "MOST", 1)
    assert ">1+ CANCELLED</a>" in logged_in.get(address).content.decode()
    user.user_permissions.remove(Permission.objects.get(codename="view_instance"))
    assert "Without a group" not in logged_in.get(address).content.decode()


def test_a_count_of_collections_that_leaves_out_dead_letters_is_a_lower_bound(
    logged_in, group, monkeypatch
):
    address = reverse("atp:failure", args=[group.name])
    assert f"{COUNT}, of 2 collections<" in logged_in.get(address).content.decode()
    monkeypatch.setattr(operations, "NEWEST", 2)
    assert f"{COUNT}, of 2+ collections<" in logged_in.get(address).content.decode()
    assert re.search(rf" {COUNT} +2\+ ", shell("errors"))
    Instance.objects.filter(error=group.pk).update(collection="")
    assert f"<dd>{COUNT}</dd>" in logged_in.get(address).content.decode()


def test_the_shell_lists_groups_without_dead_letters_last(group):
    """They come last even if they have failed since."""
    add_group(last_seen=group.last_seen + timedelta(hours=1))
    listed = json.loads(shell("errors", "--json"))["errors"]
    assert [each["left"] for each in listed] == [COUNT, 0]
    [only] = json.loads(shell("errors", "--json", "--limit", "1"))["errors"]
    assert only["name"] == group.name


@pytest.mark.slow
def test_the_shell_can_list_mute_redrive_and_delete_dead_letters(group):
    """Deleting requires the option ``--yes``."""
    assert group.name in shell("errors")
    [found] = json.loads(shell("errors", "--json"))["errors"]
    assert (found["count"], found["left"], found["collections"]) == (COUNT, COUNT, 2)
    assert found["line"].startswith("ValueError: tile ")
    assert "ValueError: tile 7" in shell("error", "show", group.name[:4])
    for verb, more, is_muted in (("mute", ("--until", "2h"), True), ("unmute", (), False)):
        shell("error", verb, group.name, *more)
        group.refresh_from_db()
        assert group.is_muted == is_muted
    words = ("redrive", "--error", group.name, "--rate", "20/s", "--canary", "2")
    said = shell(*words, "--dry-run")
    assert said.startswith(f"{COUNT} FAILED would be tried again: tests.echo {COUNT}")
    assert f"{COUNT} FAILED" in shell("delete", "--reason", "error", "--dry-run")
    for deleting in (("delete", "--error", group.name), ("error", "delete", group.name)):
        assert "would be removed for good" in shell(*deleting, "--dry-run")
        with pytest.raises(CommandError, match="--yes"):
            shell(*deleting)
    assert not started().exists()
    document = json.loads(shell(*words, "--json"))
    assert str(started().get().uuid) == document["instance"]
    with pytest.raises(CommandError, match=document["instance"]):
        shell(*words)
    shell(*deleting, "--yes")
    echo.enqueue(number=1)
    assert "1 would be cancelled" in shell("cancel", "--type", "tests.echo", "--dry-run")
    assert {each.type.identifier for each in started()} == {"atp.redrive", "atp.delete"}


def test_dead_letters_that_arrive_after_the_page_was_loaded_are_not_deleted(client, world, group):
    client.force_login(User.objects.create_superuser("root"))
    address = reverse("atp:failure-verb", args=[group.name, "delete"])
    shown = client.get(address).context["hidden"]
    # A browser sends the empty fields, too, and what they were.
    names = ("collection", "ended_before")
    sent = dict(shown) | {f"{word}{name}": "" for name in names for word in ("", "initial-")}
    answer = client.post(address, sent | {"rate": "fast"})
    assert answer.status_code == 422
    assert f"{COUNT} FAILED would be removed" in answer.content.decode()
    answer = client.post(address, sent | {"ended_before": "2099-01-01T00:00"})
    assert answer.status_code == 400
    assert "is in the future" in answer.content.decode()
    fail(world)
    assert client.post(address, dict(shown)).status_code == 302
    assert queue.inputs(started().get()).value["count"] == COUNT


def test_the_plan_for_a_large_selection_judges_only_a_sample(group, monkeypatch):
    monkeypatch.setattr(matching, "PORTION", 1)
    monkeypatch.setattr(matching, "MOST_JUDGED", 2)
    found = queue.redrive_matching(error=group, dry_run=True)
    assert (found.count, found.judged) == (COUNT, 2)
    assert matching.describe_plan(found).startswith(f"up to {COUNT} FAILED")
    assert "all of the first 2 can" in matching.describe_plan(found)
    monkeypatch.setattr(matching.registry, "_types", {})
    Daemon.objects.update(types=[])
    found = queue.redrive_matching(error=group, dry_run=True)
    assert (found.count, found.cannot) == (COUNT - 2, {matching.NO_HANDLER: 2})
    assert f"2 of the first 2 cannot: 2 {matching.NO_HANDLER}" in matching.describe_plan(found)
    assert queue.delete_matching(error=group, dry_run=True).judged is None


def test_a_group_keeps_a_note_of_several_lines(logged_in, group):
    """Saving the form unchanged does not change the note."""
    address = reverse("atp:failure-verb", args=[group.name, "annotate"])

    def sent(note, initial):
        answer = logged_in.post(address, {"note": note, "initial-note": initial})
        assert answer.status_code == 302
        group.refresh_from_db()
        return group.note

    note = "it is the sensor\n" + 300 * "x"
    group = queue.annotate(group, note)
    assert "<textarea" in logged_in.get(address).content.decode()
    of_browser = note.replace("\n", "\r\n")
    assert sent(of_browser, note) == note
    logged_in.post(f"/atp/api/errors/{group.name}/annotate", {}, content_type="application/json")
    assert sent(f"{of_browser}\r\nz", of_browser) == f"{note}\nz"
    assert sent("", note) == ""


def test_the_redrive_page_shows_its_plan_and_starts_it(logged_in, group):
    """The plan follows the fields of the form."""
    address = reverse("atp:failure-verb", args=[group.name, "redrive"])
    assert f"{COUNT} FAILED would be tried again" in logged_in.get(address).content.decode()
    answer = logged_in.post(address, {"collection": "user:0", "canary": "100"})
    assert answer.status_code == 422
    assert "3 FAILED would be tried again" in answer.content.decode()
    assert logged_in.post(address, {"shown": "now"}).status_code == 422
    assert not started().exists()
    answer = logged_in.post(address, {"rate": "20/s", "canary": "2"})
    assert answer.status_code == 302
    assert queue.inputs(started().get()) is not None
    assert logged_in.post(address, {"rate": "20/s"}).status_code == 409
    assert started().count() == 1


def test_redriving_a_bulk_deletion_requires_the_permission_to_delete(logged_in, user, group):
    made = queue.delete_matching(error=group, by="root")
    queue.cancel(made)
    address = reverse("atp:instance-verb", args=[made.uuid, "redrive"])
    assert logged_in.post(address).status_code == 403
    User.objects.filter(pk=user.pk).update(is_staff=True)
    given = {"action": "redrive", "_selected_action": [made.pk]}
    logged_in.post(reverse("admin:atp_instance_changelist"), given)
    assert queue.get(made.uuid).state == "FAILED"
    plan = queue.redrive_matching(type="atp.delete", reason="CANCELLED", dry_run=True)
    assert (plan.count, sum(plan.cannot.values())) == (0, 1)
    user.user_permissions.add(Permission.objects.get(codename="delete_instance"))
    assert logged_in.post(address).status_code == 302
    assert queue.get(made.uuid).state == "ACCEPTED"


def test_the_api_plans_and_starts_bulk_operations(logged_in, group):
    base = "/atp/api/"
    [found] = logged_in.get(f"{base}errors?type=tests.*&left=true").json()["results"]
    assert (found["name"], found["left"]) == (group.name, COUNT)
    assert logged_in.get(f"{base}errors/{group.name}").json()["title"] == "ValueError: tile 7"

    def post(path, **body):
        return logged_in.post(f"{base}{path}", json.dumps(body), content_type="application/json")

    plan = post("matching/redrive", type="tests.*", dry_run=True).json()["plan"]
    assert plan["by_error"] == {group.name: COUNT}
    assert plan["by_collection"] == {"user:0": 3, "user:1": 2}
    assert not started().exists()
    answer = post(f"errors/{group.name}/redrive", canary=2)
    assert answer.status_code == 200
    assert answer.json()["instance"] == str(started().get().uuid)
    conflict = post(f"errors/{group.name}/redrive", canary=2)
    assert conflict.status_code == 409
    assert answer.json()["instance"] in conflict.json()["detail"]
    assert post("matching/redrive").status_code == 400
    assert post("errors/0123/mute").status_code == 404


def test_a_user_who_may_only_view_error_groups_sees_no_error_message(client, group):
    """An error message might quote inputs (G14)."""
    user = User.objects.create_user("eve", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_errorgroup"))
    client.force_login(user)
    addresses = [
        "/atp/api/errors",
        f"/atp/api/errors/{group.name}",
        reverse("atp:failures"),
        reverse("atp:failure", args=[group.name]),
        reverse("admin:atp_errorgroup_changelist"),
        reverse("admin:atp_errorgroup_change", args=[group.pk]),
    ]
    for address in addresses:
        text = client.get(address).content.decode()
        assert "ValueError" in text
        assert "tile" not in text
    user.user_permissions.add(Permission.objects.get(codename="operate"))
    for address in addresses:
        assert "ValueError: tile" in client.get(address).content.decode()
