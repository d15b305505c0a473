"""Errors have the format of RFC 9457."""

from unittest.mock import Mock

from django.db import OperationalError
from django.http import UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from rest_framework import exceptions as rest
from rest_framework.throttling import BaseThrottle

from atp.api.resources import TypeViewSet

from .client import check_problem, refusal


class Teapot(rest.APIException):
    """An exception that an authentication class of the project might raise."""

    status_code = 418
    default_code = "short_and_stout"
    default_detail = "I am a teapot."


def test_each_exception_becomes_its_problem_document(api, monkeypatch):
    """tests/web/test_problems.py tests the exceptions of Django."""
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
        assert refusal(answer) == (status, name)
        check_problem(answer)
        assert "example" not in answer.content.decode()


class Never(BaseThrottle):
    def allow_request(self, request, view):
        return False

    def wait(self):
        return 12.3


def test_a_throttled_request_is_answered_with_a_retry_after_header(api, monkeypatch):
    monkeypatch.setattr(TypeViewSet, "throttle_classes", (Never,))
    answer = api.get("types/%C3%BC%20%3F")
    assert refusal(answer) == (429, "throttled")
    # The path is a reference.
    assert answer.json()["instance"] == "/atp/api/types/%C3%BC%20%3F"
    assert answer.headers["Retry-After"] == "13"
