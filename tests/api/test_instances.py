"""``instances``: the list, one of them, and waiting for its end."""

from datetime import datetime

import pytest
from django.db import connection, transaction

from atp import queue
from atp.api.waiting import THREAD_SLOTS
from atp.models import Instance
from atp.operations.table import allowed_operations
from atp.reports import documents
from atp.states import CLAIMED, Event, State

from ..app.tasks import add, echo
from ..helpers import Thread, wait_for
from .client import ROOT, fields, problem

ADDRESS = f"http://testserver{ROOT}"


def results(answer):
    return [each["uuid"] for each in answer.json()["results"]]


def test_one_instance(full, api):
    for state in State:
        instance = full[state]
        found = api.get(f"instances/{instance.uuid}").json()
        assert found["url"] == f"{ADDRESS}instances/{instance.uuid}"
        assert found["actions"] == [
            verb.name
            for verb in allowed_operations(instance, queue.task(instance))
            if verb.method == "POST"
        ]
        is_live = state not in (State.FINISHED, State.FAILED)
        assert (found["due_at"] is not None) == is_live, state
        assert (found["daemon"] is not None) == (state in CLAIMED), state
        for name in documents.INSTANCE_FIELDS:
            expected = getattr(instance, name)
            if isinstance(expected, datetime):
                assert datetime.fromisoformat(found[name]) == expected
            elif name in ("uuid", "type"):
                assert found[name] == str(expected)
            else:
                assert found[name] == expected


def test_pages_of_the_list_lead_on_and_back(full, api, django_assert_max_num_queries):
    """Newest first, whatever comes while somebody turns pages."""
    echo.enqueue_many([{}] * 20)
    with django_assert_max_num_queries(12):
        everything = results(api.get("instances"))
    newest_first = Instance.objects.order_by("-pk").values_list("uuid", flat=True)
    assert everything == [str(uuid) for uuid in newest_first]
    seen, pages, url = [], [], "instances?limit=5"
    while url:
        page = api.get(url)
        pages.append(page.json())
        seen += results(page)
        url = page.json()["next"]
        echo.enqueue()
    assert seen == everything
    assert pages[0]["previous"] is None
    assert "limit=5" in pages[1]["previous"]
    assert api.get(pages[2]["previous"]).json()["results"] == pages[1]["results"]


BAD = [
    # What each filter takes is shown in tests/web/test_filters.py.
    ("stat=FAILED", "invalid-parameter", "stat", "Did you mean 'state'"),
    ("state=FAILD", "invalid-selection", "state", "Did you mean 'FAILED'"),
    ("state=", "invalid-parameter", "state", "has no value"),
    ("state=FAILED&state=RUNNING", "invalid-parameter", "state", "more than once"),
    (f"collection={'x' * 201}", "invalid-parameter", "collection", "200"),
    ("limit=0", "invalid-parameter", "limit", "from 1 to 500"),
    ("limit=%D9%A3", "invalid-parameter", "limit", "whole number"),
    ("page=2", "invalid-page-key", None, "begin with its first page"),
    ("page=WyJhIiwiMjAzMC0wMS0wMSJd", "invalid-page-key", None, "begin with its first page"),
    ("format=json", "invalid-parameter", "format", "There is no parameter"),
]


def test_parameters(full, api):
    """G13."""
    failed = str(full[State.FAILED].uuid)
    # White space belongs to an identifier.
    named = str(echo.using(identifier=" a ").enqueue().uuid)
    for query, expected in (
        ("state=ACCEPTED&type=tests.add", [str(full[State.ACCEPTED].uuid)]),
        (f"uuid={failed}", [failed]),
        ("identifier=%20a%20", [named]),
        ("identifier=a", []),
    ):
        assert results(api.get(f"instances?{query}")) == expected, query
    for query, name, field, told in BAD:
        answer = api.get(f"instances?{query}")
        assert (answer.status_code, problem(answer)) == (400, name), query[:40]
        assert told in answer.json()["detail"], query[:40]
        assert fields(answer) == ([field] if field else []), query[:40]
    running = f"instances/{full[State.RUNNING].uuid}"
    for wait in ("-1", "60.1", "nan", "1_0", "1e9", "", "1,5"):
        answer = api.get(f"{running}?wait={wait}")
        assert (answer.status_code, fields(answer)) == (400, ["wait"]), wait
    for wait in ("0", "-0.0", "1e-300", "0.", "00.5"):
        assert api.get(f"{running}?wait={wait}").status_code == 200, wait


def test_what_is_no_uuid(api):
    """G13."""
    digits = "00000000000070008000000000000000"
    for uuid in ("x", digits, "%7B00000000-0000-7000-8000-000000000000%7D"):
        for part in ("", "/log", "/inputs", "/response", "/files", "/files/0"):
            answer = api.get(f"instances/{uuid}{part}")
            assert (answer.status_code, problem(answer)) == (404, "unknown-instance"), (uuid, part)


# Waiting


def test_nobody_waits_for_what_has_ended_or_in_a_transaction(full, api):
    """There it would never see the Instance end."""
    for state in (State.FINISHED, State.RUNNING):
        assert api.get(f"instances/{full[state].uuid}?wait=60").json()["state"] == state


@pytest.mark.django_db(transaction=True)
def test_wait_gives_up_in_time(world, api):
    instance = echo.enqueue()
    assert api.get(f"instances/{instance.uuid}?wait=0.05").json()["state"] == "ACCEPTED"


@pytest.mark.django_db(transaction=True)
def test_wait_answers_when_it_has_ended(full, api, monkeypatch):
    """Also where the project puts every request into a transaction."""
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    instance, move = full.claimed()
    move(Event.START)

    def work():
        wait_for(lambda: len(THREAD_SLOTS))
        move(Event.FINISH)

    worker = Thread(work)
    found = api.get(f"instances/{instance.uuid}?wait=60").json()
    worker.result()
    assert found["state"] == "FINISHED"
    # What failed leaves nothing behind there.
    before, body = Instance.objects.count(), [{"type": "tests.echo"}, {"type": "tests.add"}]
    assert api.post("instances", body).status_code == 422
    assert Instance.objects.count() == before
    assert api.post("instances", body[:1]).status_code == 201


@pytest.mark.django_db(transaction=True)
def test_an_instance_that_is_removed_meanwhile(world, api):
    instance = add.enqueue(1)

    def work():
        wait_for(lambda: len(THREAD_SLOTS))
        with transaction.atomic():  # nobody sees it cancelled, and not yet removed
            queue.delete(instance, cancel=True)

    worker = Thread(work)
    answer = api.get(f"instances/{instance.uuid}?wait=60")
    worker.result()
    assert (answer.status_code, problem(answer)) == (404, "unknown-instance")
