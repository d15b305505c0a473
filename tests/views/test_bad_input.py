"""Invalid addresses return a 4xx status and an explanation (G13)."""

from unittest.mock import Mock

from django.db import OperationalError

from atp.reports import overview
from atp.states import State

from .pages import check_page

ABSENT = "01a1f91a-b88b-777b-9eec-f82e434b47a3"


BAD = [
    ("/atp/instances/?state=RUNING", 400, "Did you mean &#x27;RUNNING&#x27;"),
    ("/atp/instances/?uuid=zz", 400, "first 8 digits"),
    ("/atp/instances/?page=zz", 400, "not a page key"),
    ("/atp/instances/?stat=FAILED", 400, "Did you mean &#x27;state&#x27;"),
    ("/atp/instances/?collection=%00", 400, "Null characters"),
    ("/atp/instances/zz/", 404, "There is no Instance zz"),
    (f"/atp/instances/{ABSENT}/", 404, ABSENT),
    (f"/atp/instances/{ABSENT}/files/0", 404, ABSENT),
    ("/atp/types/tests.ecko/", 404, "Did you mean &#x27;tests.echo&#x27;"),
    ("/atp/types/atp.delete/enqueue/", 404, "belongs to ATP"),
    ("/atp/types/atp.cancel/schedule/", 404, "belongs to ATP"),
    ("/atp/types/tests.echo/enqueue/?like=zz", 404, "There is no Instance zz"),
    ("/atp/types/tests.echo/enqueue/?lke=zz", 400, "Did you mean &#x27;like&#x27;"),
    ("/atp/daemons/zz/", 404, "There is no daemon zz"),
    (f"/atp/daemons/{ABSENT}/", 404, "it has ended, or never existed"),
    *((f"/atp/graphs/nonsense/{below}", 404, "") for below in ("", "nodes/", "graph.mmd")),
    ("/atp/?colour=red", 400, "no parameter &#x27;colour&#x27;"),
]


def test_invalid_addresses_return_a_4xx_status_with_an_explanation(full, operator):
    for address, status, told in BAD:
        check_page(operator.get(address), told, status=status)
    for page in ("", "log/"):
        address = f"/atp/instances/{full[State.FINISHED].uuid}/{page}"
        assert operator.get(f"{address}?page=WyJhIiwxLDJd").status_code == 400


def test_a_database_failure_returns_503_without_details(full, operator, monkeypatch):
    """The page shows no traceback and no driver message (G14), even if the login fails."""
    fail = Mock(side_effect=OperationalError("server at 10.0.0.7 failed for user secret"))
    monkeypatch.setattr(overview, "overview", fail)
    answers = [operator.get("/atp/")]
    monkeypatch.setattr("django.contrib.auth.get_user", fail)
    monkeypatch.setattr("django.contrib.auth.middleware.auth.get_user", fail)
    answers += [operator.get(path) for path in ("/atp/", "/atp/types/tests.echo/enqueue/")]
    for answer in answers:
        check_page(answer, "does not answer", lacks=["secret"], status=503)
    assert operator.get("/atp/", headers={"HX-Request": "true"}).status_code == 503
