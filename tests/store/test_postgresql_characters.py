"""A database that is not UTF-8 says which character it lacks, and loses nothing (bad input)."""

import json
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from ..helpers import child_environment, database_url
from .broken import execute
from .world import only_postgresql

NAME = "atp_in_latin1"
SCRIPT = """
import json
import django
django.setup()
from django.core.checks import run_checks
from django.core.management import call_command
from django.test import Client
from atp.exceptions import NotSerializable
from atp import queue
from atp.models import Inputs
from tests.app.tasks import echo

call_command("migrate", verbosity=0)
warned = [each.id for each in run_checks(databases=["default"])]
told = {}
def tell(name, call):
    try:
        call()
    except NotSerializable as error:
        told[name] = str(error)
wrong = {"text": "€"}
echo.enqueue(text="é")
tell("one", lambda: echo.enqueue(**wrong))
tell("several", lambda: echo.enqueue_many([{"text": "é"}, wrong]))
tell("a name", lambda: queue.cancel(echo.enqueue(text="a"), by="€"))
found = [json.loads(data) for data in Inputs.objects.values_list("data", flat=True)]
print(json.dumps({"warned": warned, "told": told, "found": found}))
"""


@pytest.fixture
def latin1(transactional_db):
    """The environment of a process whose queue is in a database in LATIN1."""
    execute(f"CREATE DATABASE {NAME} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    url = urlsplit(database_url())._replace(path=f"/{NAME}").geturl()
    yield child_environment(DATABASE_URL=url)
    execute(f"DROP DATABASE {NAME} WITH (FORCE)")


@pytest.mark.long
@only_postgresql
def test_a_character_that_the_database_lacks_is_refused_by_name(latin1):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=latin1, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert "atp.W017" in shown["warned"]
    assert set(shown["told"]) == {"one", "several", "a name"}
    for text in shown["told"].values():
        assert "lacks a character" in text
        assert "LATIN1" in text
    assert shown["found"] == [{"text": "é"}, {"text": "a"}]
