"""The OpenAPI document of the demo, and the page that shows it."""

import json
import os
import re
import subprocess
import sys

import pytest

import atp

from .. import environment

SCRIPT = """
import json
import django
django.setup()
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from django.core.management import call_command
from django.test import Client

call_command("migrate", verbosity=0)
login = {"HTTP_HOST": "localhost"}
nobody, somebody = Client(**login), Client(**login)
somebody.force_login(User.objects.create_user("reader"))

def get(client, path):
    answer = client.get(path)
    return [answer.status_code, answer.headers["Content-Type"], answer.content.decode()]

call_command("spectacular", "--validate", "--fail-on-warn", "--file", "openapi.yaml")
page = get(somebody, "/api/")
told = {
    "nobody": [get(nobody, path)[0] for path in ("/api/", "/api/schema")],
    "page": page,
    "script": get(somebody, "/api/?script="),
    "schema": get(somebody, "/api/schema"),
    "static": {},
}
import re
for path in re.findall(r'(?:src|href)="/static/([^"]+)"', page[2]):
    told["static"][path] = finders.find(path) is not None
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What the demo answers, on a database of its own."""
    folder = tmp_path_factory.mktemp("demo")
    own = {
        "DEMO_DIR": str(folder),
        "DJANGO_SETTINGS_MODULE": "demo_project.settings",
        "PYTHONPATH": str(environment.ROOT),
    }
    inherited = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=inherited | own,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_nothing_without_a_login(told):
    """G14: the page leads to the login, the document is refused."""
    assert told["nobody"] == [302, 403]


def test_the_document(told):
    status, content_type, text = told["schema"]
    assert (status, content_type) == (200, "application/vnd.oai.openapi+json")
    document = json.loads(text)
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == atp.__version__
    assert [server["url"] for server in document["servers"]] == ["/"]
    assert all(path.startswith("/atp/api/") for path in document["paths"])


def test_the_page_has_no_script_of_its_own(told):
    """All comes from files, and from nowhere else."""
    status, _, text = told["page"]
    assert status == 200
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 3
    assert all("src=" in attributes and not body.strip() for attributes, body in scripts)
    assert "//" not in "".join(re.findall(r'(?:src|href)="([^"]+)"', text))
    assert len(told["static"]) == 4
    assert all(told["static"].values())
    assert told["script"][1] == "application/javascript"
