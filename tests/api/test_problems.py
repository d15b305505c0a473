"""Errors as RFC 9457 has them."""

from unittest.mock import Mock

from django.db import OperationalError
from django.http import UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from rest_framework import exceptions as rest
from rest_framework.throttling import BaseThrottle

from atp.api import problems
from atp.api.resources import TypeViewSet
from atp.web.problems import MEANINGS

from .client import check_problem, problem


class Teapot(rest.APIException):
    """One that a project's own way to log in may raise."""

    status_code = 418
    default_code = "short_and_stout"
    default_detail = "I am a teapot."


def test_whatever_is_raised(api, monkeypatch):
    """What the kinds of Django are is shown in tests/web/test_problems.py."""
    for error, status, name in (
        (rest.ParseError("x"), 400, "bad-request"),
        (rest.UnsupportedMediaType("x"), 415, "unsupported-media-type"),
        (UnreadablePostError("x"), 400, "bad-request"),
        (MultiPartParserError("x"), 400, "bad-request"),
        (OperationalError("host=db.example"), 503, "no-database"),
        (Teapot(), 418, "short-and-stout"),
        (rest.ValidationError({"a": ["b"]}), 400, "invalid"),
    ):
        raising = Mock(side_effect=error)
        monkeypatch.setattr("atp.api.resources.documents.types", raising)
        answer = api.client.get("/atp/api/types")
        assert (answer.status_code, problem(answer)) == (status, name)
        check_problem(answer)
        assert "example" not in answer.content.decode()


def test_a_throttle_says_how_long(api, monkeypatch):
    class Never(BaseThrottle):
        def allow_request(self, request, view):
            return False

        def wait(self):
            return 12.3

    monkeypatch.setattr(TypeViewSet, "throttle_classes", (Never,))
    answer = api.get("types/%C3%BC%20%3F")
    assert (answer.status_code, problem(answer)) == (429, "throttled")
    # The path is a reference.
    assert answer.json()["instance"] == "/atp/api/types/%C3%BC%20%3F"
    assert answer.headers["Retry-After"] == "13"


def test_names_are_unique_for_a_meaning():
    """Each name has one status and title, wherever it comes from."""
    own = (problems.PARAMETER, problems.BODY, problems.PRECONDITION, problems.FAULT)
    own = [(problem.status, problem.name, problem.title) for problem in own]
    told = {}
    for status, name, title in [*(m[1:] for m in (*MEANINGS, *problems.MEANINGS)), *own]:
        assert told.setdefault(name, (status, title)) == (status, title), name
