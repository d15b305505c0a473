"""``instances``: the list, one of them, and waiting for its end."""

from datetime import datetime

import pytest
from django.db import connection, transaction

from atp import queue
from atp.api.waiting.slots import IN_THREADS
from atp.models import Instance
from atp.reports import documents
from atp.states import Event, State
from atp.verbs.table import allowed

from ..app.tasks import add, echo
from ..helpers import Thread, wait_for
from ..populated import HOSTILE, MARKUP
from .client import ROOT, fields, problem

ADDRESS = f"http://testserver{ROOT}"


def results(answer):
    return [each["uuid"] for each in answer.json()["results"]]


@pytest.mark.parametrize("state", State)
def test_one_instance(full, api, state):
    instance = full[state]
    found = api.get(f"instances/{instance.uuid}").json()
    assert found["url"] == f"{ADDRESS}instances/{instance.uuid}"
    assert found["actions"] == [
        verb.name for verb in allowed(instance, queue.task(instance)) if verb.method == "POST"
    ]
    for name in documents.INSTANCE_FIELDS:
        expected = getattr(instance, name)
        if isinstance(expected, datetime):
            assert datetime.fromisoformat(found[name]) == expected
        elif name in ("uuid", "type"):
            assert found[name] == str(expected)
        else:
            assert found[name] == expected


def test_the_list_is_newest_first(full, api):
    listed = results(api.get("instances"))
    newest_first = Instance.objects.order_by("-pk").values_list("uuid", flat=True)
    assert listed == [str(uuid) for uuid in newest_first]


def test_pages_lead_on_and_back(full, api):
    everything = results(api.get("instances"))
    seen, pages, url = [], [], "instances?limit=2"
    while url:
        page = api.get(url)
        pages.append(page.json())
        seen += results(page)
        url = page.json()["next"]
    assert seen == everything
    assert pages[0]["previous"] is None
    assert "limit=2" in pages[1]["previous"]
    assert api.get(pages[2]["previous"]).json()["results"] == pages[1]["results"]


def test_rows_that_come_while_somebody_turns_pages(full, api):
    everything = results(api.get("instances"))
    page = api.get("instances?limit=2").json()
    echo.enqueue()
    following = results(api.get(page["next"]))
    assert following == everything[2:4]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("state=FAILED", [State.FAILED]),
        ("state=RUNNING", [State.RUNNING]),
        ("state=ACCEPTED&type=tests.add", [State.ACCEPTED]),
        ("reason=ERROR", [State.FAILED]),
        ("reason=FATAL", []),
        ("collection=books", [State.FAILED]),
        ("identifier=%3Cscript%3Ealert('x')%3C/script%3E", [State.FAILED]),
        ("identifier=other", []),
        ("type=tests.add", [State.ACCEPTED]),
    ],
)
def test_filters(full, api, query, expected):
    listed = results(api.get(f"instances?{query}"))
    assert listed == [str(full[state].uuid) for state in expected]


def test_by_uuid(full, api):
    uuid = str(full[State.FAILED].uuid)
    assert results(api.get(f"instances?uuid={uuid}")) == [uuid]
    assert uuid in results(api.get(f"instances?uuid={uuid[:8]}"))


def test_an_identifier_is_taken_as_it_is(full, api):
    """White space belongs to it."""
    named = echo.using(identifier=" a ").enqueue()
    assert results(api.get("instances?identifier=%20a%20")) == [str(named.uuid)]
    assert results(api.get("instances?identifier=a")) == []


BAD = [
    ("stat=FAILED", "invalid-parameter", "stat", "Did you mean 'state'"),
    ("state=FAILD", "invalid-selection", "state", "Did you mean 'FAILED'"),
    ("state=", "invalid-parameter", "state", "has no value"),
    ("state=FAILED&state=RUNNING", "invalid-parameter", "state", "more than once"),
    ("reason=STALLED", "invalid-selection", "reason", "STALE"),
    ("type=tests.ecko", "invalid-selection", "type", "Did you mean 'tests.echo'"),
    ("type=a%00b", "invalid-selection", "type", "registered"),
    ("identifier=a%00b", "invalid-selection", "identifier", "Null characters"),
    (f"collection={'x' * 201}", "invalid-parameter", "collection", "200"),
    ("uuid=zzz", "invalid-selection", "uuid", "neither a uuid"),
    ("limit=0", "invalid-parameter", "limit", "from 1 to 500"),
    ("limit=501", "invalid-parameter", "limit", "from 1 to 500"),
    ("limit=ten", "invalid-parameter", "limit", "whole number"),
    ("limit=1.0", "invalid-parameter", "limit", "whole number"),
    ("limit=%D9%A3", "invalid-parameter", "limit", "whole number"),
    (f"limit={'9' * 5000}", "invalid-parameter", "limit", "whole number"),
    ("page=2", "invalid-page-key", None, "begin with its first page"),
    ("page=", "invalid-parameter", "page", "has no value"),
    ("page=WyJhIiwiMjAzMC0wMS0wMSJd", "invalid-page-key", None, "begin with its first page"),
    ("format=json", "invalid-parameter", "format", "There is no parameter"),
]


