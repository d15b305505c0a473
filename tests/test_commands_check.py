"""``manage.py atp check``, and what ``status`` says of the same (docs/check.md)."""

import io
import json
import re

from django.core.management import call_command
from django.core.management.base import CommandError

from atp.models import Task
from atp.shell.base import actor

from .app.tasks import echo
from .store.broken import age, settle
from .test_commands_atp import DOCS, keys, run


def check(*args):
    """Return the exit status, what is printed, and what is complained about."""
    out = io.StringIO()
    try:
        call_command("atp", "check", *args, stdout=out)
    except CommandError as error:
        return error.returncode, out.getvalue(), str(error)
    return 0, out.getvalue(), ""


def test_what_can_be_mended_is_and_it_is_told(world):
    """G1: it is in the queue again, and its log says who saw to that."""
    instance = echo.enqueue()
    Task.objects.all().delete()
    age(instance.pk)
    status, shown, complaint = check("--dry-run")
    assert (status, complaint) == (1, "Found: 1, mended: 0.")
    assert str(instance.uuid) in shown
    assert not Task.objects.exists()
    status, shown, complaint = check()
    assert (status, complaint) == (1, "Found: 1, mended: 1.")
    assert "it was given a Task" in shown
    assert instance.log.last().who == actor()
    assert check()[0] == 0


def test_what_cannot_be_mended_is_told_until_it_is_over(world, host):
    settle(host)
    instance = echo.enqueue()
    age(instance.pk)
    found = json.loads(check("--json")[1])
    [finding] = found["findings"]
    assert (finding["trouble"], finding["done"]) == ("unclaimed", "")
    section = re.search(r"^### `check`$(.*?)^##", DOCS, re.M | re.S).group(1)
    assert [key for key in keys(found) if f"`{key}`" not in section] == []
    for _ in range(2):
        status, shown, complaint = check()
        assert (status, complaint) == (1, "Found: 1, mended: 0.")
        assert "due for long and not claimed" in shown
        assert "! Work of Type 'tests.echo' has been due for" in run("status")
    host.claim()
    assert check() == (0, "Nothing was found.\n", "")
    assert "!" not in run("status")
