"""Tests of QuerySet methods, which select rows by state, by reason and by other filters."""

import itertools
from datetime import timedelta
from uuid import UUID

import pytest

from atp.models import Daemon, Instance, LogRecord, Task, Type
from atp.states import DEAD_LETTER, LIVE, TERMINAL, Reason, State
from atp.store import get_store

from .app.tasks import echo

pytestmark = pytest.mark.django_db


def now():
    return get_store().now()


def test_tasks_are_selected_by_due_time_and_ordered_for_claims():
    later = now() + timedelta(hours=1)
    due, future = echo.enqueue(), echo.using(run_after=later).enqueue()
    assert [task.pk for task in Task.objects.due(now())] == [due.pk]
    assert (Task.objects.waiting().count(), Task.objects.claimed().count()) == (2, 0)
    urgent = echo.using(priority=1).enqueue()
    ordered = [task.pk for task in Task.objects.in_claiming_order()]
    assert ordered == [urgent.pk, due.pk, future.pk]


def daemon(number, until, lock=""):
    facts = {"host": "h", "pid": number, "version": "1", "started": now(), "seen": now()}
    return Daemon.objects.create(uuid=UUID(int=number), lock=lock, lease_until=until, **facts)


def test_queryset_leased_selects_daemons_with_a_lease_or_a_lock_file():
    over, good = now() - timedelta(seconds=1), now() + timedelta(minutes=1)
    daemon(1, over)
    leased = [daemon(2, good), daemon(3, over, "a file")]
    assert set(Daemon.objects.leased(now())) == set(leased)


KINDS = [*((state, "") for state in State if state != State.FAILED)]
KINDS += [(State.FAILED, reason) for reason in Reason]
COLLECTIONS = ["", "books", "maps"]


@pytest.fixture
def everything():
    """Create an Instance for each Type, state, reason and collection, as the store would."""
    busy = daemon(0, now())
    types = list(Type.objects.filter(identifier__in=["tests.add", "tests.echo"]))
    kinds = itertools.product(types, KINDS, COLLECTIONS)
    for number, (type, (state, reason), collection) in enumerate(kinds):
        lane = {"type": type, "collection": collection}
        identifier = f"number {number % 40}" if number % 3 else None
        facts = {"identifier": identifier, "created_by": "somebody" if number % 2 else ""}
        facts |= {"created": now(), "finished": now() if state in TERMINAL else None}
        made = Instance.objects.create(**lane, state=state, reason=reason, **facts)
        if state in LIVE:
            holder = None if state == State.ACCEPTED else busy
            Task.objects.create(instance=made, **lane, daemon=holder, due_at=now())
    return list(Instance.objects.newest_first())


def test_instances_are_selected_by_state_and_by_reason(everything):
    rows = Instance.objects.all()
    for selected, states in (
        (rows.live(), LIVE),
        (rows.terminal(), TERMINAL),
        (rows.claimed(), LIVE - {State.ACCEPTED}),
        (rows.finished(), {State.FINISHED}),
        (rows.failed(), {State.FAILED}),
        (rows.in_state(State.PAUSED, State.RUNNING), {State.PAUSED, State.RUNNING}),
    ):
        wanted = {row for row in everything if row.state in states}
        assert set(selected) == wanted != set()
    assert {row.reason for row in rows.failed(Reason.ERROR, Reason.MISSED)} == {"ERROR", "MISSED"}
    assert {row.reason for row in rows.dead_letter()} == DEAD_LETTER


def test_queryset_selected_returns_the_same_rows_as_a_plain_comparison(everything):
    """An empty value of a filter selects everything."""
    echo_type = Type.objects.get(identifier="tests.echo")
    values = {
        "type": (None, echo_type),
        "state": ("", None, State.RUNNING, "FAILED"),
        "reason": ("", Reason.ERROR),
        "collection": ("", "books", "absent"),
        "identifier": ("", "number 5", "absent"),
        "created_by": ("", "somebody"),
    }
    alone = [{name: value} for name, all_values in values.items() for value in all_values]
    together = [
        {"type": echo_type, "state": State.FAILED, "reason": Reason.ERROR, "collection": "books"},
        {"identifier": "number 1", "created_by": "somebody", "collection": "books"},
        {"type": echo_type, "state": State.ACCEPTED, "collection": "books"},
        {"type": echo_type, "state": State.RUNNING, "collection": "books"},
        {"type": echo_type, "state": State.RUNNING},
        *({"state": state} for state in State),
    ]
    for given in (*alone, *together):
        expected = [
            row
            for row in everything
            if all(getattr(row, name) == value for name, value in given.items() if value)
        ]
        assert list(Instance.objects.selected(**given).newest_first()) == expected, given


def test_log_of_a_type_includes_the_records_of_its_lanes():
    """Types whose names differ only in case, or match as a LIKE pattern, are left out."""
    own = ["type:a_b", "lane:a_b/", "lane:a_b/x/y"]
    for subject in (*own, "type:A_b", "lane:A_b/x", "lane:axb/x"):
        LogRecord.objects.create(subject=subject, time=now(), level=20)
    found = LogRecord.objects.about_type("a_b").values_list("subject", flat=True)
    assert list(found) == own
