"""The API accepts strict JSON only, and returns JSON whatever text it contains (G13)."""

import io
import json
import re

import pytest
from django.core.exceptions import RequestDataTooBig
from django.test import RequestFactory, override_settings

from atp.api.problems import JSONParser, JSONRenderer

from .client import refusal

JSON = "application/json"

BAD = [
    (b"", JSON, 400, "has no body"),
    (b"{", JSON, 400, "not JSON"),
    (b"\xef\xbb\xbf{}", JSON, 400, "not JSON"),
    (b'{"type": "a", "type": "b"}', JSON, 400, "occurs twice"),
    (b'{"priority": NaN}', JSON, 400, "not a JSON value"),
    (b"[" * 100_000, JSON, 400, "not JSON"),
    (b"null", JSON, 422, "JSON object"),
    (b'"\xff"', JSON, 400, "not UTF-8"),
    ('{"a": "ü"}'.encode("latin-1"), f"{JSON}; charset=latin-1", 415, "latin-1"),
    ("{}".encode("utf-16"), JSON, 400, "not UTF-8"),
    (b"{}", "text/plain", 415, "text/plain"),
    (b"{}", "*/*", 415, "not application/json"),
    (b"{}", "application/merge-patch+json", 415, "not application/json"),
    (b"{}", "a" * 10_000, 415, "not application/json"),
    (b"--x--", "multipart/form-data; boundary=x", 415, "not application/json"),
]


def test_bodies_that_are_not_strict_json_are_rejected(full, api):
    """The error text is ATP's own; the content type is compared without regard to case."""
    before = full.world.snapshot()
    for data, content_type, status, told in BAD:
        answer = api.call("POST", "instances", data, content_type)
        assert answer.status_code == status, (data[:20], content_type[:30])
        assert told in answer.json()["detail"], (data[:20], content_type[:30])
        assert not re.search("codec|recursion", answer.json()["detail"])
    assert full.world.snapshot() == before
    for content_type in (f"{JSON}; charset=UTF-8", "Application/JSON"):
        answer = api.call("POST", "instances", b'{"type": "tests.echo"}', content_type)
        assert answer.status_code == 201


def test_a_body_longer_than_its_content_length_is_rejected():
    request = RequestFactory().post("/", b"{}", JSON)
    request.META["CONTENT_LENGTH"] = "2"
    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=10), pytest.raises(RequestDataTooBig):
        JSONParser().parse(io.BytesIO(b" " * 11), JSON, {"request": request})


def test_a_request_that_does_not_accept_json_gets_406(api):
    for accept in ("*/*", "application/*", "text/html, application/json;q=0.5"):
        assert api.get("types", accept=accept).status_code == 200
    for accept in ("text/html", "nonsense", "", "a/b;" * 5000, "text/plain;a*=x'y'z"):
        assert refusal(api.get("types", accept=accept)) == (406, "not-acceptable"), accept[:20]
    for path, status in (("types", 200), ("nothing", 404)):
        assert api.get(path, accept="application/problem+json").status_code == status


def test_the_renderer_round_trips_any_text():
    text = "ü \ud800 \x00\x1b \u2028 </script> 😀"
    rendered = JSONRenderer().render({"a": text})
    assert json.loads(rendered.decode()) == {"a": text}
