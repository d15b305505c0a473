"""Addresses that lead nowhere: a status in the 400s and words that help (G13)."""

import pytest

from atp.models import Daemon
from atp.states import State

ABSENT = "01a1f91a-b88b-777b-9eec-f82e434b47a3"


@pytest.mark.parametrize(
    ("address", "status", "told"),
    [
        ("/atp/instances/?state=RUNING", 400, "Did you mean &#x27;RUNNING&#x27;"),
        ("/atp/instances/?reason=stall", 400, "Did you mean &#x27;STALE&#x27;"),
        ("/atp/instances/?type=tests.ecko", 400, "Did you mean &#x27;tests.echo&#x27;"),
        ("/atp/instances/?uuid=zz", 400, "first 8 digits"),
        ("/atp/instances/?page=zz", 400, "not a page key"),
        ("/atp/instances/?page=", 400, "not a page key"),
        ("/atp/instances/?stat=FAILED", 400, "Did you mean &#x27;state&#x27;"),
        ("/atp/instances/?state=FAILED&state=RUNNING", 400, "more than once"),
        ("/atp/instances/?collection=%00", 400, "Null characters"),
        ("/atp/instances/?collection=" + "x" * 201, 400, "at most 200"),
        ("/atp/instances/zz/", 404, "There is no Instance zz"),
        (f"/atp/instances/{ABSENT}/", 404, ABSENT),
        (f"/atp/instances/{ABSENT}/log/", 404, ABSENT),
        (f"/atp/instances/{ABSENT}/response", 404, ABSENT),
        (f"/atp/instances/{ABSENT}/files/0", 404, ABSENT),
        ("/atp/types/tests.ecko/", 404, "Did you mean &#x27;tests.echo&#x27;"),
        ("/atp/types/%00/", 404, "No Type"),
        ("/atp/types/tests.ecko/enqueue/", 404, "Did you mean"),
        ("/atp/types/atp.delete/enqueue/", 404, "belongs to ATP"),
        ("/atp/types/atp.cancel/schedule/", 404, "belongs to ATP"),
        ("/atp/types/tests.echo/enqueue/?like=zz", 404, "There is no Instance zz"),
        ("/atp/types/tests.echo/enqueue/?lke=zz", 400, "Did you mean &#x27;like&#x27;"),
        ("/atp/daemons/zz/", 404, "There is no daemon zz"),
        (f"/atp/daemons/{ABSENT}/", 404, "it has left, or never was"),
        ("/atp/?colour=red", 400, "no parameter &#x27;colour&#x27;"),
    ],
)
def test_it_is_told(address, status, told, full, operator):
    answer = operator.get(address)
    assert answer.status_code == status
    assert told in answer.content.decode()


@pytest.mark.parametrize("page", ["", "log/"])
def test_a_page_key_of_another_list(page, full, operator):
    answer = operator.get(f"/atp/instances/{full[State.FINISHED].uuid}/{page}?page=WyJhIiwxLDJd")
    assert answer.status_code == 400


def test_a_database_that_does_not_answer(full, operator, monkeypatch):
    """G14: neither a traceback nor the words of the driver."""
    from django.db import OperationalError

    from atp.reports import overview

    def fail(**kwargs):
        raise OperationalError("connection to server at 10.0.0.7 failed for user secret")

    monkeypatch.setattr(overview, "overview", fail)
    answer = operator.get("/atp/")
    assert answer.status_code == 503
    assert "does not answer" in answer.content.decode()
    assert "secret" not in answer.content.decode()


def test_a_daemon_that_wrote_nonsense(full, operator):
    Daemon.objects.update(
        workers=[{"worker": 0, "pid": 1, "instance": "no uuid", "since": "never"}]
    )
    assert operator.get("/atp/daemons/").status_code == 200
