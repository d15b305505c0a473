"""Buttons and forms: they call the verbs, or say why not."""

import json
import re
from datetime import timedelta

import pytest

from atp import queue
from atp.models import Inputs, Instance, LogRecord, Task
from atp.states import Event, State
from atp.verbs.table import INSTANCE, VERBS, allowed
from tests.app import tasks_pause
from tests.app.tasks import add, echo, keyword
from tests.app.tasks_transactional import row

from ..populated import MARKUP

ADD = "/atp/types/tests.add/enqueue/"


def errors(answer):
    """What the page complains of."""
    found = re.findall(r'class="errors"[^>]*>(.*?)</(?:p|span|ul|pre)>', answer.content.decode())
    return " ".join(found)


# Actions


def test_redrive(full, operator):
    failed = full[State.FAILED]
    answer = operator.post(f"/atp/instances/{failed.uuid}/redrive/", follow=True)
    assert answer.redirect_chain == [(f"/atp/instances/{failed.uuid}/", 302)]
    assert "It is back in the queue." in answer.content.decode()
    assert full[State.FAILED].state == State.ACCEPTED


def test_an_instance_that_was_redriven_since_the_page_is_not_deleted(full, operator):
    failed = full[State.FAILED]
    address = f"/atp/instances/{failed.uuid}/delete/"
    shown = dict(operator.get(address).context["hidden"])
    queue.redrive(failed)
    answer = operator.post(address, shown)
    assert answer.status_code == 409
    assert "redriven it since" in errors(answer)
    assert "It is cancelled first" in answer.content.decode()
    assert full[State.FAILED].state == State.ACCEPTED
    # The page has told so now.
    assert operator.post(address, dict(answer.context["hidden"])).status_code == 302
    assert not Instance.objects.filter(pk=failed.pk).exists()


def test_release(full, operator):
    running = full[State.RUNNING]
    operator.post(f"/atp/instances/{running.uuid}/release/")
    assert Task.objects.get(instance=running).request == "release"


def test_cancel(full, operator):
    """At once what waits; of what a daemon holds that is asked, and by whom it is told."""
    waiting, running = full[State.ACCEPTED], full[State.RUNNING]
    for instance in (waiting, running):
        address = f"/atp/instances/{instance.uuid}/cancel/"
        answer = operator.post(address, {"sure": "yes"}, follow=True)
        assert "It is cancelled" in answer.content.decode()
    assert full[State.ACCEPTED].reason == "CANCELLED"
    assert Task.objects.get(instance=running).request == "cancel"
    assert full[State.RUNNING].log.last().who.endswith("via page")
    page = operator.get(f"/atp/instances/{running.uuid}/").content.decode()
    assert "asked to cancel" in page
    assert 'id="cancel"' not in page
    assert 'id="release"' not in page


def test_a_cancel_of_what_runs_asks_once_more(full, operator):
    running = full[State.RUNNING]
    answer = operator.post(f"/atp/instances/{running.uuid}/cancel/")
    assert 'name="sure"' in answer.content.decode()
    assert Task.objects.get(instance=running).request == ""


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("name", VERBS[INSTANCE])
def test_the_buttons_are_those_that_the_state_allows(name, state, full, operator):
    instance = full[state]
    shown = operator.get(f"/atp/instances/{instance.uuid}/").content.decode()
    assert (f"/atp/instances/{instance.uuid}/{name}/" in shown) is (
        VERBS[INSTANCE][name] in allowed(instance, queue.task(instance))
    )


@pytest.mark.parametrize("state", set(State) - {State.FAILED})
def test_what_the_state_does_not_allow_is_refused(state, full, operator):
    """G6, G13: told with the state it is in, and nothing is written."""
    instance, before = full[state], LogRecord.objects.count()
    answer = operator.post(f"/atp/instances/{instance.uuid}/redrive/")
    assert answer.status_code == 409
    assert state in errors(answer)
    assert LogRecord.objects.count() == before
    assert full[state].state == state


def test_an_unknown_action(full, operator):
    assert operator.post(f"/atp/instances/{full[State.FAILED].uuid}/erase/").status_code == 404


def test_an_action_is_no_page(full, operator):
    answer = operator.get(f"/atp/instances/{full[State.FAILED].uuid}/redrive/")
    assert answer.status_code == 405
    assert answer["Allow"] == "POST, OPTIONS"


# Enqueueing


def test_enqueue(operator, world):
    answer = operator.post(ADD, {"inputs": '{"first": 1, "second": 2}', "existing": "raise"})
    instance = Instance.objects.get()
    assert answer["Location"] == f"/atp/instances/{instance.uuid}/"
    assert Inputs.objects.get().value == {"first": 1, "second": 2}
    assert instance.state == State.ACCEPTED


def test_enqueue_with_options(operator, world):
    operator.post(
        ADD,
        {
            "inputs": "[1, 2, 3]",
            "identifier": "mine",
            "existing": "return",
            "priority": "-7",
            "collection": "books",
            "run_after": "2h",
            "start_before": "2030-01-31T18:00",
        },
    )
    instance = Instance.objects.get()
    assert (instance.identifier, instance.priority, instance.collection) == ("mine", -7, "books")
    due = Task.objects.get().due_at
    assert abs(due - instance.created - timedelta(hours=2)) < timedelta(minutes=1)
    assert instance.start_before.isoformat() == "2030-01-31T18:00:00+00:00"


