"""A client of the API that checks every response for what all responses must have."""

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
    """Return the OpenAPI document of the API."""
    with patched_settings({"OAS_VERSION": "3.1.0"}):
        generated = SchemaGenerator().get_schema(request=None, public=True)
    return json.loads(json.dumps(generated, default=str))


@cache
def strict_components():
    """Return the components of the document, whose objects have no keys but those declared."""
    schemas = openapi()["components"]["schemas"]
    closed = {
        name: {"additionalProperties": False, **schema} if "properties" in schema else schema
        for name, schema in schemas.items()
    }
    return {**openapi()["components"], "schemas": closed}


def operations():
    """Yield path, method and operation of everything in the OpenAPI document."""
    for path, item in openapi()["paths"].items():
        for method, operation in item.items():
            yield path, method.upper(), operation


class Api:
    """A client that is logged in as a user, or not logged in."""

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
        """Send a request and return the response, which is checked against the OpenAPI document."""
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
    """Check a problem document (RFC 9457): its type, texts, and the status of the response."""
    if answer.request["REQUEST_METHOD"] == "HEAD":
        return
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["type"].startswith("urn:atp:problem:")
    texts = [problem["title"], problem["detail"]]
    texts += [error[name] for error in problem.get("errors", []) for name in ("field", "detail")]
    assert all(texts)


def check_by_schema(answer, method):
    """Check a response against what the OpenAPI document declares for its path."""
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
    schema = {**media["schema"], "components": strict_components()}
    Draft202012Validator(schema, format_checker=FormatChecker()).validate(answer.json())


def _operation(answer, method):
    route = re.sub(r"<str:(\w+)>", r"{\1}", answer.resolver_match.route)
    return openapi()["paths"].get(f"/{route}", {}).get(method.lower())


def problem(answer):
    """Return the name of the problem in a response."""
    assert answer.headers["Content-Type"] == PROBLEM, answer.content
    return answer.json()["type"].removeprefix("urn:atp:problem:")


def refusal(answer):
    """Return the status and the name of the problem in a response."""
    return answer.status_code, problem(answer)


def fields(answer):
    """Return the names of the fields in a problem."""
    return [error["field"] for error in answer.json().get("errors", [])]


def run(*command, **popen):
    """Run a program, which must succeed, and return its output."""
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=280, check=False, **popen
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_script(script, *arguments, env):
    """Run a Python script, which must succeed, and return the JSON that it prints."""
    return json.loads(run(sys.executable, "-c", script, *arguments, env=env))
