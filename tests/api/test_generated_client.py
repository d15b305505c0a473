"""The Python client that openapi-python-client makes of the OpenAPI document works as it is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.servers.basehttp import WSGIRequestHandler

from tests.helpers import DEADLINE

from .client import openapi

SCRIPT = Path(__file__).with_name("generated_client.py")
PASSWORD = "of the tests only"
# What each program prints that does its work with a generated client.
SEEN = {
    "new": [True, True, True],
    "state": "FINISHED",
    "bytes": [0, 1] * 3,
    "priority": 7,
    "removed": True,
    "pages": True,
}


def run(*command):
    """Return what a Python program prints; it has to succeed, and to warn of nothing."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """The folder with the package ``generated``."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "openapi.json").write_text(json.dumps(openapi()))
    (folder / "config.yaml").write_text("post_hooks: []\n")
    printed = run(
        *("-m", "openapi_python_client", "generate", "--meta", "none", "--fail-on-warning"),
        *("--path", folder / "openapi.json", "--config", folder / "config.yaml"),
        *("--output-path", folder / "generated"),
    )
    assert "will not be generated" not in printed
    return folder


def test_every_operation_is_generated(generated):
    made = {path.stem for path in generated.glob("generated/api/*/*.py")} - {"__init__"}
    operations = {op["operationId"] for item in openapi()["paths"].values() for op in item.values()}
    assert made == operations


@pytest.mark.timeout(300)
@pytest.mark.django_db(transaction=True)
def test_it_enqueues_follows_and_reads(generated, live_server, atpd, media, monkeypatch):
    """One and many, to the end; bytes, changes, deleting; and a list page by page."""
    monkeypatch.setattr(WSGIRequestHandler, "disable_nagle_algorithm", True)
    User.objects.create_superuser("program", password=PASSWORD)
    atpd("--type", "tests.*", "--type", "daemon.*").ready()
    printed = run(SCRIPT, generated, live_server.url, "program", PASSWORD)
    assert json.loads(printed) == SEEN
