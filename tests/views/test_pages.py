"""The content of the pages."""

import re
import threading
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

import atp
from atp import queue
from atp.models import Instance, Slot, Type
from atp.pages import activity, base, instances, overview
from atp.pages.instances import LOG_PAGE_SIZE, LOG_SHOWN, PAGE_SIZE
from atp.reports.explaining.explain import explain
from atp.schedules.models import Outcome
from atp.states import Event, Reason, State
from atp.store.values import Message, Move, ProgressUpdate
from tests.app.tasks import add, echo, keyword

from ..helpers import DEADLINE, Thread
from ..populated import MARKUP
from ..store.broken import age, settle
from ..store.world import registration
from .pages import PAGES, check_page

# The most queries of a page, while the process keeps what all viewers of the page share.
MOST_QUERIES = 12
# Pages with shared values.
SHARED = ("overview", "type", "instances", "instance")
ATP = str(Path(atp.__file__).parent)
INLINE = r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)|javascript:"


@pytest.fixture
def viewer(user, allow):
    """A client that is logged in as a user who may see Instances, and nothing else."""
    allow("view_instance")
    client = Client()
    client.force_login(user)
    return client


def uuids(shown):
    """Return the uuids of the Instances that a list links to, in order."""
    shown = shown if isinstance(shown, str) else check_page(shown)
    return re.findall(r'href="/atp/instances/([0-9a-f-]{36})/"', shown)


@pytest.mark.slow
def test_no_page_contains_executable_content(
    full, operator, monkeypatch, django_assert_max_num_queries
):
    """Scripts and styles come from files only, whatever inputs and outputs contain (G14).

    The test also limits the number of queries of each page.
    """
    monkeypatch.setattr(base, "KEPT_FOR", DEADLINE)
    base.shared.clear()
    for page in PAGES:
        if page.method != "get":
            continue
        address = page.address(full)
        if page.name in SHARED:
            operator.get(address)
        with django_assert_max_num_queries(MOST_QUERIES, info=page.path):
            answer = operator.get(address)
        policy = answer["Content-Security-Policy"]
        assert "default-src 'none'" in policy, page.path
        assert "unsafe" not in policy, page.path
        assert answer["X-Content-Type-Options"] == "nosniff", page.path
        assert {"no-store", "private"} <= {*answer["Cache-Control"].split(", ")}, page.path
        if page.name in ("response", "export"):
            continue  # those that are meant as they are: see test_bodies and test_bulk
        shown = answer.content.decode()
        assert MARKUP not in shown, page.path
        if answer["Content-Type"].startswith("text/html"):
            assert not re.search(INLINE, shown), page.path


def test_the_overview_counts_tasks_by_state(full, operator):
    check_page(operator.get("/atp/"), lacks=["no daemon serves it"])
    keyword.enqueue(path="a")
    shown = check_page(
        operator.get("/atp/"),
        "1 ERROR",
        "<b>1</b> failed in the last hour<small>1 in all</small>",
        "host:1",
        f"/atp/instances/{full[State.RUNNING].uuid}/",
        "Work of Type &#x27;tests.keyword&#x27; is due",
    )
    tiles = {name: int(count) for count, name in re.findall(r"<b>(\d+)\+?</b> (\w+)", shown)}
    assert tiles == {"due": 1, "later": 1, "scheduled": 1, "running": 1, "paused": 1, "failed": 1}
    # The tiles due and later lead to different lists.
    later = str(full[State.ACCEPTED].uuid)
    assert uuids(operator.get("/atp/instances/?state=ACCEPTED&due=later")) == [later]
    [due] = uuids(operator.get("/atp/instances/?state=ACCEPTED&due=now"))
    assert due != later


@pytest.mark.slow
def test_instances_can_be_filtered_by_each_field(full, operator):
    uuid = str(full[State.FAILED].uuid)
    query = {"type": "tests.echo", "state": "FAILED", "collection": "books", "uuid": uuid[:13]}
    assert uuids(operator.get("/atp/instances/", query)) == [uuid]
    shown = operator.get("/atp/instances/", {**query, "collection": "films"})
    check_page(shown, "There are no such Instances")
    # As a uuid is shown.
    check_page(operator.get(f"/atp/instances/{uuid}/"), f"{uuid[:8]}…{uuid[-4:]}")
    for shown in (f"{uuid[:8]}…{uuid[-4:]}", f"{uuid[:8]}...{uuid[-4:]}"):
        assert uuids(operator.get("/atp/instances/", {"uuid": shown})) == [uuid]
    found = uuids(operator.get("/atp/instances/?no_collection=yes"))
    assert len(found) == len(full.by_state) - 1
    assert uuid not in found
    tabs = [f'<a href="?state={name}" aria-current="page">FAILED' for name in ("FAILED", "failed")]
    check_page(operator.get("/atp/instances/?state=failed"), tabs[0], lacks=tabs[1:])