def test_the_defaults_of_the_type_hold_where_nothing_is_given(operator, world):
    operator.post("/atp/types/tests.keyword/enqueue/", {"inputs": '{"path": "a"}'})
    instance = Instance.objects.get()
    assert (instance.priority, instance.collection) == (5, "books")


def test_the_form_begins_with_the_arguments(operator, world):
    form = operator.get("/atp/types/tests.keyword/enqueue/").context["form"]
    # What has to be given is not there: null would be taken for it.
    assert json.loads(form.initial["inputs"]) == {"scale": 1.0}


def test_enqueue_again_begins_with_the_same(operator, world):
    other = keyword.using(priority=9).enqueue(path=MARKUP)
    answer = operator.get(f"/atp/types/tests.keyword/enqueue/?like={other.uuid}")
    initial = answer.context["form"].initial
    assert json.loads(initial["inputs"]) == {"path": MARKUP}
    assert (initial["priority"], initial["collection"]) == (9, "books")
    assert MARKUP not in answer.content.decode()


def test_enqueue_again_keeps_what_json_lacks(operator, world):
    from decimal import Decimal

    other = echo.enqueue(price=Decimal("1.10"))
    answer = operator.get(f"/atp/types/tests.echo/enqueue/?like={other.uuid}")
    operator.post(
        "/atp/types/tests.echo/enqueue/", {"inputs": answer.context["form"].initial["inputs"]}
    )
    again = Inputs.objects.exclude(instance=other).get()
    assert again.value == {"price": Decimal("1.10")}


@pytest.mark.parametrize(
    ("given", "status", "told"),
    [
        ({"inputs": "{"}, 422, "not JSON"),
        ({"inputs": '{"first": 1, "first": 2}'}, 422, "stands twice"),
        ({"inputs": '{"first": NaN}'}, 422, "NaN"),
        ({"inputs": '{"first": "\\ud800"}'}, 422, "Unicode"),
        ({"inputs": "7"}, 422, "must be a JSON object"),
        ({"inputs": "[" * 5000}, 422, "not JSON"),
        ({"inputs": ""}, 422, "required"),
        ({}, 422, "required"),
        ({"inputs": '{"first": {"$date": "never"}}'}, 422, "Not the JSON"),
        ({"inputs": '{"frist": 1}'}, 422, "Did you mean &#x27;first&#x27;"),
        ({"inputs": "{}"}, 422, "missing a required argument: &#x27;first&#x27;"),
        ({"inputs": "[1]", "priority": "1000"}, 422, "from -100 to 100"),
        ({"inputs": "[1]", "priority": "high"}, 422, "whole number"),
        ({"inputs": "[1]", "run_after": "soon"}, 422, "neither a time"),
        ({"inputs": "[1]", "run_after": "9999-12-31T23:59-10:00"}, 422, "calendar"),
        ({"inputs": "[1]", "start_before": "1h", "run_after": "2h"}, 422, "later than"),
        ({"inputs": "[1]", "existing": "perhaps"}, 422, "not one of the available choices"),
        ({"inputs": "[1]", "existing": "return", "identifier": "x" * 201}, 422, "at most 200"),
        ({"inputs": "[1]", "collection": "a\nb"}, 422, "printable"),
        ({"inputs": "[1]", "colour": "red"}, 400, "colour"),
        ({"inputs": "[1]", "colection": "a"}, 400, "Did you mean &#x27;collection&#x27;"),
    ],
)
def test_bad_input_is_told_and_nothing_is_written(given, status, told, operator, world):
    """G13."""
    answer = operator.post(ADD, given)
    assert answer.status_code == status
    assert told in errors(answer)
    assert not Instance.objects.exists()


def test_what_was_typed_is_still_there(operator, world):
    answer = operator.post(ADD, {"inputs": '{"frist": 1}', "collection": "books"})
    shown = answer.content.decode()
    assert "{&quot;frist&quot;: 1}" in shown
    assert 'value="books"' in shown


def test_an_identifier_that_is_taken(operator, world):
    taken = add.using(identifier="mine").enqueue(1)
    answer = operator.post(ADD, {"inputs": "[2]", "identifier": "mine", "existing": "raise"})
    assert answer.status_code == 409
    assert f"/atp/instances/{taken.uuid}/" in answer.content.decode()
    again = operator.post(
        ADD, {"inputs": "[2]", "identifier": "mine", "existing": "return"}, follow=True
    )
    assert "had been enqueued before" in again.content.decode()
    assert queue.size() == 1


def test_inputs_that_are_too_large(operator, world, settings):
    settings.ATP = {**settings.ATP, "MAX_INPUTS_SIZE": 100}
    answer = operator.post(
        "/atp/types/tests.echo/enqueue/", {"inputs": json.dumps({"text": "x" * 200})}
    )
    assert answer.status_code == 422
    assert "the limit is 100 bytes" in errors(answer)


