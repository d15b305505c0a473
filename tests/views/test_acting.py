"""Buttons and forms for Instances: they perform an operation or say why they cannot."""

import json
import re
from datetime import timedelta
from decimal import Decimal

import pytest

from atp import queue
from atp.models import Inputs, Instance, Task
from atp.operations.table import INSTANCE, OPERATIONS, allowed_operations
from atp.states import Event, State
from tests.app import tasks_pause
from tests.app.tasks import add, echo, keyword
from tests.app.tasks_transactional import row

from ..populated import MARKUP
from .pages import check_page

ADD, KEYWORD = (f"/atp/types/tests.{name}/enqueue/" for name in ("add", "keyword"))


def errors(answer):
    """Return the error messages on a page."""
    found = re.findall(r'class="errors"[^>]*>(.*?)</(?:p|span|ul|pre)>', answer.content.decode())
    return " ".join(found)


def test_redrive_puts_an_instance_back_and_a_refused_action_links_to_it(full, operator):
    failed = f"/atp/instances/{full[State.FAILED].uuid}/"
    answer = operator.get(f"{failed}redrive/")
    assert (answer.status_code, answer["Allow"]) == (405, "POST, OPTIONS")
    answer = operator.post(f"{failed}redrive/", follow=True)
    assert answer.redirect_chain == [(failed, 302)]
    check_page(answer, "It is back in the queue.")
    running = f"/atp/instances/{full[State.RUNNING].uuid}/"
    for below, status in (("redrive/", 409), ("erase/", 404)):
        answer = operator.post(running + below)
        check_page(answer, f'id="concerned" href="{running}"', status=status)
    for address, status in (
        ("/atp/instances/nonsense/redrive/", 404),
        ("/atp/instances/nonsense/", 405),
        (f"/atp/daemons/{full.host.uuid}/erase/", 404),
    ):
        check_page(operator.post(address), lacks=['id="concerned"'], status=status)


def test_an_instance_redriven_after_the_page_was_loaded_is_not_deleted(full, operator):
    failed = full[State.FAILED]
    address = f"/atp/instances/{failed.uuid}/delete/"
    shown = dict(operator.get(address).context["hidden"])
    queue.redrive(failed)
    answer = operator.post(address, shown)
    check_page(answer, "It is cancelled first", status=409)
    assert "redriven it since" in errors(answer)
    assert full[State.FAILED].state == State.ACCEPTED
    # The page has told so now.
    assert operator.post(address, dict(answer.context["hidden"])).status_code == 302
    assert not Instance.objects.filter(pk=failed.pk).exists()


def test_cancel_asks_for_confirmation_only_if_a_daemon_holds_the_task(full, operator):
    waiting, running = full[State.ACCEPTED], full[State.RUNNING]
    check_page(operator.post(f"/atp/instances/{running.uuid}/cancel/"), 'name="sure"')
    assert Task.objects.get(instance=running).request == ""
    for instance in (waiting, running):
        address = f"/atp/instances/{instance.uuid}/cancel/"
        check_page(operator.post(address, {"sure": "yes"}, follow=True), "It is cancelled")
    assert full[State.ACCEPTED].reason == "CANCELLED"
    assert full[State.RUNNING].log.last().who.endswith("via page")
    shown = operator.get(f"/atp/instances/{running.uuid}/")
    check_page(shown, "asked to cancel", lacks=['id="cancel"', 'id="release"'])


@pytest.mark.slow
def test_the_page_offers_only_operations_that_the_state_allows(full, operator):
    """A request for another operation gets 409, names the state, and writes nothing (G6, G13)."""
    for state in State:
        instance, before = full[state], full.world.snapshot()
        possible = allowed_operations(instance, queue.task(instance))
        address = f"/atp/instances/{instance.uuid}/"
        shown = operator.get(address).content.decode()
        for name, verb in OPERATIONS[INSTANCE].items():
            assert (f"{address}{name}/" in shown) is (verb in possible), (state, name)
            if verb not in possible:
                given = {"sure": "yes"} | ({"due": "0s"} if name == "change" else {})
                answer = operator.post(f"{address}{name}/", given)
                assert answer.status_code == 409, (state, name)
                assert state in errors(answer), (state, name)
        assert full.world.snapshot() == before, state


def test_the_enqueue_form_passes_inputs_and_options(operator, world):
    """Omitted fields take the defaults of the Type."""
    operator.post(KEYWORD, {"inputs": '{"path": "a"}', "existing": "raise"})
    instance = Instance.objects.get()
    assert (instance.priority, instance.collection) == (5, "books")
    options = {"identifier": "mine", "existing": "return", "priority": "-7", "collection": "books"}
    times = {"run_after": "2h", "start_before": "2030-01-31T18:00"}
    answer = operator.post(ADD, {"inputs": "[1, 2, 3]", **options, **times})
    instance = Instance.objects.latest("pk")
    assert answer["Location"] == f"/atp/instances/{instance.uuid}/"
    assert instance.inputs.value == {"*": [1, 2, 3]}
    assert (instance.identifier, instance.priority, instance.collection) == ("mine", -7, "books")
    assert abs(instance.task.due_at - instance.created - timedelta(hours=2)) < timedelta(minutes=1)
    assert instance.start_before.isoformat() == "2030-01-31T18:00:00+00:00"


