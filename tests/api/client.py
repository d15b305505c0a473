"""Calling the API as a client does, with what holds for every answer looked at each time."""

import json
import re
import subprocess
import sys
from functools import cache

from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.settings import patched_settings
from jsonschema import Draft202012Validator, FormatChecker

ROOT = "/atp/api/"
PROBLEM = "application/problem+json"


@cache
def openapi():
    """The OpenAPI document of the API."""
    with patched_settings({"OAS_VERSION": "3.1.0"}):
        generated = SchemaGenerator().get_schema(request=None, public=True)
    return json.loads(json.dumps(generated, default=str))


def operations():
    """Yield path, method and operation of everything that the document declares."""
    for path, item in openapi()["paths"].items():
        for method, operation in item.items():
            yield path, method.upper(), operation


class Api:
    """A client for a user, or for nobody."""

    def __init__(self, user=None, **extra):
        # As a server that has threads.
        self.client = Client(**{"wsgi.multithread": True, **extra})
        if user is not None:
            self.client.force_login(user)

    def get(self, path, **headers):
        return self.call("GET", path, **headers)

    def post(self, path, document=None, **headers):
        return self.send("POST", path, document, **headers)

    def send(self, method, path, document=None, **headers):
        data = b"" if document is None else json.dumps(document).encode()
        return self.call(method, path, data, **headers)

    def call(self, method, path, data=b"", content_type="application/json", **headers):
        """Return the answer, whose documents are checked by the schema."""
        address = path if path.startswith(("/", "http")) else f"{ROOT}{path}"
        answer = self.client.generic(method, address, data, content_type, headers=headers)
        answer.body = b"".join(answer)  # a file is closed when it has been read
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "no-store" in answer.headers["Cache-Control"]
        if answer.headers["Content-Type"] == PROBLEM:
            check_problem(answer)
        else:
            assert answer.status_code in (200, 201, 202, 503)
        if method != "HEAD":
            check_by_schema(answer, method)
        return answer


def check_problem(answer):
    """RFC 9457: the kind of problem, and the same status as the answer itself."""
    if answer.request["REQUEST_METHOD"] == "HEAD":
        return
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["type"].startswith("urn:atp:problem:")
    texts = [problem["title"], problem["detail"]]
    texts += [error[name] for error in problem.get("errors", []) for name in ("field", "detail")]
    assert all(texts)


def check_by_schema(answer, method):
    """What the OpenAPI document declares of a path is what comes."""
    operation = _operation(answer, method)
    if operation is None:
        assert answer.status_code in (401, 403, 404, 405), answer.content
        return
    declared = operation["responses"].get(str(answer.status_code))
    assert declared is not None, f"{answer.status_code} is not declared: {answer.content}"
    content_type = answer.headers["Content-Type"]
    if "*/*" in declared["content"]:
        return
    media = declared["content"][content_type.partition(";")[0]]
    if "json" not in content_type:
        return
    schema = {**media["schema"], "components": openapi()["components"]}
    Draft202012Validator(schema, format_checker=FormatChecker()).validate(answer.json())


def _operation(answer, method):
    route = re.sub(r"<str:(\w+)>", r"{\1}", answer.resolver_match.route)
    return openapi()["paths"].get(f"/{route}", {}).get(method.lower())


def problem(answer):
    """The name of the problem that an answer tells of."""
    assert answer.headers["Content-Type"] == PROBLEM, answer.content
    return answer.json()["type"].removeprefix("urn:atp:problem:")


def fields(answer):
    """The fields that a problem names."""
    return [error["field"] for error in answer.json().get("errors", [])]


def run_script(script, *arguments, env):
    """Return what a Python script prints, which is JSON; it has to succeed."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