# Pausing, waiting, and what is refused


def transactional(full):
    """A transactional one that runs."""
    instance = row.enqueue(number=1)
    host = full.world.host(row.identifier)
    [case] = host.claim()
    host.move(case, Event.START)
    return instance


def test_a_transactional_type_is_not_offered_to_be_paused(full, operator):
    """G13: and whoever asks all the same is told why."""
    instance = transactional(full)
    address = f"/atp/instances/{instance.uuid}/"
    assert f"{address}pause/" not in operator.get(address).content.decode()
    answer = operator.post(f"{address}pause/")
    assert answer.status_code == 409
    assert "is transactional" in errors(answer)
    assert queue.task(instance).request == ""


def test_a_wish_to_pause_is_taken_back(full, operator):
    address = f"/atp/instances/{full[State.RUNNING].uuid}/"
    operator.post(f"{address}pause/")
    page = operator.get(address).content.decode()
    assert "asked to pause" in page
    assert 'id="resume"' in page
    told = operator.post(f"{address}resume/", follow=True).content.decode()
    assert "It runs on: the request to pause it is withdrawn." in told
    assert "asked to" not in told


def test_a_stoppable_one_is_stopped_at_once(full, operator):
    deaf = tasks_pause.deaf.enqueue(path="x", count=1)
    host = full.world.host("pause.deaf")
    [case] = host.claim()
    host.move(case, Event.START)
    answer = operator.post(f"/atp/instances/{deaf.uuid}/pause/", follow=True)
    assert "wherever its handler is" in answer.content.decode()


def test_what_has_paused_is_not_asked_to_any_more(full, operator):
    instance, move = full.claimed()
    move(Event.START)
    queue.pause(instance)
    move(Event.PAUSE)
    assert "asked to" not in operator.get(f"/atp/instances/{instance.uuid}/").content.decode()


def test_how_long_it_ran_without_its_pause(full, operator):
    now = full.world.store.now()
    instance, move = full.claimed()
    for event, age in ((Event.START, 60), (Event.PAUSE, 50), (Event.RESUME, 10)):
        move(event, time=now - timedelta(seconds=age))
    move(Event.FINISH, time=now)
    page = operator.get(f"/atp/instances/{instance.uuid}/").content.decode()
    assert "60 s, of which it ran 20 s" in page or "1 min, of which it ran 20 s" in page


def test_the_page_says_what_it_waits_for(full, operator):
    """By whom its Type is held, and why; what runs waits for nothing."""
    waiting = full[State.ACCEPTED]
    queue.hold("tests.add", reason=MARKUP, by="ann")
    page = operator.get(f"/atp/instances/{waiting.uuid}/").content.decode()
    assert "tests.add is held by ann (" in page
    assert MARKUP not in page
    assert "It is not due before" in page
    running = operator.get(f"/atp/instances/{full[State.RUNNING].uuid}/").content.decode()
    assert "Waits for" not in running


def test_the_list_of_types_says_what_is_held_and_limited(full, operator):
    queue.register(add, echo)
    queue.hold("tests.add", reason="r")
    queue.limit("tests.echo", max_running=2, rate="5/s")
    queue.limit("tests.echo", "books", rate="1/s")
    shown = operator.get("/atp/types/").content.decode()
    assert ">held</span>" in shown
    assert "2 at a time; 5/s, 1 at once" in shown
    assert "“books”: 1/s, 1 at once" in shown
    queue.hold(by="ann")
    assert "Everything is held by ann" in operator.get("/atp/types/").content.decode()


def test_the_overview_says_what_waits_for_a_limit(full, operator):
    queue.limit("tests.echo", max_running=1)
    echo.enqueue()
    assert "tests.echo is limited to 1 at once" in operator.get("/atp/").content.decode()


@pytest.mark.parametrize(("below", "status"), [("redrive/", 409), ("erase/", 404)])
def test_a_refusal_leads_back_to_the_instance(full, operator, below, status):
    address = f"/atp/instances/{full[State.RUNNING].uuid}/"
    answer = operator.post(address + below)
    assert answer.status_code == status
    assert f'id="concerned" href="{address}"' in answer.content.decode()


def test_a_refusal_leads_nowhere_that_is_not_there(full, operator):
    daemon = f"/atp/daemons/{full.host.uuid}/erase/"
    for address in ("/atp/instances/nonsense/redrive/", "/atp/instances/nonsense/", daemon):
        answer = operator.post(address)
        assert answer.status_code in (404, 405)
        assert 'id="concerned"' not in answer.content.decode()


def test_a_worker_whose_task_is_paused(full, operator):
    daemon = full.host.row
    daemon.workers[0]["paused"] = True
    daemon.save()
    for address in ("/atp/daemons/", f"/atp/daemons/{daemon.uuid}/"):
        assert ">PAUSED</span>" in operator.get(address).content.decode()
    told = operator.get("/atp/daemons/").content.decode()
    assert "0 of 2 workers busy, 1 with a paused task" in told
