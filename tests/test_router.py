"""Tests of a queue in a separate database."""

import json
import subprocess

import pytest
from django.contrib.auth.models import User

from atp.models import Instance, Type
from atp.router import QueueRouter
from tests import environment
from tests.app import tasks
from tests.helpers import DEADLINE, child_environment, manage


def test_router_sends_only_the_models_of_atp_to_the_queue_database(settings):
    assert QueueRouter().allow_migrate("default", "auth") is None
    settings.ATP = {"DATABASE": "queue"}
    elsewhere = QueueRouter()
    assert elsewhere.db_for_read(Instance) == elsewhere.db_for_write(Type) == "queue"
    assert elsewhere.db_for_read(User) is None
    assert elsewhere.allow_relation(Instance(), Type())
    assert elsewhere.allow_relation(Instance(), User()) is None
    assert elsewhere.allow_migrate("queue", "atp") is True
    assert elsewhere.allow_migrate("default", "atp") is False
    assert elsewhere.allow_migrate("default", "auth") is None
    assert elsewhere.allow_migrate("queue", "auth") is False


@pytest.mark.slow
def test_queue_in_another_database_can_be_migrated_and_used(transactional_db):
    """ATP writes nothing into the default database."""

    def run(*args):
        done = subprocess.run(
            manage(*args),
            env=child_environment(DJANGO_SETTINGS_MODULE="tests.settings_apart"),
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        run("migrate", "--database", "queue", "-v", "0")
        run("atp", "enqueue", "tests.add", '{"first": 1, "second": 2}', "--identifier", "sum")
        run("atpd", "--drain", "-p", "1")
        shown = json.loads(
            run("atp", "show", "--type", "tests.add", "--identifier", "sum", "--json")
        )
        assert shown["state"] == "FINISHED"
        assert run("check").startswith("System check identified no issues (")
    finally:
        for file in environment.folder().glob("queue.sqlite3*"):
            if file.is_file():
                file.unlink()
    assert not Instance.objects.of_type(tasks.add.identifier).exists()
