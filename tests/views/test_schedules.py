"""The pages of schedules (docs/pages.md)."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from atp import queue
from atp.models import Instance, LogRecord, Schedule, Slot
from atp.rows.schedule import Outcome
from atp.states import State
from atp.templatetags.atp import strip
from atp.verbs.table import VERBS

from ..populated import SCHEDULE
from .pages import CONTROL, ENQUEUE, INPUTS, INSTANCE, LOG, TYPE
from .pages import SCHEDULE as VIEW

LIST, PAGE, NEW = "/atp/schedules/", f"/atp/schedules/{SCHEDULE}/", "/atp/types/tests.add/schedule/"
DAY = timedelta(days=1)


def text(answer):
    return answer.content.decode()


def create(identifier, **given):
    given = given or {"every": DAY}
    return queue.create_schedule(identifier, "tests.add", inputs={"first": 1}, **given)


def slots(row, count, outcome=Outcome.ENQUEUED):
    first = datetime(2026, 1, 1, tzinfo=UTC)
    times = [first + number * DAY for number in range(count)]
    Slot.objects.bulk_create(
        Slot(schedule=row, at=at, outcome=outcome, decided=at, instance_id=1) for at in times
    )


def test_a_pause_that_is_over_may_be_followed_by_another(full, operator):
    """It stays in the row until the next slot is planned."""
    create("other")
    queue.pause_schedule("other", until=timedelta(hours=1))
    over = full.world.store.now() - timedelta(minutes=1)
    Schedule.objects.filter(identifier="other").update(paused_until=over)
    shown = text(operator.get("/atp/schedules/other/"))
    assert 'id="pause"' in shown
    assert 'id="resume"' not in shown


# The list


def test_the_list_says_when_and_how(full, operator):
    shown = text(operator.get(LIST))
    assert "at 02:30 every day, Europe/Vienna" in shown
    assert '<span class="condition paused">paused</span>' in shown
    assert ">PAUSED</span>" in shown  # the last slot
    assert f'href="{PAGE}"' in shown


@pytest.mark.parametrize(
    ("columns", "state"),
    [
        ({}, "active"),
        ({"trouble": "no time zone has this name"}, "in trouble"),
        ({"retired": datetime(2026, 1, 1, tzinfo=UTC), "next_at": None}, "retired"),
    ],
)
def test_the_state_of_a_schedule_is_shown(full, operator, columns, state):
    row = create("other")
    Schedule.objects.filter(pk=row.pk).update(**columns)
    for path in (LIST, "/atp/schedules/other/"):
        shown = text(operator.get(path))
        assert f">{state}</span>" in shown
        assert columns.get("trouble", "") in shown


def test_the_list_takes_as_few_queries_for_many(full, operator, django_assert_max_num_queries):
    for number in range(30):
        slots(create(f"more-{number}"), 3)
    with django_assert_max_num_queries(8):
        shown = text(operator.get(LIST))
    assert shown.count("ENQUEUED</span>") == 30


def test_the_page_of_a_type_lists_its_schedules(full, operator):
    create("other")
    assert 'href="/atp/schedules/other/"' in text(operator.get("/atp/types/tests.add/"))


# One schedule


def test_a_schedule_is_shown_with_its_runs_and_slots(full, operator):
    shown = text(operator.get(PAGE))
    assert "02:30:00+0" in shown  # in its zone
    assert shown.count('<td class="number"><time') == 10
    for outcome in Outcome:
        assert f'<rect class="{outcome.lower()}"' in shown
    assert f'href="/atp/instances/{full[State.FINISHED].uuid}/"' in shown
    assert "<h2>Log</h2>" in shown
    assert 'hx-get="/atp/schedules/nightly/"' in shown


def test_changes_of_the_clock_are_remarked(full, operator, monkeypatch):
    before = datetime(2026, 10, 20, tzinfo=UTC)
    monkeypatch.setattr("atp.reports.schedules.overview.now", lambda: before)
    shown = text(operator.get(PAGE))
    assert "Sun 2026-10-25 02:30:00+0" in shown
    assert "the clock goes back" in shown


def test_a_schedule_that_cannot_be_read_is_shown(full, operator):
    Schedule.objects.update(cron="nonsense", timezone="Mars/Olympus")
    for path in (LIST, PAGE, f"{PAGE}change/"):
        assert "nonsense" in text(operator.get(path))


def test_the_page_takes_few_queries(full, operator, django_assert_max_num_queries):
    slots(queue.get_schedule(SCHEDULE), 300)
    with django_assert_max_num_queries(16):
        shown = text(operator.get(PAGE))
    assert shown.count("<rect") == 200
    assert shown.count('data-label="Outcome"') == 50


def test_parts_of_the_page_take_permissions_of_their_own(full, visitor, allow):
    """G14: inputs, log and Instances may hold what not everybody is to see."""
    allow(VIEW)
    parts = {LOG: "<h2>Log</h2>", INPUTS: "<h2>Inputs</h2>", INSTANCE: "/atp/instances/"}
    parts |= {TYPE: 'href="/atp/types/tests.echo/"', CONTROL: 'id="resume"'}
    shown = text(visitor.get(PAGE))
    assert not any(part in shown for part in parts.values())
    for permission, part in parts.items():
        allow(permission)
        assert part in text(visitor.get(PAGE))


def test_there_is_no_such_schedule(full, operator):
    answer = operator.get("/atp/schedules/nightl/")
    assert answer.status_code == 404
    assert "nightly" in text(answer)


def test_a_row_of_many_slots_is_a_wider_bar():
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [Slot(at=at, outcome=Outcome.PAUSED, count=count) for count in (5000, 3, 1)]
    drawn = strip(rows)
    assert [round(bar["width"]) for bar in drawn["bars"]] == [1, 3, 20]
    assert drawn["counts"] == [(Outcome.PAUSED, 5004)]
    last = drawn["bars"][-1]
    assert drawn["whole"] - last["x"] == 20


# The verbs


def test_the_buttons_are_those_that_make_a_difference(full, operator):
    shown = text(operator.get(PAGE))
    assert 'id="resume"' in shown
    for name in ("pause", "leave"):
        assert f'id="{name}"' not in shown
    refused = operator.get(f"{PAGE}pause/")
    assert refused.status_code == 422
    assert "The schedule is paused." in text(refused)


def test_resume_run_and_pause(full, operator):
    assert operator.post(f"{PAGE}resume/").status_code == 302
    assert queue.get_schedule(SCHEDULE).paused_since is None
    assert operator.post(f"{PAGE}run/")["Location"] == PAGE
    made = Instance.objects.latest("pk")
    assert (made.created_by, made.inputs.value) == ("user root via page", {"first": 1})
    operator.post(f"{PAGE}pause/", {"reason": "storage moves", "until": "2h"})
    row = queue.get_schedule(SCHEDULE)
    assert (row.paused_by, row.paused_reason) == ("user root via page", "storage moves")
    log = LogRecord.objects.about(f"schedule:{SCHEDULE}")
    assert [record.detail for record in log][-3:] == ["resume", "run", "pause"]


def test_a_pause_that_is_over_before_it_begins(full, operator):
    operator.post(f"{PAGE}resume/")
    answer = operator.post(f"{PAGE}pause/", {"until": "2020-01-01T00:00"})
    assert answer.status_code == 422
    assert answer.context["form"].errors.keys() == {"until"}


def test_what_is_changed_is_given_and_nothing_else(full, operator):
    form = operator.get(f"{PAGE}change/").context["form"]
    assert form.initial["cron"] == "30 2 * * *"
    row = queue.get_schedule(SCHEDULE)
    answer = operator.post(f"{PAGE}change/", sent(form, every="15m") | {"expected": row.revision})
    assert answer.status_code == 302
    changed = queue.get_schedule(SCHEDULE)
    assert (changed.cron, changed.every) == ("", timedelta(minutes=15))
    assert (changed.timezone, changed.data) == (row.timezone, row.data)


def test_two_edits_at_once(full, operator):
    shown = operator.get(f"{PAGE}change/")
    form, [(_, revision)] = shown.context["form"], shown.context["hidden"]
    queue.change_schedule(SCHEDULE, jitter=5, by="somebody else")
    answer = operator.post(f"{PAGE}change/", sent(form, jitter="9s") | {"expected": revision})
    assert answer.status_code == 409
    assert "Somebody else has changed" in text(answer)
    assert queue.get_schedule(SCHEDULE).jitter == timedelta(seconds=5)


def test_cron_and_every_at_once_are_refused(full, operator):
    form = operator.get(f"{PAGE}change/").context["form"]
    answer = operator.post(f"{PAGE}change/", sent(form, cron="1 * * * *", every="1h"))
    assert answer.status_code == 422
    assert answer.context["form"].errors.keys() == {"cron"}


def test_the_form_has_the_inputs_for_who_may_see_them(full, visitor, allow):
    """G14: an edit without them leaves them as they are."""
    allow(VIEW, CONTROL, ENQUEUE)
    form = visitor.get(f"{PAGE}change/").context["form"]
    assert "inputs" not in form.initial
    visitor.post(f"{PAGE}change/", sent(form, priority="3"))
    row = queue.get_schedule(SCHEDULE)
    assert (row.priority, row.data) == (3, '{"first":1}')
    allow(INPUTS)
    assert visitor.get(f"{PAGE}change/").context["form"].initial["inputs"] == '{"first": 1}'


def test_backfill(full, operator):
    create("often", every=3600)
    answer = operator.post("/atp/schedules/often/backfill/", {"start": "2020-01-01T00:00"})
    assert answer.status_code == 422
    assert "more than 10000 slots" in text(answer)
    since = (full.world.store.now() - timedelta(hours=3)).isoformat()
    assert operator.post("/atp/schedules/often/backfill/", {"start": since}).status_code == 302
    assert Slot.objects.filter(schedule__identifier="often").count() == 3


def test_a_schedule_is_deleted(full, operator):
    assert "for good" in text(operator.get(f"{PAGE}delete/"))
    assert operator.post(f"{PAGE}delete/")["Location"] == LIST
    assert not Schedule.objects.filter(identifier=SCHEDULE).exists()


# Making one


def sent(form, **changes):
    """What a browser sends of a form, with changes."""
    initial = {name: form[name].value() or "" for name in form.fields}
    return {f"initial-{name}": value for name, value in initial.items()} | initial | changes


def given(**changes):
    return {"identifier": "new", "cron": "30 2 * * *", "inputs": '{"first": 1}'} | changes


def test_a_schedule_is_made(full, operator):
    form = operator.get(NEW).context["form"]
    values = sent(form, **given(timezone="Europe/Vienna", jitter="30s"))
    assert operator.post(NEW, values)["Location"] == "/atp/schedules/new/"
    row = queue.get_schedule("new")
    assert (row.cron, row.timezone, row.jitter) == ("30 2 * * *", "Europe/Vienna", DAY / 2880)
    assert (row.who, row.is_set, row.overlap) == ("user root via page", True, "allow")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"identifier": "not so"}, "identifier"),
        ({"identifier": SCHEDULE}, "identifier"),
        ({"cron": "30 25 * * *"}, "cron"),
        ({"cron": ""}, "cron"),
        ({"every": "15m"}, "cron"),
        ({"cron": "", "every": "0s"}, "every"),
        ({"timezone": "Europe/Viena"}, "timezone"),
        ({"inputs": '{"third": 3}'}, "inputs"),
        ({"inputs": "[1"}, "inputs"),
        ({"most": "0"}, "most"),
        ({"late_after": "2d"}, "late_after"),
        ({"missed": "some"}, "missed"),
    ],
)
def test_what_is_wrong_stands_at_its_field(full, operator, changes, field):
    form = operator.get(NEW).context["form"]
    answer = operator.post(NEW, sent(form, **given(**changes)))
    assert answer.status_code in (409, 422)
    assert answer.context["form"].errors.keys() == {field}
    assert not Schedule.objects.filter(identifier="new").exists()


def test_next_runs_are_shown_and_nothing_is_written(full, operator):
    before = full.world.snapshot()
    form = operator.get(NEW).context["form"]
    # The identifier and the inputs are still to come.
    values = sent(form, cron="30 2 * * *", timezone="Europe/Vienna", preview="yes")
    shown = operator.post(NEW, values)
    assert shown.status_code == 200
    assert len(shown.context["runs"]) == 10
    assert "Next runs: at 02:30 every day, Europe/Vienna" in text(shown)
    assert full.world.snapshot() == before
    wrong = operator.post(NEW, values | {"timezone": "Europe/Viena"})
    assert wrong.status_code == 422
    assert wrong.context["form"].errors.keys() == {"timezone"}


def test_next_runs_of_a_change(full, operator):
    form = operator.get(f"{PAGE}change/").context["form"]
    before = queue.get_schedule(SCHEDULE).revision
    shown = operator.post(f"{PAGE}change/", sent(form, every="15m", preview="yes"))
    assert "Next runs: every 15 minutes" in text(shown)
    assert queue.get_schedule(SCHEDULE).revision == before


# Where else they are


def test_a_type_lists_its_schedules(full, visitor, allow):
    allow(TYPE)
    assert "Schedules" not in text(visitor.get("/atp/types/tests.echo/"))
    allow(VIEW)
    assert PAGE in text(visitor.get("/atp/types/tests.echo/"))
    assert PAGE not in text(visitor.get("/atp/types/tests.add/"))


def test_an_instance_leads_to_its_schedule(full, visitor, allow):
    allow(INSTANCE)
    address = f"/atp/instances/{full[State.ACCEPTED].uuid}/"
    Instance.objects.filter(pk=full[State.ACCEPTED].pk).update(created_by=f"schedule {SCHEDULE}")
    assert PAGE not in text(visitor.get(address))
    allow(VIEW)
    assert PAGE in text(visitor.get(address))
    Instance.objects.filter(pk=full[State.ACCEPTED].pk).update(created_by="schedule of/mine")
    assert "schedule of/mine" in text(visitor.get(address))


# Lines


def test_the_page_tells_how_many_wait(full, operator):
    queue.create_schedule("other", "tests.add", inputs={"first": 1}, every=DAY, overlap="queue")
    first, second, _ = (queue.run_schedule("other") for _ in range(3))
    shown = text(operator.get("/atp/schedules/other/"))
    assert "wait until it has ended; up to 100 wait" in shown
    assert "3 that are live, 2 of them wait" in shown
    shown = text(operator.get(f"/atp/instances/{second.uuid}/"))
    assert f"It waits behind other ({first.uuid}): its schedule runs one at a time." in shown
    assert "<dt>Graph</dt>" not in shown


@pytest.mark.parametrize("overlap", ["allow", "skip", "queue", "cancel"])
def test_the_form_takes_each_overlap(full, operator, overlap):
    data = {"identifier": "other", "every": "1d", "overlap": overlap, "inputs": '{"first": 1}'}
    assert operator.post(NEW, data).status_code == 302
    assert queue.get_schedule("other").overlap == overlap


def test_the_form_of_a_backfill_offers_no_delay(full, operator):
    shown = text(operator.get(f"{PAGE}backfill/"))
    assert "as 2030-01-31T18:00" in shown
    assert "delay" not in shown
    answer = operator.post(f"{PAGE}backfill/", {"start": "1h"})
    assert answer.status_code == 422
    assert "is a delay from now" in text(answer)


def test_a_pause_of_what_is_paused_tells_so(full):
    create("other")
    verb = VERBS["schedule"]["pause"]
    assert verb.perform(queue.get_schedule("other"), "ann", reason="disk").told == "It is paused."
    told = verb.perform(queue.get_schedule("other"), "bob", reason="move").told
    assert told == "It is paused. Before, it was paused by ann: disk."


# The menu


@pytest.mark.parametrize(
    ("path", "current"),
    [
        ("/atp/", ("Overview", "page")),
        (LIST, ("Schedules", "page")),
        (PAGE, ("Schedules", "true")),
        (f"{PAGE}backfill/", ("Schedules", "true")),
        (NEW, ("Types", "true")),
        ("/atp/types/tests.add/", ("Types", "true")),
        ("/atp/graphs/", ("Graphs", "page")),
        ("/atp/graphs/nothing/", ("Graphs", "true")),
        ("/atp/instances/nothing/", ("Instances", "true")),
        ("/atp/daemons/nothing/", ("Daemons", "true")),
    ],
)
def test_the_menu_tells_where_one_is(full, operator, path, current):
    """Each page below one of the menu, too."""
    found = re.findall(r'aria-current="(\w+)">(\w+)<', text(operator.get(path)))
    assert found == [current[::-1]]