def test_enqueue_again_starts_with_the_same_inputs_and_options(operator, world):
    """This includes values that differ from the Type's defaults, and values that JSON lacks."""
    form = operator.get(KEYWORD).context["form"]
    # What has to be given is not there: null would be taken for it.
    assert json.loads(form.initial["inputs"]) == {"scale": 1.0}
    assert (form.initial["collection"], form.initial["priority"]) == ("books", 5)
    other = keyword.using(priority=9, collection="").enqueue(path=MARKUP)
    answer = operator.get(f"{KEYWORD}?like={other.uuid}")
    assert MARKUP not in answer.content.decode()
    again = answer.context["form"].initial
    assert json.loads(again["inputs"]) == {"path": MARKUP}
    operator.post(KEYWORD, {name: "" if value is None else value for name, value in again.items()})
    assert [(i.collection, i.priority) for i in Instance.objects.all()] == [("", 9)] * 2
    other = echo.enqueue(price=Decimal("1.10"))
    address = "/atp/types/tests.echo/enqueue/"
    form = operator.get(f"{address}?like={other.uuid}").context["form"]
    operator.post(address, {"inputs": form.initial["inputs"]})
    assert Inputs.objects.latest("pk").value == {"price": Decimal("1.10")}


# What options and inputs refuse is shown by tests/test_bad_input.py and tests/test_codec.py.
BAD = [
    ({"inputs": '{"first": 1, "first": 2}'}, 422, "occurs twice"),
    ({"inputs": "7"}, 422, "must be a JSON object"),
    ({}, 422, "required"),
    ({"inputs": '{"frist": 1}'}, 422, "Did you mean &#x27;first&#x27;"),
    ({"inputs": "[1]", "priority": "1000"}, 422, "from -100 to 100"),
    ({"inputs": "[1]", "start_before": "1h", "run_after": "2h"}, 422, "later than"),
    ({"inputs": "[1]", "existing": "perhaps"}, 422, "not one of the available choices"),
    ({"inputs": json.dumps(["x" * 2**20])}, 422, "the limit is"),
    ({"inputs": "[1]", "colection": "a"}, 400, "Did you mean &#x27;collection&#x27;"),
    ({"inputs": ["[1]", "[1]"]}, 400, ""),
]


def test_invalid_input_is_reported_and_nothing_is_written(operator, world):
    """The form keeps what the user typed (G13)."""
    for given, status, told in BAD:
        answer = operator.post(ADD, given)
        assert answer.status_code == status, given
        assert told in errors(answer), given
    answer = operator.post(ADD, {"inputs": '{"frist": 1}', "collection": "books"})
    check_page(answer, "{&quot;frist&quot;: 1}", 'value="books"', status=422)
    assert not Instance.objects.exists()


def test_a_duplicate_identifier_links_to_the_existing_instance(operator, world):
    taken = add.using(identifier="mine").enqueue(1)
    given = {"inputs": "[2]", "identifier": "mine"}
    answer = operator.post(ADD, given | {"existing": "raise"})
    check_page(answer, f"/atp/instances/{taken.uuid}/", status=409)
    again = operator.post(ADD, given | {"existing": "return"}, follow=True)
    check_page(again, "had been enqueued before")
    assert queue.size() == 1


def running(full, task_type, **inputs):
    """Return the address of a running Instance of the Type."""
    instance = task_type.enqueue(**inputs)
    host = full.world.host(task_type.identifier)
    [case] = host.claim()
    host.move(case, Event.START)
    return f"/atp/instances/{instance.uuid}/"


def test_a_transactional_type_has_no_pause_button(full, operator):
    address = running(full, row, number=1)
    check_page(operator.get(address), lacks=[f"{address}pause/"])
    answer = operator.post(f"{address}pause/")
    assert answer.status_code == 409
    assert "is transactional" in errors(answer)
    address = running(full, tasks_pause.deaf, path="x", count=1)
    check_page(operator.post(f"{address}pause/", follow=True), "wherever its handler is")


def test_a_pending_pause_can_be_withdrawn(full, operator):
    address = f"/atp/instances/{full[State.RUNNING].uuid}/"
    operator.post(f"{address}pause/")
    check_page(operator.get(address), "asked to pause", 'id="resume"')
    told = "It keeps running, because the command to pause it was withdrawn."
    check_page(operator.post(f"{address}resume/", follow=True), told, lacks=["asked to"])
    # What has paused is not asked to any more.
    instance, move = full.claimed()
    move(Event.START)
    queue.pause(instance)
    move(Event.PAUSE)
    check_page(operator.get(f"/atp/instances/{instance.uuid}/"), lacks=["asked to"])


def test_the_run_time_excludes_pauses(full, operator):
    now = full.world.store.now()
    instance, move = full.claimed()
    for event, age in ((Event.START, 60), (Event.PAUSE, 50), (Event.RESUME, 10)):
        move(event, time=now - timedelta(seconds=age))
    move(Event.FINISH, time=now)
    page = operator.get(f"/atp/instances/{instance.uuid}/").content.decode()
    assert "60 s, of which it ran 20 s" in page or "1 min, of which it ran 20 s" in page


def test_the_type_list_shows_gates_and_limits(full, operator):
    queue.register(add, echo)
    queue.hold("tests.add", reason=MARKUP)
    queue.limit("tests.echo", max_running=2, rate="5/s")
    queue.limit("tests.echo", "books", rate="1/s")
    check_page(operator.get("/atp/types/?name=tests.add"), ">held</span>", lacks=[MARKUP])
    limits = "2 at a time; 5/s, 1 at once", "“books”: 1/s, 1 at once"
    check_page(operator.get("/atp/types/?name=tests.echo"), *limits)
    queue.hold(by="ann")
    check_page(operator.get("/atp/types/"), "Everything is held by ann")
