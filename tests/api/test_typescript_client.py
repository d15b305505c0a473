"""The types that openapi-typescript generates from the OpenAPI document are correct."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from .client import openapi, run
from .test_generated_client import PASSWORD, SEEN

PROGRAM = Path(__file__).with_name("typescript")
# The codes by which npm says that it reached no registry.
UNREACHABLE = ("EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ENETUNREACH", "ENOTFOUND", "ETIMEDOUT")


@pytest.fixture
def folder(tmp_path):
    """A folder that contains the program, its packages and the OpenAPI document."""
    if shutil.which("npm") is None:
        pytest.skip("There is no npm, and so no TypeScript.")
    folder = tmp_path / "typescript"
    shutil.copytree(PROGRAM, folder)
    installed = subprocess.run(
        ("npm", "ci", "--no-audit", "--no-fund"), cwd=folder, capture_output=True, text=True
    )
    if any(f"code {code}" in installed.stderr for code in UNREACHABLE):
        pytest.skip(f"The registry of npm was not reached: {installed.stderr}")
    assert installed.returncode == 0, installed.stderr
    (folder / "openapi.json").write_text(json.dumps(openapi()))
    return folder


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.django_db(transaction=True)
def test_the_typescript_client_can_enqueue_wait_and_list(folder, live_server, atpd, media):
    User.objects.create_superuser("program", password=PASSWORD)
    run("npx", "openapi-typescript", "openapi.json", "--output", "atp.d.ts", cwd=folder)
    # The compiler accepts the program in its strict mode: no type has to be forced.
    run("npx", "tsc", cwd=folder)
    atpd("--type", "tests.*", "--type", "daemon.*").ready()
    printed = run("node", "client.js", live_server.url, "program", PASSWORD, cwd=folder)
    assert json.loads(printed) == {**SEEN, "problem": 404}
