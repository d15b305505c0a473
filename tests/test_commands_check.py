"""``manage.py atp check``, and what ``status`` says of the same (docs/check.md)."""

import io
import json
import re

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from atp import queue
from atp.models import Task
from atp.shell.base import actor
from atp.states import State

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


def test_nothing_found(world, host):
    echo.enqueue()
    host.claim()
    assert check() == (0, "Nothing was found.\n", "")


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
    for _ in range(2):
        status, shown, complaint = check()
        assert (status, complaint) == (1, "Found: 1, mended: 0.")
        assert "due for long and not claimed" in shown
        assert "! Work of Type 'tests.echo' has been due for" in run("status")
    host.claim()
    assert check()[0] == 0
    assert "!" not in run("status")


def test_json_has_the_documented_keys(world, host):
    settle(host)
    age(echo.enqueue().pk)
    status, shown, _ = check("--json")
    [finding] = json.loads(shown)["findings"]
    assert status == 1
    assert (finding["trouble"], finding["done"]) == ("unclaimed", "")
    section = re.search(r"^### `check`$(.*?)^##", DOCS, re.M | re.S).group(1)
    assert [key for key in keys(json.loads(shown)) if f"`{key}`" not in section] == []


@pytest.mark.parametrize("args", [["--repair"], ["tests.echo"], ["--dry-run=1"]])
def test_bad_arguments(world, args):
    with pytest.raises((CommandError, SystemExit)):
        call_command("atp", "check", *args)


def test_the_whole_queue_is_looked_at(world, monkeypatch):
    """However many parts that takes."""
    monkeypatch.setattr("atp.store.common.scan.SPAN", 3)
    instances = [echo.enqueue() for _ in range(10)]
    age(*(instance.pk for instance in instances))
    lost = [instances[0], instances[5], instances[9]]
    Task.objects.filter(pk__in=[instance.pk for instance in lost]).delete()
    found = queue.scan(repair=False)
    assert {finding.instance for finding in found} == {instance.uuid for instance in lost}
    assert len(queue.scan(by="tests")) == 3
    assert queue.scan() == []
    assert {queue.get(instance.uuid).state for instance in lost} == {State.ACCEPTED}
