"""The Python client that openapi-python-client makes of the OpenAPI document works as it is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from tests.helpers import DEADLINE

from .client import openapi, operations

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


def run(*command, cwd=None):
    """Return what a program prints, with its errors; it has to succeed."""
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture
def generated(tmp_path):
    """The folder with the package ``generated``."""
    (tmp_path / "openapi.json").write_text(json.dumps(openapi()))
    (tmp_path / "config.yaml").write_text("post_hooks: []\n")
    printed = run(
        *(sys.executable, "-m", "openapi_python_client", "generate", "--fail-on-warning"),
        *("--meta", "none", "--config", tmp_path / "config.yaml"),
        *("--path", tmp_path / "openapi.json", "--output-path", tmp_path / "generated"),
    )
    assert "will not be generated" not in printed
    return tmp_path


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.django_db(transaction=True)
def test_it_enqueues_follows_and_reads(generated, live_server, atpd, media):
    """One and many, to the end; bytes, changes, deleting; and a list page by page."""
    made = {path.stem for path in generated.glob("generated/api/*/*.py")} - {"__init__"}
    assert made == {operation["operationId"] for _, _, operation in operations()}
    User.objects.create_superuser("program", password=PASSWORD)
    atpd("--type", "tests.*", "--type", "daemon.*").ready()
    printed = run(sys.executable, SCRIPT, generated, live_server.url, "program", PASSWORD)
    assert json.loads(printed) == SEEN
