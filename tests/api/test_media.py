"""Strict JSON in, and JSON out whatever is in it (G13)."""

import io
import json

import pytest
from django.test import RequestFactory, override_settings

from atp.api.media import JSONParser, JSONRenderer
from atp.payload.tagged_json import MAX_DEPTH

from .client import problem

JSON = "application/json"

BAD = [
    (b"", JSON, 400, "body is missing"),
    (b"{", JSON, 400, "not JSON"),
    (b"{} {}", JSON, 400, "not JSON"),
    (b"'type'", JSON, 400, "not JSON"),
    (b"\xef\xbb\xbf{}", JSON, 400, "not JSON"),
    (b'{"type": "a", "type": "b"}', JSON, 400, "stands twice"),
    (b'{"priority": NaN}', JSON, 400, "no JSON value"),
    (b"[-Infinity]", JSON, 400, "no JSON value"),
    (b"[" * 100_000, JSON, 400, "not JSON"),
    (b"null", JSON, 422, "JSON object"),
    (b"9" * 5000, JSON, 400, "not JSON"),
    (b'"\xff"', JSON, 400, "not UTF-8"),
    ('{"a": "ü"}'.encode("latin-1"), f"{JSON}; charset=latin-1", 415, "latin-1"),
    ("{}".encode("utf-16"), JSON, 400, "not UTF-8"),
    (b"{}", "text/plain", 415, "text/plain"),
    (b"{}", "application/xml", 415, "application/xml"),
    (b"{}", "application/*", 415, "application/*"),
    (b"{}", "*/*", 415, "not application/json"),
    (b"{}", "nonsense", 415, "not application/json"),
    (b"{}", "application/merge-patch+json", 415, "not application/json"),
    (b"{}", "a" * 10_000, 415, "not application/json"),
    (b"type=tests.echo", "application/x-www-form-urlencoded", 415, "not application/json"),
    (b"--x--", "multipart/form-data; boundary=x", 415, "not application/json"),
]


@pytest.mark.parametrize(
    ("data", "content_type", "status", "told"), BAD, ids=[f"{b[0][:20]} {b[1][:30]}" for b in BAD]
)
def test_what_cannot_be_read_is_refused(full, api, data, content_type, status, told):
    before = full.world.snapshot()
    answer = api.call("POST", "instances", data, content_type)
    assert answer.status_code == status
    assert told in answer.json()["detail"]
    assert full.world.snapshot() == before


@pytest.mark.parametrize("content_type", [JSON, f"{JSON}; charset=UTF-8", "Application/JSON"])
def test_what_can_be_read(world, api, content_type):
    answer = api.call("POST", "instances", b'{"type": "tests.echo"}', content_type)
    assert answer.status_code == 201


def test_a_body_that_is_too_large(full, api):
    before = full.world.snapshot()
    answer = api.post("instances", {"type": "tests.echo", "inputs": {"a": "x" * 3_000_000}})
    assert (answer.status_code, problem(answer)) == (413, "request-too-large")
    assert full.world.snapshot() == before


def test_a_body_that_is_larger_than_it_says(full, api):
    request = RequestFactory().post("/", b"{}", JSON)
    request.META["CONTENT_LENGTH"] = "2"
    from django.core.exceptions import RequestDataTooBig

    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=10), pytest.raises(RequestDataTooBig):
        JSONParser().parse(io.BytesIO(b" " * 11), JSON, {"request": request})


@pytest.mark.parametrize("depth", [99, 300, 450, 480, 900, 990])
def test_depth_is_no_fault(full, api, depth):
    """However deep it is where it is read, and where it is written."""
    before = full.world.snapshot()
    inputs = b'{"a": ' * depth + b"1" + b"}" * depth
    body = b'{"type": "tests.echo", "inputs": %s}' % inputs
    answer = api.call("POST", "instances", body)
    if depth < MAX_DEPTH:
        assert answer.status_code == 201
    else:
        assert answer.status_code in (400, 422)
        assert full.world.snapshot() == before


@pytest.mark.parametrize(
    "accept", ["*/*", "application/*", "application/json", "text/html, application/json;q=0.5"]
)
def test_accepted(api, accept):
    assert api.get("types", accept=accept).status_code == 200


@pytest.mark.parametrize(
    "accept",
    ["text/html", "application/xml", "nonsense", "", "a/b;" * 5000, "text/plain;a*=x'y'z"],
)
def test_not_accepted(api, accept):
    answer = api.get("types", accept=accept)
    assert (answer.status_code, problem(answer)) == (406, "not-acceptable")


@pytest.mark.parametrize("text", ["ü", "\ud800", "\x00\x1b", "\u2028", "</script>", "😀"])
def test_any_text_can_be_told(text):
    rendered = JSONRenderer().render({"a": text})
    assert json.loads(rendered.decode()) == {"a": text}
