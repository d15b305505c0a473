"""The API of a queue that has its own database."""

from atp.models import Instance

from .. import environment
from ..helpers import child_environment
from .client import run_script

SCRIPT = """
import json
import django
django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

call_command("migrate", database="queue", verbosity=0)
client = Client()
client.force_login(User.objects.get(username="operator"))
body = json.dumps([{"type": "tests.add", "inputs": [1]}, {"type": "tests.echo"}])
made = client.post("/atp/api/instances", body, content_type="application/json")
uuid = made.json()[0]["uuid"]
paths = ["types", "types/tests.add", "instances", "instances?type=tests.add&state=ACCEPTED"]
paths += ["tasks", "tasks?claimed=true", "daemons", "health", f"instances/{uuid}?wait=0.1"]
paths += [f"instances/{uuid}/{part}" for part in ("log", "inputs", "files", "response")]
answers = {path.replace(uuid, "UUID"): client.get(f"/atp/api/{path}") for path in paths}
print(json.dumps({path: answer.status_code for path, answer in answers.items()}))
"""
EXPECTED = {"health": 503, "instances/UUID/response": 404}


def test_the_whole_api_reads_and_writes_a_separate_queue_database(user_with, transactional_db):
    """Afterwards the default database contains the login but no Instance."""
    user = user_with()
    user.is_superuser = True
    user.save()
    try:
        own = child_environment(DJANGO_SETTINGS_MODULE="tests.settings_apart")
        answers = run_script(SCRIPT, env=own)
    finally:
        for file in environment.folder().glob("queue.sqlite3*"):
            if file.is_file():
                file.unlink()
    assert answers == {path: EXPECTED.get(path, 200) for path in answers}
    assert not Instance.objects.exists()
