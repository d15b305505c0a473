"""Errors as problem documents, with the types that OGC API – Processes defines."""

from __future__ import annotations

from typing import Any

from rest_framework.response import Response

from ..api.problems import JSON, PROBLEM, URN, ProblemError, problem_response
from ..text import shorten
from ..web.problems import Problem

EXCEPTIONS = "http://www.opengis.net/def/exceptions/ogcapi-processes-1/1.0/"
# The problems for which the standard has a type.
_STANDARD = ("no-such-process", "no-such-job", "result-not-ready")
# The statuses of the standard where the API of ATP has others.
_STATUSES = {"too-large": 413}


def no_such_process(identifier: str, hint: str = "") -> ProblemError:
    return _missing("no-such-process", "There is no such process", identifier, hint)


def no_such_job(job: str) -> ProblemError:
    return _missing("no-such-job", "There is no such job", job)


def no_such_output(output: str, hint: str = "") -> ProblemError:
    return _missing("no-such-output", "The job has no such output", output, hint)


def not_ready(status: str) -> ProblemError:
    detail = f"The job is {status}. It has results as soon as it is successful."
    return ProblemError(
        Problem(
            status=404,
            name="result-not-ready",
            title="The results are not there yet",
            detail=detail,
        )
    )


def job_failed(name: str, detail: str) -> ProblemError:
    return ProblemError(Problem(status=500, name=name, title="The job has failed", detail=detail))


def job_dismissed() -> ProblemError:
    return ProblemError(
        Problem(
            status=410,
            name="job-dismissed",
            title="The job was dismissed",
            detail="A job that was dismissed has no results.",
        )
    )


def _missing(name: str, title: str, named: str, hint: str = "") -> ProblemError:
    detail = f"{title}: {shorten(named)!r}.{hint}"
    return ProblemError(Problem(status=404, name=name, title=title, detail=detail))


def response_of(error: Exception, context: dict[str, Any]) -> Response:
    """Return the response to an exception; REST framework calls this in all views.

    The official test suite accepts no ``application/problem+json``, so only a client that asks for
    it gets it.
    """
    response = problem_response(error, context)
    document = response.data
    name = document["type"].removeprefix(URN)
    if name in _STANDARD:
        document["type"] = EXCEPTIONS + name
    status = _STATUSES.get(name, 400 if response.status_code == 422 else response.status_code)
    response.status_code = document["status"] = status
    accepted = context["request"].headers.get("Accept", "")
    response.content_type = PROBLEM if PROBLEM in accepted else JSON
    return response
