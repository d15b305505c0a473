"""The blocks of docs/deploying.md: code does what the page says, commands print what it shows."""

import io
import os
import re
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.core.management import call_command

from atp import task_type
from atp.conf.validation import problems
from atp.models import Daemon
from atp.payload.adapting import fitted
from atp.verbs.registry import registry
from tests.helpers import manage

from .rolling import NEW, OLD, Rolling

PAGE = Path(__file__).parents[2] / "docs" / "deploying.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
CODE = [text for language, text in BLOCKS if language == "python"]
SHOWN = [text for language, text in BLOCKS if language == "console"]
DIFFERING = "shop.loses", "shop.renames"


@contextmanager
def run(text):
    """Execute a block of the page; the Types that it declares are forgotten afterwards."""
    before = {each.identifier for each in registry}
    names = {"task_type": task_type, "os": os}
    try:
        exec(compile(text, PAGE.name, "exec"), names)
        yield names
    finally:
        for each in {each.identifier for each in registry} - before:
            registry.remove(each)


def lines(text):
    """Return the lines of an output, without what differs from run to run, and its spaces."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UUID", text)
    text = re.sub(r"[\d.]+ \w+ ago$", "AGO", text, flags=re.MULTILINE)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_each_block_is_known():
    assert (len(CODE), len(SHOWN)) == (3, 2)


def test_the_setting(settings):
    with run(CODE[0]) as names:
        settings.ATP = settings.ATP | names["ATP"]
        assert problems() == []


def test_an_adapter():
    with run(CODE[1]) as names:
        hillshade = names["hillshade"]
        found = fitted(hillshade.signatures, hillshade.adapters, {"path": "a.tif"})
        assert found == (((), {"path": "a.tif", "zoom": 10}), "")


def test_a_former_name():
    with run(CODE[2]) as names:
        assert registry.get("dem.hillshade") is names["shade"]


@pytest.mark.processes
def test_the_look_before_the_switch(transactional_db, tmp_path):
    """Of what the old release has enqueued, by the code of the new one."""
    with Rolling(tmp_path, count=3) as rolling:
        rolling.enqueue(OLD)
        done = rolling.run(NEW, *manage("atp", "check", "--pending"))
    command, *shown = lines(SHOWN[0])
    assert command == "$ manage.py atp check --pending"
    assert lines(done.stdout) + lines(done.stderr) == shown


@pytest.mark.django_db
def test_the_releases_that_run(world):
    for host, pid, release, held, signature in (
        ("web1", 4711, "3f2a", 2, "aaaa0000"),
        ("web2", 812, "8c01", 4, "bbbb0000"),
    ):
        daemon = world.host(*DIFFERING, name=host)
        row = Daemon.objects.filter(uuid=daemon.uuid)
        row.update(pid=pid, release=release, signatures=dict.fromkeys(DIFFERING, signature))
        world.enqueue(held, type=DIFFERING[0])
        assert len(daemon.claim()) == held
    out = io.StringIO()
    call_command("atp", "status", stdout=out)
    shown = lines(SHOWN[1])
    found = lines(out.getvalue())
    at = found.index(shown[0])
    assert found[at : at + len(shown)] == shown