@pytest.mark.slow
def test_paging_keeps_the_filter(operator, world):
    """Only the first page refreshes itself."""
    add.enqueue(1)
    mine = [str(i.uuid) for i in echo.enqueue_many({} for _ in range(2 * PAGE_SIZE + 3))][::-1]
    shown = check_page(operator.get("/atp/instances/?type=tests.echo"), "hx-trigger")
    seen = uuids(shown)
    while found := re.search(r'rel="next" href="(\?[^"]*)"', shown):
        link = unescape(found[1])
        shown = check_page(operator.get(f"/atp/instances/{link}"), lacks=["hx-trigger"])
        seen += uuids(shown)
    assert seen == mine
    back = unescape(re.search(r'rel="prev" href="(\?[^"]*)"', shown)[1])
    assert uuids(operator.get(f"/atp/instances/{back}")) == mine[PAGE_SIZE : 2 * PAGE_SIZE]


@pytest.mark.slow
def test_an_instance_page_refreshes_until_the_instance_has_ended(full, operator):
    for state in State:
        address = f"/atp/instances/{full[state].uuid}/"
        shown = check_page(operator.get(address), "<html")
        assert ("hx-trigger" in shown) is (state not in (State.FINISHED, State.FAILED)), state
        part = operator.get(address, headers={"HX-Request": "true"})
        check_page(part, '<div id="live"', lacks=["<html"])
    # Hostile text is there, as text.
    shown = check_page(operator.get(f"/atp/instances/{full[State.FINISHED].uuid}/"))
    assert shown.count("&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;") >= 3


def test_an_instance_page_shows_its_attempts(full, operator):
    failed = full[State.FAILED]
    queue.redrive(failed)
    parts = 'class="timeline"', "<dt>Claims</dt><dd>1</dd>", "redrive"
    check_page(operator.get(f"/atp/instances/{failed.uuid}/"), *parts)
    # The pause belongs to its attempt, which has not ended.
    shown = operator.get(f"/atp/instances/{full[State.PAUSED].uuid}/")
    check_page(shown, "not yet", Event.PAUSE)


def test_a_long_log_is_shown_in_parts(full, operator):
    instance, _ = full.claimed()
    time = full.world.store.now()
    messages = tuple(
        Message(time=time, level=20, text=f"line {number}.") for number in range(LOG_PAGE_SIZE + 9)
    )
    note = ProgressUpdate(instance=instance.pk, attempt=1, who="host", messages=messages)
    full.world.store.records.note([note], daemon=full.host.uuid)
    address, last = f"/atp/instances/{instance.uuid}/", f"line {LOG_PAGE_SIZE + 8}."
    assert check_page(operator.get(address), last).count(">line ") == LOG_SHOWN
    first = check_page(operator.get(f"{address}log/"), ">line 0.")
    check_page(operator.get(f"{address}log/?order=newest"), f">{last}", "hx-trigger")
    link = re.search(r'rel="next" href="(\?[^"]*)"', first)[1]
    rest = check_page(operator.get(f"{address}log/{link}"))
    assert first.count(">line ") + rest.count(">line ") == LOG_PAGE_SIZE + 9


def test_an_undeclared_type_cannot_be_enqueued(full, operator):
    queue.register(add)
    Type.objects.filter(identifier="tests.add").update(identifier="elsewhere.add")
    check_page(operator.get("/atp/types/elsewhere.add/"), "no handler", lacks=["/enqueue/"])
    assert operator.get("/atp/types/elsewhere.add/enqueue/").status_code == 409


