"""The types that openapi-typescript makes of the OpenAPI document are right as they are."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.servers.basehttp import WSGIRequestHandler

from tests.helpers import DEADLINE

from .client import openapi
from .test_generated_client import PASSWORD, SEEN

PROGRAM = Path(__file__).with_name("typescript")
# The codes by which npm says that it reached no registry.
UNREACHABLE = ("EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ENETUNREACH", "ENOTFOUND", "ETIMEDOUT")


def run(folder, *command):
    """Return what a program prints, with its errors; it has to succeed."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the program, its packages, and the document."""
    if shutil.which("npm") is None:
        pytest.skip("There is no npm, and so no TypeScript.")
    folder = tmp_path_factory.mktemp("typescript")
    shutil.copytree(PROGRAM, folder, dirs_exist_ok=True)
    installed = subprocess.run(
        ("npm", "ci", "--no-audit", "--no-fund"), cwd=folder, capture_output=True, text=True
    )
    if any(f"code {code}" in installed.stderr for code in UNREACHABLE):
        pytest.skip(f"The registry of npm was not reached: {installed.stderr}")
    assert installed.returncode == 0, installed.stderr
    (folder / "openapi.json").write_text(json.dumps(openapi()))
    return folder


@pytest.mark.timeout(300)
@pytest.mark.django_db(transaction=True)
def test_it_enqueues_follows_and_reads(folder, live_server, atpd, media, monkeypatch):
    """One and many, to the end; bytes, changes, deleting, a problem; and a list page by page."""
    monkeypatch.setattr(WSGIRequestHandler, "disable_nagle_algorithm", True)
    User.objects.create_superuser("program", password=PASSWORD)
    run(folder, "npx", "openapi-typescript", "openapi.json", "--output", "atp.d.ts")
    # The compiler accepts the program in its strict mode: no type has to be forced.
    run(folder, "npx", "tsc")
    atpd("--type", "tests.*", "--type", "daemon.*").ready()
    printed = run(folder, "node", "client.js", live_server.url, "program", PASSWORD)
    assert json.loads(printed) == {**SEEN, "problem": 404}
