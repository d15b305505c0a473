"""What the pages show."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from atp import queue
from atp.daemon.worker import execution
from atp.models import Instance
from atp.reports.explaining.explain import explain
from atp.states import Event, Reason, State
from atp.store.values import Move
from atp.views import instances
from atp.views.instances import LOG_PAGE_SIZE, LOG_SHOWN, PAGE_SIZE
from tests.app.tasks import add, echo, keyword

from ..populated import MARKUP
from ..store.world import registration
from .pages import PAGES

each_page = pytest.mark.parametrize(
    "page", [page for page in PAGES if page.method == "get"], ids=lambda page: page.name
)


def text(answer):
    assert answer.status_code == 200, answer.content.decode()
    return answer.content.decode()


def uuids(shown):
    """The Instances that a list links to, in its order."""
    return re.findall(r'href="/atp/instances/([0-9a-f-]{36})/"', shown)


@each_page
def test_what_is_stored_is_never_markup(page, full, operator):
    """G14: whatever the names, messages, inputs and outputs hold."""
    if page.name == "response":
        return  # the one that is meant as it is: see test_bodies
    answer = operator.get(page.address(full))
    assert MARKUP not in answer.content.decode()


def test_hostile_text_is_there_as_text(full, operator):
    shown = text(operator.get(f"/atp/instances/{full[State.FINISHED].uuid}/"))
    assert shown.count("&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;") >= 3


@each_page
def test_a_strict_policy_goes_out_with_each_page(page, full, operator):
    """G14: scripts and styles come from files alone."""
    answer = operator.get(page.address(full))
    policy = answer["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert "no-store" in answer["Cache-Control"]
    assert "private" in answer["Cache-Control"]


@each_page
def test_nothing_is_inline(page, full, operator):
    answer = operator.get(page.address(full))
    if not answer["Content-Type"].startswith("text/html"):
        return
    shown = answer.content.decode()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)|javascript:", shown)


@each_page
def test_a_page_takes_few_queries(page, full, operator):
    address = page.address(full)
    with CaptureQueriesContext(connection) as asked:
        operator.get(address)
    assert len(asked) <= 18


def test_the_overview_counts(full, operator):
    shown = text(operator.get("/atp/"))
    tiles = {name: int(count) for count, name in re.findall(r"<b>(\d+)\+?</b> (\w+)", shown)}
    assert tiles == {"due": 0, "later": 1, "scheduled": 1, "running": 1, "paused": 1, "failed": 1}
    assert "1 ERROR" in shown
    assert "host:1" in shown
    assert f"/atp/instances/{full[State.RUNNING].uuid}/" in shown


def test_an_empty_queue_is_shown(operator, world):
    assert "No daemon is running" in text(operator.get("/atp/"))
    assert "There are no such Instances" in text(operator.get("/atp/instances/"))


@pytest.mark.parametrize("state", State)
def test_instances_by_state(state, full, operator):
    found = uuids(text(operator.get("/atp/instances/", {"state": state.lower()})))
    assert found == [str(full[state].uuid)]


def test_instances_by_everything(full, operator):
    failed = full[State.FAILED]
    query = {
        "type": "tests.echo",
        "state": "FAILED",
        "reason": Reason.ERROR,
        "collection": "books",
        "identifier": MARKUP,
        "uuid": str(failed.uuid)[:13],
    }
    assert uuids(text(operator.get("/atp/instances/", query))) == [str(failed.uuid)]
    for name, other in (("type", "tests.add"), ("reason", "STALE"), ("collection", "films")):
        assert uuids(text(operator.get("/atp/instances/", {**query, name: other}))) == []


def test_pages_of_instances_keep_the_filter(operator, world):
    add.enqueue(1)
    mine = [str(i.uuid) for i in echo.enqueue_many({} for _ in range(2 * PAGE_SIZE + 3))][::-1]
    shown = text(operator.get("/atp/instances/?type=tests.echo"))
    seen = uuids(shown)
    while found := re.search(r'rel="next" href="(\?[^"]*)"', shown):
        link = found[1].replace("&amp;", "&")
        shown = text(operator.get(f"/atp/instances/{link}"))
        seen += uuids(shown)
    assert seen == mine
    back = re.search(r'rel="prev" href="(\?[^"]*)"', shown)[1].replace("&amp;", "&")
    assert uuids(text(operator.get(f"/atp/instances/{back}"))) == mine[PAGE_SIZE : 2 * PAGE_SIZE]


def test_only_the_first_page_of_a_list_refreshes_itself(operator, world):
    echo.enqueue_many({} for _ in range(PAGE_SIZE + 1))
    shown = text(operator.get("/atp/instances/"))
    assert "hx-trigger" in shown
    link = re.search(r'rel="next" href="(\?[^"]*)"', shown)[1]
    assert "hx-trigger" not in text(operator.get(f"/atp/instances/{link}"))


@pytest.mark.parametrize("state", State)
def test_an_instance_asks_again_until_it_has_ended(state, full, operator):
    shown = text(operator.get(f"/atp/instances/{full[state].uuid}/"))
    assert ("hx-trigger" in shown) is (state not in (State.FINISHED, State.FAILED))


def test_htmx_gets_the_part_that_refreshes_itself(full, operator):
    address = f"/atp/instances/{full[State.RUNNING].uuid}/"
    part = text(operator.get(address, headers={"HX-Request": "true"}))
    assert '<div id="live"' in part
    assert "<html" not in part
    assert '<div id="live"' in text(operator.get(address))


def test_an_instance_shows_its_attempts(full, operator):
    failed = full[State.FAILED]
    queue.redrive(failed)
    shown = text(operator.get(f"/atp/instances/{failed.uuid}/"))
    assert 'class="timeline"' in shown
    assert "<dt>Claims</dt><dd>1</dd>" in shown
    assert "redrive" in shown


def test_a_long_log_is_shown_in_parts(full, operator):
    instance, _ = full.claimed()
    from atp.store.values import Message, Note

    time = full.world.store.now()
    messages = tuple(
        Message(time=time, level=20, text=f"line {number}.") for number in range(LOG_PAGE_SIZE + 9)
    )
    note = Note(instance=instance.pk, attempt=1, who="host", messages=messages)
    full.world.store.note([note], daemon=full.host.uuid)
    shown = text(operator.get(f"/atp/instances/{instance.uuid}/"))
    assert f"line {LOG_PAGE_SIZE + 8}." in shown
    assert shown.count(">line ") == LOG_SHOWN
    first = text(operator.get(f"/atp/instances/{instance.uuid}/log/"))
    assert ">line 0." in first
    link = re.search(r'rel="next" href="(\?[^"]*)"', first)[1]
    rest = text(operator.get(f"/atp/instances/{instance.uuid}/log/{link}"))
    assert first.count(">line ") + rest.count(">line ") == LOG_PAGE_SIZE + 9


def test_types_and_what_they_take(full, operator):
    shown = text(operator.get("/atp/types/"))
    assert "/atp/types/tests.add/enqueue/" in shown
    one = text(operator.get("/atp/types/tests.add/"))
    assert "tests.add(first: int, second: int = 0, *more: int)" in one


def test_a_type_that_this_process_does_not_declare(full, operator):
    queue.register(add)
    from atp.models import Type

    Type.objects.filter(identifier="tests.add").update(identifier="elsewhere.add")
    shown = text(operator.get("/atp/types/elsewhere.add/"))
    assert "no handler" in shown
    assert "/enqueue/" not in shown
    answer = operator.get("/atp/types/elsewhere.add/enqueue/")
    assert answer.status_code == 409


def test_a_daemon_shows_what_it_holds(full, operator):
    from atp.models import Daemon

    shown = text(operator.get(f"/atp/daemons/{Daemon.objects.get().uuid}/"))
    for state in (State.SCHEDULED, State.RUNNING, State.PAUSED):
        assert str(full[state].uuid) in shown
    assert "alive" in shown


def test_times_are_in_the_current_time_zone(full, operator, settings):
    settings.TIME_ZONE = "Asia/Tokyo"
    from django.utils import timezone

    finished = full[State.FINISHED]
    shown = text(operator.get(f"/atp/instances/{finished.uuid}/"))
    assert f"{timezone.localtime(finished.finished):%Y-%m-%d %H:%M:%S}" in shown
    assert "JST" in shown
    assert "Times are in Asia/Tokyo." in shown


def test_what_is_paused_still_belongs_to_its_attempt(full, operator):
    shown = text(operator.get(f"/atp/instances/{full[State.PAUSED].uuid}/"))
    assert "not yet" in shown
    assert Event.PAUSE in shown


def test_the_instance_is_found_by_the_words_of_its_list(full, operator):
    assert Instance.objects.count() == len(uuids(text(operator.get("/atp/instances/"))))


def test_the_overview_says_what_nobody_works_on(full, operator):
    assert "no daemon serves it" not in text(operator.get("/atp/"))
    keyword.enqueue(path="a")
    assert "Work of Type &#x27;tests.keyword&#x27; is due" in text(operator.get("/atp/"))


def test_a_uuid_is_found_as_it_is_shown(full, operator):
    uuid = str(full[State.FAILED].uuid)
    for shown in (f"{uuid[:8]}…{uuid[-4:]}", f"{uuid[:8]}...{uuid[-4:]}"):
        assert uuids(text(operator.get("/atp/instances/", {"uuid": shown}))) == [uuid]
    assert f"{uuid[:8]}…{uuid[-4:]}" in text(operator.get(f"/atp/instances/{uuid}/"))


def test_instances_without_a_collection(full, operator):
    found = uuids(text(operator.get("/atp/instances/?no_collection=yes")))
    assert len(found) == len(full.by_state) - 1
    assert str(full[State.FAILED].uuid) not in found


def test_the_tiles_due_and_later_lead_to_different_lists(full, operator):
    keyword.enqueue(path="a")
    later = str(full[State.ACCEPTED].uuid)
    assert uuids(text(operator.get("/atp/instances/?state=ACCEPTED&due=later"))) == [later]
    due = uuids(text(operator.get("/atp/instances/?state=ACCEPTED&due=now")))
    assert len(due) == 1
    assert due != [later]


def test_what_was_wrong_stands_on_top(full, operator):
    instance, move = full.claimed()
    move(Event.START)
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: bins'
    move(Event.FAIL, reason=Reason.ERROR, message=trace)
    shown = text(operator.get(f"/atp/instances/{instance.uuid}/"))
    headline = re.search(r'<div class="failure errors">\s*<p>([^<]*)</p>', shown)[1]
    assert headline.strip() == "ValueError: bins"


def test_the_page_of_a_dead_letter_leads_to_its_error_group(full, operator, client):
    instance, group = full[State.FAILED], full.error()
    Instance.objects.filter(pk=instance.pk).update(error=group.pk)
    address, link = f"/atp/instances/{instance.uuid}/", f"/atp/failures/{group.digits}/"
    assert link in text(operator.get(address))
    client.force_login(user := User.objects.create_user("eve"))
    user.user_permissions.set(Permission.objects.filter(codename="view_instance"))
    assert link not in text(client.get(address))
    # It is not counted yet.
    Instance.objects.filter(pk=instance.pk).update(error=group.pk - 1)
    assert "Error group" not in text(operator.get(address))


def test_the_frames_of_atp_are_folded(full, operator):
    instance, move = full.claimed()
    own = f'  File "{execution.__file__}", line 1, in run'
    trace = f'Traceback (most recent call last):\n{own}\n  File "a.py", line 1, in f\nKeyError: 7'
    move(Event.START)
    move(Event.FAIL, reason=Reason.ERROR, message=trace)
    shown = text(operator.get(f"/atp/instances/{instance.uuid}/"))
    top, _, log = shown.partition("<h2>Log</h2>")
    assert "a.py" in top
    assert execution.__file__ not in top
    assert log.count(execution.__file__) == 1
    assert execution.__file__ in log.partition("<details")[2].partition("</details>")[0]


def test_a_traceback_is_told_once(full, operator):
    instance, move = full.claimed()
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nKeyError: 7'
    move(Event.START)
    move(Event.RETRY, message=trace, delay=None)
    [case] = full.host.claim(limit=1)
    for event in (Event.START, Event.FAIL):
        said = {"message": trace, "reason": Reason.ERROR} if event == Event.FAIL else {}
        change = Move(event=event, instance=case.instance, attempt=case.attempt, **said)
        assert full.host.record(change) == []
    log = text(operator.get(f"/atp/instances/{instance.uuid}/")).partition("<h2>Log</h2>")[2]
    assert log.count("File &quot;a.py&quot;") == 1
    assert "with the traceback of #1" in log


def test_the_log_begins_at_the_newest(full, operator):
    address = f"/atp/instances/{full[State.RUNNING].uuid}/log/"
    shown = text(operator.get(address, {"order": "newest"}))
    assert shown.index(">start<") < shown.index(">claim<")
    assert "hx-trigger" in shown
    assert operator.get(address, {"order": "sideways"}).status_code == 400


def test_worker_of_short_tasks_is_busy_although_its_task_has_ended_since(full, operator):
    running = full[State.RUNNING]
    change = Move(event=Event.FINISH, instance=running.pk, attempt=1)
    assert full.host.record(change) == []
    shown = text(operator.get("/atp/daemons/"))
    assert "1 of 2 workers busy" in shown
    assert "(ended since then)" in shown


def test_who_may_not_see_daemons_is_not_led_to_them(full, visitor, allow):
    allow("view_instance")
    shown = text(visitor.get(f"/atp/instances/{full[State.RUNNING].uuid}/"))
    assert "host:1" not in shown
    assert "a daemon" in shown


def test_many_gates_are_folded(full, operator):
    for number in range(4):
        queue.hold("tests.add", f"lane {number}")
    assert "4 gates are shut" in text(operator.get("/atp/"))


def test_what_has_failed_of_late_is_told_beside_all(full, operator):
    assert "1 in the last hour" in text(operator.get("/atp/"))


def test_types_with_failures_stand_first_and_idle_ones_are_folded(full, operator):
    names = [f"tests.idle{number}" for number in range(12)]
    idle = [full.world.enqueue(type=registration(name))[0] for name in names]
    host = full.world.host(*names)
    for case in host.claim():
        host.move(case, Event.START, Event.FINISH)
    long_ago = full.world.store.now() - timedelta(days=1)
    Instance.objects.filter(pk__in=idle).update(finished=long_ago)
    first, folded = text(operator.get("/atp/")).split('<details id="idle">')
    assert re.findall(r"<td data-label=\"Type\"><a href=[^>]*>(.*?)</a>", first)[0] == "tests.echo"
    assert "tests.idle0" in folded
    assert "tests.echo" not in folded.split("</details>")[0]


def test_only_attempts_that_raised_or_were_lost_are_told_as_tried_again(world, operator):
    def tried_again():
        shown = text(operator.get("/atp/instances/"))
        return re.findall(r'<td data-label="Tried again"[^>]*>(.*?)</td>', shown)

    echo.enqueue()
    host = world.host("tests.echo")
    host.move(host.claim()[0], Event.RELEASE)
    assert tried_again() == [""]
    host.move(host.claim()[0], Event.START, Event.RETRY)
    assert tried_again() == ["1"]


def test_progress_of_a_lost_attempt_is_not_shown(full, operator):
    Instance.objects.filter(pk=full[State.ACCEPTED].pk).update(progress=0.14)
    assert "<progress" not in text(operator.get(f"/atp/instances/{full[State.ACCEPTED].uuid}/"))


def test_state_and_explanation_agree(world, operator, monkeypatch):
    """An Instance that ends while its page is made is shown as it has ended, in all parts."""
    instance = echo.enqueue()
    host = world.host("tests.echo")

    def explained(*args, **options):
        monkeypatch.undo()
        [claimed] = host.claim()
        host.move(claimed, Event.START, Event.FINISH)
        return explain(*args, **options)

    monkeypatch.setattr(instances, "explain", explained)
    shown = text(operator.get(f"/atp/instances/{instance.uuid}/"))
    assert '<span class="state finished">FINISHED</span>' in shown
    assert "It ended as" not in shown


def test_what_is_gone_is_no_link(full, operator):
    made = full[State.ACCEPTED]
    gone = "01a1f91a-b88b-777b-9eec-f82e434b47a3"
    own = {**(made.own or {}), "hook_of": gone}
    Instance.objects.filter(pk=made.pk).update(created_by="schedule gone", own=own)
    shown = text(operator.get(f"/atp/instances/{made.uuid}/"))
    assert "by schedule gone" in shown
    assert gone[:8] in shown
    assert "/atp/schedules/gone/" not in shown
    assert gone not in uuids(shown)


def test_errors_are_tied_to_their_fields(full, operator):
    answer = operator.post("/atp/types/tests.add/enqueue/", {"inputs": "{", "priority": "x"})
    shown = answer.content.decode()
    described = " ".join(re.findall(r'aria-describedby="([^"]*)"', shown)).split()
    assert {"id_inputs_error", "id_priority_error"} <= set(described)
    assert set(described) <= set(re.findall(r'id="([^"]*)"', shown))