def test_a_daemon_page_shows_its_tasks_and_busy_workers(full, operator):
    daemon, running = full.host.row, full[State.RUNNING]
    one = f"/atp/daemons/{daemon.uuid}/"
    held = (State.SCHEDULED, State.RUNNING, State.PAUSED)
    check_page(operator.get(one), "alive", *(str(full[state].uuid) for state in held))
    # A worker of short tasks is busy although its task has ended since.
    change = Move(event=Event.FINISH, instance=running.pk, attempt=1)
    assert full.host.record(change) == []
    check_page(operator.get("/atp/daemons/"), "1 of 2 workers busy", "(ended since then)")
    daemon.workers[0]["paused"] = True
    daemon.save()
    check_page(operator.get(one), ">PAUSED</span>")
    told = "0 of 2 workers busy, 1 with a paused task"
    check_page(operator.get("/atp/daemons/"), ">PAUSED</span>", told)


def test_times_are_shown_in_the_current_time_zone(full, operator, settings):
    settings.TIME_ZONE = "Asia/Tokyo"
    finished = full[State.FINISHED]
    time = f"{timezone.localtime(finished.finished):%Y-%m-%d %H:%M:%S}"
    shown = operator.get(f"/atp/instances/{finished.uuid}/")
    check_page(shown, time, "JST", "Times are in Asia/Tokyo.")


def test_the_traceback_is_shown_once_without_frames_of_atp(full, operator):
    instance, move = full.claimed()
    own = f'  File "{ATP}/daemon/worker/execution.py", line 1, in run'
    trace = f'Traceback (most recent call last):\n{own}\n  File "a.py", line 1, in f\nKeyError: 7'
    move(Event.START)
    move(Event.RETRY, message=trace, delay=None)
    [case] = full.host.claim(limit=1)
    full.host.move(case, Event.START)
    full.host.move(case, Event.FAIL, message=trace, reason=Reason.ERROR)
    shown = check_page(operator.get(f"/atp/instances/{instance.uuid}/"))
    headline = re.search(r'<div class="failure errors">\s*<p>([^<]*)</p>', shown)[1]
    assert headline.strip() == "KeyError: 7"
    top, _, log = shown.partition("<h2>Log</h2>")
    assert "a.py" in top
    assert ATP not in top
    assert log.count(ATP) == 1
    assert ATP in log.partition("<details")[2].partition("</details>")[0]
    assert log.count("File &quot;a.py&quot;") == 2  # without those frames, and with them
    assert "with the traceback of #1" in log


def test_failing_types_come_first_and_idle_ones_are_folded(full, operator):
    names = [f"tests.idle{number}" for number in range(12)]
    idle = [full.world.enqueue(type=registration(name))[0] for name in names]
    host = full.world.host(*names)
    for case in host.claim():
        host.move(case, Event.START, Event.FINISH)
    long_ago = full.world.store.now() - timedelta(days=1)
    Instance.objects.filter(pk__in=idle).update(finished=long_ago)
    first, folded = check_page(operator.get("/atp/")).split('<details id="idle">')
    assert re.findall(r"<td data-label=\"Type\"><a href=[^>]*>(.*?)</a>", first)[0] == "tests.echo"
    assert "tests.idle0" in folded
    assert "tests.echo" not in folded.split("</details>")[0]


def test_an_attempt_that_was_handed_back_does_not_count_as_tried_again(world, operator):
    """The page shows the progress of the current attempt only."""

    def tried_again():
        shown = check_page(operator.get("/atp/instances/"))
        return re.findall(r'<td data-label="Tried again"[^>]*>(.*?)</td>', shown)

    instance, host = echo.enqueue(), world.host("tests.echo")
    host.move(host.claim()[0], Event.RELEASE)
    assert tried_again() == [""]
    host.move(host.claim()[0], Event.START, Event.RETRY)
    assert tried_again() == ["1"]
    Instance.objects.update(progress=0.14)
    check_page(operator.get(f"/atp/instances/{instance.uuid}/"), lacks=["<progress"])


def test_the_state_and_the_explanation_on_a_page_agree(world, operator, monkeypatch):
    """Both show the end of an Instance that ends while its page is rendered."""
    instance = echo.enqueue()
    host = world.host("tests.echo")

    def explained(*args, **options):
        monkeypatch.undo()
        [claimed] = host.claim()
        host.move(claimed, Event.START, Event.FINISH)
        return explain(*args, **options)

    monkeypatch.setattr(instances, "explain", explained)
    state = '<span class="state finished">FINISHED</span>'
    shown = operator.get(f"/atp/instances/{instance.uuid}/")
    check_page(shown, state, lacks=["It ended as"])


