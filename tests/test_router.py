"""Tests of a queue in a separate database."""

import pytest
from django.contrib.auth.models import User

from atp.models import Instance, Type
from atp.router import QueueRouter

from . import environment
from .helpers import run_python


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


SCRIPT = """
import django
from django.core.management import call_command

django.setup()
call_command("migrate", database="queue", verbosity=0)
call_command("atp", "enqueue", "tests.add", '{"first": 1, "second": 2}', "--identifier", "sum")
call_command("atpd", "--drain", "-p", "1")
call_command("check")
call_command("atp", "show", "--type", "tests.add", "--identifier", "sum")
"""


@pytest.mark.slow
def test_queue_in_another_database_can_be_migrated_and_used(transactional_db):
    """ATP writes nothing into the default database."""
    try:
        told = run_python(SCRIPT, DJANGO_SETTINGS_MODULE="tests.settings_apart")
    finally:
        for file in environment.folder().glob("queue.sqlite3*"):
            if file.is_file():
                file.unlink()
    assert "System check identified no issues (" in told
    assert "FINISHED" in told.partition("System check")[2]
    assert not Instance.objects.of_type("tests.add").exists()
