"""What the pages show."""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from atp import queue
from atp.models import Instance
from atp.states import Event, Reason, State
from atp.views.instances import LOG_PAGE_SIZE, LOG_SHOWN, PAGE_SIZE
from tests.app.tasks import add, echo, keyword

from ..populated import MARKUP
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
    assert "<dt>Attempt</dt><dd>1</dd>" in shown
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