@pytest.mark.parametrize(("query", "name", "field", "told"), BAD, ids=[b[0][:40] for b in BAD])
def test_bad_parameters(full, api, query, name, field, told):
    """G13."""
    answer = api.get(f"instances?{query}")
    assert (answer.status_code, problem(answer)) == (400, name)
    assert told in answer.json()["detail"]
    assert fields(answer) == ([field] if field else [])


@pytest.mark.parametrize(
    "uuid",
    ["x", "0", "00000000000070008000000000000000", "%7B00000000-0000-7000-8000-000000000000%7D"],
)
@pytest.mark.parametrize("part", ["", "/log", "/inputs", "/response", "/files", "/files/0"])
def test_what_is_no_uuid(api, uuid, part):
    """G13."""
    answer = api.get(f"instances/{uuid}{part}")
    assert (answer.status_code, problem(answer)) == (404, "unknown-instance")


def test_what_is_stored_stays_text(full, api):
    """G14: it is JSON, and nothing that a browser would take for anything else."""
    answer = api.get(f"instances/{full[State.FINISHED].uuid}")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json()["progress_message"] == MARKUP
    log = api.get(f"instances/{full[State.FINISHED].uuid}/log").json()["results"]
    assert HOSTILE in [record["message"] for record in log]


def test_a_list_takes_few_queries(full, api, django_assert_max_num_queries):
    for _ in range(20):
        echo.enqueue()
    with django_assert_max_num_queries(12):
        assert len(results(api.get("instances"))) > 20


# Waiting


def test_an_instance_that_has_ended_is_not_waited_for(full, api):
    found = api.get(f"instances/{full[State.FINISHED].uuid}?wait=60").json()
    assert found["state"] == "FINISHED"


def test_nobody_waits_in_a_transaction(full, api):
    """It would never see the Instance end."""
    found = api.get(f"instances/{full[State.RUNNING].uuid}?wait=60").json()
    assert found["state"] == "RUNNING"


@pytest.mark.django_db(transaction=True)
def test_wait_gives_up_in_time(world, api):
    instance = echo.enqueue()
    assert api.get(f"instances/{instance.uuid}?wait=0.05").json()["state"] == "ACCEPTED"
    assert api.get(f"instances/{instance.uuid}?wait=0").json()["state"] == "ACCEPTED"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("atomic", [False, True])
def test_wait_answers_when_it_has_ended(full, api, monkeypatch, atomic):
    """Also where the project puts every request into a transaction."""
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic)
    instance, move = full.claimed()
    move(Event.START)

    def work():
        wait_for(lambda: len(IN_THREADS))
        move(Event.FINISH)

    worker = Thread(work)
    found = api.get(f"instances/{instance.uuid}?wait=60").json()
    worker.result()
    assert found["state"] == "FINISHED"


@pytest.mark.django_db(transaction=True)
def test_an_instance_that_is_removed_meanwhile(world, api):
    instance = add.enqueue(1)

    def work():
        wait_for(lambda: len(IN_THREADS))
        with transaction.atomic():  # nobody sees it cancelled, and not yet removed
            queue.delete(instance, cancel=True)

    worker = Thread(work)
    answer = api.get(f"instances/{instance.uuid}?wait=60")
    worker.result()
    assert (answer.status_code, problem(answer)) == (404, "unknown-instance")


@pytest.mark.parametrize(
    "wait", ["-1", "60.1", "61", "nan", "inf", "1_0", "1e9", "soon", "", "1,5"]
)
def test_bad_waits(full, api, wait):
    """G13."""
    answer = api.get(f"instances/{full[State.RUNNING].uuid}?wait={wait}")
    assert (answer.status_code, fields(answer)) == (400, ["wait"])


@pytest.mark.parametrize("wait", ["0", "-0.0", "1e-300", "0.", "00.5"])
def test_good_waits(full, api, wait):
    assert api.get(f"instances/{full[State.RUNNING].uuid}?wait={wait}").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_atomic_requests_keep_nothing_of_what_failed(world, api, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    body = [{"type": "tests.echo"}, {"type": "tests.add"}]
    assert api.post("instances", body).status_code == 422
    assert not Instance.objects.exists()
    assert api.post("instances", body[:1]).status_code == 201
    assert Instance.objects.count() == 1