def test_a_deleted_schedule_or_instance_is_named_without_a_link(full, operator):
    made = full[State.ACCEPTED]
    gone = "01a1f91a-b88b-777b-9eec-f82e434b47a3"
    own = {**(made.own or {}), "hook_of": gone}
    Instance.objects.filter(pk=made.pk).update(created_by="schedule gone", own=own)
    shown = operator.get(f"/atp/instances/{made.uuid}/")
    check_page(shown, "by schedule gone", gone[:8], lacks=["/atp/schedules/gone/"])
    assert gone not in uuids(shown)
    failed, group = full[State.FAILED], full.error()
    Instance.objects.filter(pk=failed.pk).update(error=group.pk - 1)
    check_page(operator.get(f"/atp/instances/{failed.uuid}/"), lacks=["Error group"])


def test_form_errors_are_linked_to_their_fields(full, operator):
    answer = operator.post("/atp/types/tests.add/enqueue/", {"inputs": "{", "priority": "x"})
    shown = answer.content.decode()
    described = " ".join(re.findall(r'aria-describedby="([^"]*)"', shown)).split()
    assert {"id_inputs_error", "id_priority_error"} <= set(described)
    assert set(described) <= set(re.findall(r'id="([^"]*)"', shown))


def problems_of(answer):
    """Return the problems on the overview as pairs: the severity, and the sentence."""
    pattern = r'<b class="severity">(\w+)</b> <span class="sentence">(.*?)</span>'
    found = re.findall(pattern, check_page(answer))
    return [(severity, unescape(words)) for severity, words in found]


def test_the_overview_reports_problems_with_their_remedy(world, operator):
    """A suspected problem is shown while it lasts (G2)."""
    host = world.host("tests.echo")
    settle(host)
    instance = echo.enqueue()
    assert problems_of(operator.get("/atp/")) == []
    age(instance.pk)
    [(severity, words)] = problems_of(operator.get("/atp/"))
    assert severity == "failing"
    assert words.startswith("Work of Type 'tests.echo' has been due for")
    assert words.endswith("Restart that daemon; manage.py atp check shows details.")
    host.claim()
    assert problems_of(operator.get("/atp/")) == []


def test_a_problem_has_a_button_for_the_operation_that_helps(world, operator, viewer):
    queue.register(echo, by="tests")
    queue.hold("tests.echo", "a & b", by="ann")
    now = world.store.now()
    row = queue.create_schedule("each.hour", "tests.echo", every=timedelta(hours=1))
    Slot.objects.create(schedule=row, at=now, outcome=Outcome.MISSED, decided=now)
    gate = '<a class="button" href="/atp/types/tests.echo/gate/?collection=a+%26+b">Open</a>'
    backfill = '<a class="button" href="/atp/schedules/each.hour/backfill/">Backfill</a>'
    check_page(operator.get("/atp/"), gate, backfill)
    missed = "Schedule &#x27;each.hour&#x27; has missed 1 slot"
    check_page(viewer.get("/atp/"), missed, lacks=[gate, backfill])


def test_the_address_of_a_subject_leads_to_its_page_whatever_the_collection(full, operator):
    uuid = str(full[State.FAILED].uuid)
    for kind, name in (("instance", uuid), ("type", "tests.echo"), ("gate", "tests.echo")):
        check_page(operator.get(activity.address_of(kind, name, "a & b")))


def test_many_viewers_share_one_snapshot_of_the_queue(
    full, operator, viewer, monkeypatch, django_assert_max_num_queries
):
    monkeypatch.setattr(base, "KEPT_FOR", 60.0)
    base.shared.clear()
    held = "Everything is held"
    check_page(operator.get("/atp/"), lacks=[held])
    with django_assert_max_num_queries(7):  # on PostgreSQL one of them asks for the time
        check_page(viewer.get("/atp/"))
    # Whoever has done something sees at once what that has changed, and so do the others then.
    check_page(operator.post("/atp/gate/", {"mode": "hold"}, follow=True), held)
    check_page(viewer.get("/atp/"), held)


def test_types_are_listed_by_pages_and_by_a_part_of_their_name(full, operator, monkeypatch):
    monkeypatch.setattr(overview, "TYPES_PAGE_SIZE", 2)
    known = sorted(Type.objects.values_list("identifier", flat=True))
    shown, seen = check_page(operator.get("/atp/types/")), []
    while True:
        seen += re.findall(r'data-label="Type"><a href="/atp/types/([^/]+)/"', shown)
        if not (found := re.search(r'rel="next" href="(\?[^"]*)"', shown)):
            break
        shown = check_page(operator.get(f"/atp/types/{unescape(found[1])}"))
    assert seen == known
    check_page(operator.get("/atp/types/?name=.ECHO"), "tests.echo", lacks=["tests.add"])
    check_page(operator.get("/atp/types/?name=no-such"), "There are no such Types")


