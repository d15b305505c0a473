"""The store contract: a batch comes to the same in every store, whatever is in it (G4, G6)."""

import logging

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atp.commands import RELEASE
from atp.models import Instance, LogRecord, Response, Task
from atp.states import Event, Reason, State
from atp.store.values import Move, ResponseData

from ..nonsense import without_noise
from .internals import ORMStore
from .world import HOUR, SECOND

# One of each, and two that are running: most batches are about these.
STATES = [State.SCHEDULED, State.RUNNING, State.PAUSED, State.RUNNING, State.ACCEPTED]
ANSWERS = [
    None,
    ResponseData(content_type="application/json", data=b'{"a":1}', size=7),
    ResponseData(content_type="image/png", data=b"\x00\xff", size=2),
    ResponseData(content_type="image/png", data=None, file="atp/x/1-r", size=10**10),
]
MADE = st.builds(
    dict,
    case=st.integers(0, len(STATES) - 1),
    event=st.sampled_from([*[Event.START, Event.FINISH] * 4, *Event]),
    behind=st.sampled_from([0, 0, 0, 0, 0, 1]),
    has_start=st.booleans(),
    who=st.sampled_from(["worker 1", "worker 1", "worker 2"]),
    said=st.sampled_from(["", "", "a", "Überlauf \N{SNOWMAN} %s :x"]),
    delay=st.sampled_from([None, HOUR]),
    answer=st.sampled_from(ANSWERS),
)


def changes_of(cases, made, now):
    """The changes that a list of MADE stands for, a second after each other."""
    for number, each in enumerate(made):
        case, event = cases[each["case"]], each["event"]
        yield Move(
            event=event,
            instance=case.instance,
            attempt=case.number - each["behind"],
            time=now + number * SECOND,
            started=now - SECOND if each["has_start"] else None,
            who=each["who"],
            message=each["said"],
            level=logging.ERROR if each["said"] else logging.INFO,
            reason=Reason.ERROR if event == Event.FAIL else "",
            delay=each["delay"] if event in (Event.RETRY, Event.DEFER) else None,
            response=each["answer"] if event == Event.FINISH else None,
        )


def written():
    """Return all that a batch may change, with due times to the hour.

    The keys of LogRecords and the times of refusals are left out.
    """
    models = Instance, Task, Response
    instances, tasks, responses = (list(m.objects.order_by("pk").values()) for m in models)
    logs = LogRecord.objects.filter(instance__isnull=False).order_by("instance", "pk").values()
    for task in tasks:
        task["due_at"] = task["due_at"].replace(minute=0, second=0, microsecond=0)
    for response in responses:
        response["data"] = response["data"] and bytes(response["data"])
    for log in logs:
        log |= {"id": None, "message": without_noise(log["message"])}
        log["time"] = log["time"] if log["kind"] in Event else None
    return instances, tasks, list(logs), responses


def outcome(store, changes, daemon):
    """What the store refuses and what it has written then; afterwards all is as it was."""
    with transaction.atomic():
        refused = store.records.record(changes, daemon=daemon)
        found = written()
        transaction.set_rollback(True)
    return refused, found


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("examples", [20, pytest.param(200, marks=pytest.mark.long)])
def test_it_comes_to_what_the_portable_store_makes_of_it(world, examples):
    """One statement for many Instances says the same as one event after the other."""

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(made=st.lists(MADE, min_size=1, max_size=7))
    def compare(made):
        with transaction.atomic():
            host = world.host()
            cases = [world.bring_to(state, host) for state in STATES]
            world.store.control.request(cases[1].instance, RELEASE, who="somebody")
            changes = list(changes_of(cases, made, world.store.now()))
            expected = outcome(ORMStore(world.store.alias), changes, host.uuid)
            assert outcome(world.store, changes, host.uuid) == expected
            transaction.set_rollback(True)

    compare()


def test_a_change_that_records_its_start_too_is_logged_as_both(world, host):
    """G6: each with its time."""
    states = {Event.FINISH: State.FINISHED, Event.FAIL: State.FAILED, Event.PAUSE: State.PAUSED}
    for event in (*states, Event.RETRY, Event.DEFER, Event.RELEASE, Event.EXPIRE):
        with world.case(event):
            case = world.bring_to(State.SCHEDULED, host)
            now, state = world.store.now(), states.get(event, State.ACCEPTED)
            reason = Reason.ERROR if event == Event.FAIL else ""
            change = Move(event, case.instance, case.number, now, now - SECOND)
            change = change._replace(who="worker", message="so", reason=reason)
            assert host.record(change) == []
            instance = world.get(case.instance)
            assert (instance.state, instance.started) == (state, now - SECOND)
            start, end = world.log(case.instance)[-2:]
            assert (start.event, start.state, start.time) == ("start", "RUNNING", now - SECOND)
            assert (start.who, start.message, start.level) == ("worker", "", logging.INFO)
            assert (end.event, end.state, end.time) == (event, state, now)
            assert (end.who, end.message) == ("worker", "so")
