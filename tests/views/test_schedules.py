"""The pages of schedules (docs/pages.md)."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from atp import queue
from atp.models import Schedule, Slot
from atp.schedules.models import Outcome
from atp.states import State
from atp.templatetags.atp import strip

from ..populated import SCHEDULE
from .pages import CONTROL, ENQUEUE, INPUTS, check_page
from .pages import SCHEDULE as VIEW

LIST, PAGE, NEW = "/atp/schedules/", f"/atp/schedules/{SCHEDULE}/", "/atp/types/tests.add/schedule/"
DAY = timedelta(days=1)


def create(identifier, **given):
    given = given or {"every": DAY}
    return queue.create_schedule(identifier, "tests.add", inputs={"first": 1}, **given)


def slots(row, count, outcome=Outcome.ENQUEUED):
    first = datetime(2026, 1, 1, tzinfo=UTC)
    times = [first + number * DAY for number in range(count)]
    Slot.objects.bulk_create(
        Slot(schedule=row, at=at, outcome=outcome, decided=at, instance_id=1) for at in times
    )


def test_the_list_shows_timing_and_last_slot_of_each_schedule(
    full, operator, django_assert_max_num_queries
):
    """The number of queries does not grow with the list."""
    for number in range(30):
        slots(create(f"more-{number}"), 3)
    paused = '<span class="condition paused">paused</span>', ">PAUSED</span>"
    with django_assert_max_num_queries(8):
        parts = "at 02:30 every day, Europe/Vienna", *paused, f'href="{PAGE}"'
        shown = check_page(operator.get(LIST), *parts)
    assert shown.count("ENQUEUED</span>") == 30


def test_the_list_shows_how_many_slots_were_missed_in_the_last_day(full, operator):
    """A later slot that was enqueued does not hide them."""
    now, row = full.world.store.now(), create("hourly")
    for hours, values in (
        (30, {"outcome": Outcome.MISSED}),
        (5, {"outcome": Outcome.MISSED, "count": 2, "until": now - timedelta(hours=4)}),
        (3, {"outcome": Outcome.SKIPPED}),
        (2, {"outcome": Outcome.ENQUEUED}),
    ):
        Slot.objects.create(schedule=row, at=now - timedelta(hours=hours), decided=now, **values)
    missed, skipped = (f'<span class="condition {name}">' for name in ("missed", "skipped"))
    check_page(operator.get(LIST), f"{missed}2 missed</span>", f"{skipped}1 skipped</span>")
    last = {"at": now, "until": now, "outcome": Outcome.MISSED, "count": 7, "is_more": True}
    Slot.objects.create(schedule=row, decided=now, **last)
    check_page(operator.get(LIST), f"{missed}9 missed</span>", "× more than 7")


@pytest.mark.slow
def test_the_state_of_a_schedule_is_shown(full, operator):
    # Also of one that cannot be read.
    Schedule.objects.update(cron="nonsense", timezone="Mars/Olympus")
    for path in (LIST, PAGE, f"{PAGE}change/"):
        check_page(operator.get(path), "nonsense")
    for name, columns, state in (
        ("a", {}, "active"),
        ("b", {"trouble": "no time zone has this name"}, "in trouble"),
        ("c", {"retired": datetime(2026, 1, 1, tzinfo=UTC), "next_at": None}, "retired"),
    ):
        row = create(name)
        Schedule.objects.filter(pk=row.pk).update(**columns)
        for path in (LIST, f"/atp/schedules/{name}/"):
            check_page(operator.get(path), f">{state}</span>", columns.get("trouble", ""))


def test_a_schedule_page_shows_upcoming_runs_and_past_slots(
    full, operator, monkeypatch, django_assert_max_num_queries
):
    before = datetime(2026, 10, 20, tzinfo=UTC)
    monkeypatch.setattr("atp.schedules.reports.overview.now", lambda: before)
    shown = check_page(
        operator.get(PAGE),
        "Sun 2026-10-25 02:30:00+0",  # in its zone
        "the clock goes back",
        *(f'<rect class="{outcome.lower()}"' for outcome in Outcome),
        f'href="/atp/instances/{full[State.FINISHED].uuid}/"',
        "<h2>Log</h2>",
        'hx-get="/atp/schedules/nightly/"',
    )
    assert shown.count('<td class="number"><time') == 10
    slots(queue.get_schedule(SCHEDULE), 300)
    with django_assert_max_num_queries(16):
        shown = check_page(operator.get(PAGE))
    assert (shown.count("<rect"), shown.count('data-label="Outcome"')) == (200, 50)


def test_a_row_of_many_slots_is_drawn_as_a_wider_bar():
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [Slot(at=at, outcome=Outcome.PAUSED, count=count) for count in (5000, 3, 1)]
    drawn = strip(rows)
    assert [round(bar["width"]) for bar in drawn["bars"]] == [1, 3, 20]
    assert drawn["counts"] == [(Outcome.PAUSED, 5004)]
    assert drawn["whole"] - drawn["bars"][-1]["x"] == 20


def test_the_page_offers_only_actions_that_would_change_something(full, operator):
    check_page(operator.get(PAGE), 'id="resume"', lacks=['id="pause"', 'id="leave"'])
    refused = operator.get(f"{PAGE}pause/")
    check_page(refused, "because the schedule is paused", status=422)
    # A pause that is over stays in the row until the next slot is planned.
    over = full.world.store.now() - timedelta(minutes=1)
    Schedule.objects.filter(identifier=SCHEDULE).update(paused_until=over)
    check_page(operator.get(PAGE), 'id="pause"', lacks=['id="resume"'])
    answer = operator.post(f"{PAGE}pause/", {"until": "2020-01-01T00:00"})
    assert answer.status_code == 422
    assert answer.context["form"].errors.keys() == {"until"}


def test_the_change_form_sets_only_changed_fields(full, operator):
    form = operator.get(f"{PAGE}change/").context["form"]
    assert form.initial["cron"] == "30 2 * * *"
    row = queue.get_schedule(SCHEDULE)
    answer = operator.post(f"{PAGE}change/", sent(form, every="15m") | {"expected": row.revision})
    assert answer.status_code == 302
    changed = queue.get_schedule(SCHEDULE)
    assert (changed.cron, changed.every) == ("", timedelta(minutes=15))
    assert (changed.timezone, changed.data) == (row.timezone, row.data)
    # Of two edits at once the second is told.
    answer = operator.post(f"{PAGE}change/", sent(form, jitter="9s") | {"expected": row.revision})
    check_page(answer, "Somebody else has changed", status=409)
    assert queue.get_schedule(SCHEDULE).jitter == changed.jitter


def test_the_change_form_shows_inputs_only_with_permission(full, visitor, allow):
    """Saving the form without the permission keeps the inputs (G14)."""
    allow(VIEW, CONTROL, ENQUEUE)
    form = visitor.get(f"{PAGE}change/").context["form"]
    assert "inputs" not in form.initial
    visitor.post(f"{PAGE}change/", sent(form, priority="3"))
    row = queue.get_schedule(SCHEDULE)
    assert (row.priority, row.data) == (3, '{"first":1}')
    allow(INPUTS)
    assert visitor.get(f"{PAGE}change/").context["form"].initial["inputs"] == '{"first": 1}'


def test_the_backfill_form_refuses_a_delay_as_its_start(full, operator):
    check_page(operator.get(f"{PAGE}backfill/"), "as 2030-01-31T18:00", lacks=["delay"])
    create("often", every=3600)
    for start, told in (("1h", "is a delay"), ("2020-01-01T00:00", "more than 10,000 slots")):
        answer = operator.post("/atp/schedules/often/backfill/", {"start": start})
        check_page(answer, told, status=422)


def sent(form, **changes):
    """Return the values that a browser sends for a form, with changes."""
    initial = {name: form[name].value() or "" for name in form.fields}
    return {f"initial-{name}": value for name, value in initial.items()} | initial | changes


def given(**changes):
    return {"identifier": "new", "cron": "30 2 * * *", "inputs": '{"first": 1}'} | changes


def test_the_form_previews_and_creates_a_schedule(full, operator):
    """The preview shows the next runs and writes nothing."""
    before = full.world.snapshot()
    form = operator.get(NEW).context["form"]
    # The identifier and the inputs are still to come.
    values = sent(form, cron="30 2 * * *", timezone="Europe/Vienna", preview="yes")
    shown = operator.post(NEW, values)
    check_page(shown, "Next runs: at 02:30 every day, Europe/Vienna")
    assert len(shown.context["runs"]) == 10
    wrong = operator.post(NEW, values | {"timezone": "Europe/Viena"})
    assert wrong.status_code == 422
    assert wrong.context["form"].errors.keys() == {"timezone"}
    assert full.world.snapshot() == before
    values = sent(form, **given(timezone="Europe/Vienna", jitter="30s"))
    assert operator.post(NEW, values)["Location"] == "/atp/schedules/new/"
    row = queue.get_schedule("new")
    assert (row.cron, row.timezone, row.jitter) == ("30 2 * * *", "Europe/Vienna", DAY / 2880)
    assert (row.who, row.is_set, row.overlap) == ("user root via page", True, "allow")


def test_each_form_error_is_shown_at_its_field(full, operator):
    form = operator.get(NEW).context["form"]
    for changes, field in (
        ({"identifier": SCHEDULE}, "identifier"),
        ({"cron": "30 25 * * *"}, "cron"),
        ({"cron": "", "every": "0s"}, "every"),
        ({"timezone": "Europe/Viena"}, "timezone"),
        ({"inputs": '{"third": 3}'}, "inputs"),
        ({"late_after": "2d"}, "late_after"),
    ):
        answer = operator.post(NEW, sent(form, **given(**changes)))
        assert answer.status_code in (409, 422), changes
        assert answer.context["form"].errors.keys() == {field}, changes
    assert not Schedule.objects.filter(identifier="new").exists()


def test_the_page_counts_runs_that_wait_for_an_earlier_one(full, operator):
    """tests/explaining/test_causes.py shows the explanation of such a run."""
    queue.create_schedule("other", "tests.add", inputs={"first": 1}, every=DAY, overlap="queue")
    second = [queue.run_schedule("other") for _ in range(3)][1]
    told = "wait until it has ended; up to 100 wait", "3 that are live, 2 of them wait"
    check_page(operator.get("/atp/schedules/other/"), *told)
    shown = operator.get(f"/atp/instances/{second.uuid}/")
    check_page(shown, "It waits behind other", lacks=["<dt>Graph</dt>"])


def test_the_menu_marks_the_current_page(full, operator):
    """Pages below a menu entry mark the entry too."""
    for path, *current in (
        ("/atp/", "page", "Overview"),
        (LIST, "page", "Schedules"),
        (f"{PAGE}backfill/", "true", "Schedules"),
        (NEW, "true", "Types"),
        ("/atp/graphs/nothing/", "true", "Graphs"),
    ):
        shown = operator.get(path).content.decode()
        [menu] = re.findall(r"<header>.*?</header>", shown, re.DOTALL)
        assert re.findall(r'aria-current="(\w+)">(\w+)<', menu) == [tuple(current)], path