def test_charts_say_if_there_are_too_many_events_to_mark(full, operator, monkeypatch):
    for who in ("ann", "ben"):
        queue.hold("tests.add", by=who)
    said = "What happened before is only in Activity"
    check_page(operator.get("/atp/types/tests.add/"), lacks=[said])
    monkeypatch.setattr(activity, "MOST_MARKS", 2)
    check_page(operator.get("/atp/types/tests.add/"), said)


def test_a_type_page_shows_its_lanes_errors_and_longest_attempts(full, operator):
    error = full.error()
    check_page(operator.get(f"/atp/types/{error.type}/"), f"/atp/failures/{error.digits}/")
    running = full[State.RUNNING]
    address = f"/atp/types/{running.type.identifier}/"
    check_page(operator.get(address), f'href="/atp/instances/{running.uuid}/"')
    queue.register(echo, by="tests")
    for name, count in (("a", 3), ("b & c", 1)):
        echo.using(collection=name).enqueue_many([{}] * count)
    page = "/atp/types/tests.echo/"
    links = [f"{page}{name}/?collection=b%20%26%20c" for name in ("gate", "limit")]
    shown = check_page(operator.get(page), *links)
    assert shown.index("“a”") < shown.index("“b &amp; c”")


def test_activity_lists_who_did_what_and_can_be_filtered(full, operator):
    queue.hold("tests.echo", "night", reason="disk <full>", by="user ann via page")
    queue.limit("tests.add", max_running=3, by="user bob via shell")
    check_page(
        operator.get("/atp/activity/"),
        "disk &lt;full&gt;",
        '<a href="/atp/types/tests.echo/">tests.echo, collection “night”</a>',
        f'<a href="/atp/daemons/{full.host.uuid}/">',
        "limits: max_running: 3",
    )
    shown = operator.get("/atp/activity/?who=ann&kind=gate")
    check_page(shown, "disk &lt;full&gt;", lacks=["max_running"])
    shown = operator.get("/atp/activity/?until=2001-01-01T00:00:00Z")
    check_page(shown, "Nothing like that")
    assert operator.get("/atp/activity/?kind=gates").status_code == 400


def test_charts_of_the_overview_mark_what_operators_did(world, operator, viewer):
    queue.register(echo, by="tests")
    queue.hold("tests.echo", by="user ann via page")
    parts = 'id="chart-throughput"', "tests.echo: gate: hold (user ann via page)"
    shown = check_page(operator.get("/atp/?span=24h"), *parts)
    assert "user ann via page" not in check_page(viewer.get("/atp/"))[: shown.index("Types")]
    assert operator.get("/atp/?span=1y").status_code == 400


def test_a_value_that_takes_long_delays_no_other_value():
    """A lock in the database may stop one of them; viewers of the same value wait for it."""
    shared, begun, may_end = base.Shared(), threading.Event(), threading.Event()

    def compute():
        begun.set()
        assert may_end.wait(DEADLINE)
        return "late"

    late = Thread(lambda: shared.get("a", compute))
    assert begun.wait(DEADLINE)
    assert shared.get("b", lambda: "prompt") == "prompt"
    may_end.set()
    assert late.result() == "late"


def test_pages_show_the_owner_the_runbook_and_the_downstream_of_a_type(full, operator):
    check_page(operator.get("/atp/types/tests.echo/"), lacks=["Owner", "Runbook"])
    more = {"owner": "terrain <team>", "runbook": "https://wiki/relief?a=1&b=2"}
    Type.objects.update(downstream="tiles", **more)
    failed, error = full[State.FAILED].uuid, full.error().name
    owner = "<dt>Owner</dt><dd>terrain &lt;team&gt;</dd>"
    runbook = '<a href="https://wiki/relief?a=1&amp;b=2" rel="noreferrer">'
    for page in (f"instances/{failed}", f"failures/{error}", "types/tests.echo"):
        check_page(operator.get(f"/atp/{page}/"), owner, runbook)
    downstream = '<a href="/atp/downstreams/tiles/">tiles</a>'
    check_page(operator.get("/atp/types/tests.echo/"), downstream)
