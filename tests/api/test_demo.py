"""The OpenAPI document of the demo, and the page that displays it."""

import json
import os
import re

import atp

from .. import environment
from .client import run_script

SCRIPT = """
import json
import re
import django
django.setup()
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from django.core.management import call_command
from django.test import Client

for app in ("auth", "sessions"):
    call_command("migrate", app, verbosity=0, skip_checks=True)
login = {"HTTP_HOST": "localhost"}
nobody, somebody = Client(**login), Client(**login)
somebody.force_login(User.objects.create_user("reader"))

def get(client, path):
    answer = client.get(path)
    return [answer.status_code, answer.headers["Content-Type"], answer.content.decode()]

page = get(somebody, "/api/")
static = re.findall(r'(?:src|href)="/static/([^"]+)"', page[2])
told = {
    "nobody": [get(nobody, path)[0] for path in ("/api/", "/api/schema")],
    "page": page,
    "script": get(somebody, "/api/?script="),
    "schema": get(somebody, "/api/schema"),
    "static": {path: finders.find(path) is not None for path in static},
}
print(json.dumps(told))
"""


def test_the_demo_serves_its_schema_and_docs_page_only_after_a_login(tmp_path):
    """The page loads its scripts and styles from the demo's own static files (G14)."""
    own = {"DEMO_DIR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "demo_project.settings"}
    inherited = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    own["PYTHONPATH"] = str(environment.ROOT)
    told = run_script(SCRIPT, env=inherited | own)
    # The page leads to the login, the document is refused.
    assert told["nobody"] == [302, 403]
    status, content_type, text = told["schema"]
    assert (status, content_type) == (200, "application/vnd.oai.openapi+json")
    document = json.loads(text)
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == atp.__version__
    assert [server["url"] for server in document["servers"]] == ["/"]
    assert all(path.startswith("/atp/api/") for path in document["paths"])
    status, _, text = told["page"]
    assert status == 200
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 3
    assert all("src=" in attributes and not body.strip() for attributes, body in scripts)
    assert "//" not in "".join(re.findall(r'(?:src|href)="([^"]+)"', text))
    assert len(told["static"]) == 4
    assert all(told["static"].values())
    assert told["script"][1] == "application/javascript"
