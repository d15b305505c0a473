"""The problem that each exception becomes in the API and on the pages."""

import pytest
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, InterfaceError, OperationalError, ProgrammingError
from django.http import Http404

from atp import exceptions
from atp.exceptions import ATPError
from atp.web.problems import problem_of

# What cannot come from a request: it is raised while code is loaded, by waiting, or to handlers.
NOT_FROM_A_REQUEST = {
    "ATPError",
    "DoubledStep",
    "FolderRefused",
    "InvalidStep",
    "InvalidType",
    "LeaseLost",
    "NotMigrated",
    "NoResult",
    "PausedInTransaction",
    "StepInTransaction",
    "TaskGone",
    "TypeInUse",
    "UncheckedStep",
    "UnusableResult",
    "WaitInTransaction",
    "WaitTimeout",
}
ERRORS = [
    thing
    for name, thing in sorted(vars(exceptions).items())
    if isinstance(thing, type) and issubclass(thing, ATPError) and name not in NOT_FROM_A_REQUEST
]


def test_every_request_error_becomes_a_4xx_problem():
    for error in ERRORS:
        problem = problem_of(error("it says so"))
        assert 400 <= problem.status < 500, error
        assert problem.detail == "it says so"
        assert problem.title
        assert problem.name == problem.name.lower()


@pytest.mark.django_db
def test_a_database_error_becomes_a_503_problem_but_a_bug_becomes_none():
    # psycopg2 says no more than DatabaseError of a connection that is lost while it waits.
    for error in (OperationalError, InterfaceError, DatabaseError):
        problem = problem_of(error("host=10.0.0.7 password=secret"))
        assert problem.status == 503, error
        assert "secret" not in problem.detail
    assert problem_of(Http404("no")).status == 404
    assert problem_of(PermissionDenied("no")).status == 403
    assert problem_of(ZeroDivisionError()) is None
    assert problem_of(ProgrammingError("no such column")) is None


def test_a_problem_document_contains_the_name_of_the_invalid_field():
    error = exceptions.InvalidInputs("no", argument="azimut")
    assert problem_of(error).errors == (("inputs.azimut", "no"),)
    chosen = exceptions.InvalidSelection("no", errors=[("state", "wrong")])
    assert problem_of(chosen).errors == (("state", "wrong"),)
