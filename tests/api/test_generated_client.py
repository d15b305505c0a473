"""The Python client generated from the OpenAPI document works unchanged."""

import json
import sys
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from .client import openapi, operations, run

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


@pytest.fixture
def generated(tmp_path):
    """A folder that contains the package ``generated``."""
    (tmp_path / "openapi.json").write_text(json.dumps(openapi()))
    (tmp_path / "config.yaml").write_text("post_hooks: []\n")
    run(
        *(sys.executable, "-m", "openapi_python_client", "generate", "--fail-on-warning"),
        *("--meta", "none", "--config", tmp_path / "config.yaml"),
        *("--path", tmp_path / "openapi.json", "--output-path", tmp_path / "generated"),
    )
    return tmp_path


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.django_db(transaction=True)
def test_the_generated_client_can_enqueue_wait_and_list(generated, live_server, atpd, media):
    made = {path.stem for path in generated.glob("generated/api/*/*.py")} - {"__init__"}
    assert made == {operation["operationId"] for _, _, operation in operations()}
    User.objects.create_superuser("program", password=PASSWORD)
    atpd("--type", "tests.*", "--type", "daemon.*").ready()
    printed = run(sys.executable, SCRIPT, generated, live_server.url, "program", PASSWORD)
    assert json.loads(printed) == SEEN
