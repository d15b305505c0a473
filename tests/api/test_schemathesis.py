"""Schemathesis tests the API against its OpenAPI document, in the short form of tests/api/fuzz.py.

A response fails the test if it contradicts the document, is a server error, or was sent without a
login (G13, G14).
"""

import json
import logging
import subprocess

import pytest
from django.contrib.auth.models import User

from atp import queue
from atp.operations.registry import registry
from atp.states import State

from ..populated import populate
from . import fuzz
from .client import openapi

# A few requests of each operation; or all that the fuzzer knows: bounds, sequences, and more.
FEW = ("--phases", "fuzzing", "--max-examples", "2")
MANY = ("--max-examples", "25")
# Seconds for the few and the many.
DEADLINES = {FEW: 280, MANY: 1700}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("phases", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
def test_schemathesis_finds_no_failures(world, live_server, media, tmp_path, caplog, phases):
    caplog.set_level(logging.CRITICAL, "django.request")
    queue.register_all()
    full = populate(world)
    # Somebody serves every Type, so that what is enqueued does not make health fail.
    world.host(*(task_type.identifier for task_type in registry), lease=3600)
    [file] = full[State.FINISHED].response.files
    (media / file["path"]).parent.mkdir(parents=True)
    (media / file["path"]).write_bytes(b"published")
    User.objects.create_superuser("operator", password="secret")
    schema = tmp_path / "openapi.json"
    schema.write_text(json.dumps(openapi()))
    done = fuzz.run(
        str(schema),
        # Every run makes the same requests.
        *(*phases, "--generation-deterministic"),
        url=live_server.url,
        login="operator:secret",
        types=["tests.echo", "tests.add"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=DEADLINES[phases],
        text=True,
    )
    assert done.returncode == 0, done.stdout
