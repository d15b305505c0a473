"""``atp check --pending``, ``health/pending``, the list of releases, and docs/deploying.md."""

import io
import json
import os
import re
import subprocess
from copy import copy
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from atp import queue, task_type
from atp.conf import setting_problems
from atp.models import Daemon
from atp.operations.registry import registry
from atp.payload.binding import adapt_arguments
from tests.helpers import child_environment, manage

from ..api.client import Api
from ..app.tasks import echo
from .conftest import SHADE
from .rolling import NEW, OLD, Rolling

PAGE = Path(__file__).parents[2] / "docs" / "deploying.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
SHOWN = [text for language, text in BLOCKS if language == "console"]


def call(*args):
    """Return the exit status, the output and the errors of a command."""
    out = io.StringIO()
    try:
        call_command("atp", *args, stdout=out)
    except CommandError as error:
        return error.returncode, out.getvalue(), str(error)
    return 0, out.getvalue(), ""


def check(*args):
    return call("check", "--pending", *args)


@pytest.fixture
def misfits(shade, release, db):
    """Three waiting Instances that do not fit the handler of the next release."""
    found = [shade.enqueue(path="a") for _ in range(3)]
    release(lambda context, *, path, zoom: 0)
    return found


@pytest.fixture
def member(world):
    """Return a daemon of a release, with this signature of the Types."""

    def make(name, release, signature, *types, pid=1):
        host = world.host(*types, name=name)
        rows = Daemon.objects.filter(uuid=host.uuid)
        rows.update(pid=pid, release=release, signatures=dict.fromkeys(types, signature))
        return host

    return make


@pytest.mark.slow
def test_check_with_pending_lists_inputs_that_do_not_fit_and_types_that_differ(misfits, member):
    member("web1", "old", "aaaa0000", SHADE)
    status, shown, complaint = check()
    assert (status, complaint) == (1, "Cannot run under this code: 1.")
    line = next(line for line in shown.splitlines() if line.startswith(SHADE))
    for part in ("3", "cannot run", "argument 'zoom' is required", str(misfits[0].uuid)):
        assert part in line
    assert "aaaa0000" in shown
    assert "web1:1" in shown
    status, shown, _ = check("--json")
    [finding] = json.loads(shown)["findings"]
    assert status == 1
    assert (finding["kind"], finding["count"], finding["fails"]) == ("misfit", 3, True)
    # Only of some Types.
    echo.enqueue()
    status, shown, _ = check("--type", "tests.*")
    assert status == 0
    assert "Live Instances looked at: 4. All that waits fits this code." in shown
    assert check("-t", "deploys.*", "-t", "tests.*")[0] == 1


@pytest.mark.django_db
def test_check_rejects_invalid_combinations_of_options(shade):
    for args, told in (
        (["--pending", "--type", "deploys.shad"], "Did you mean 'deploys.shade'?"),
        (["--pending", "--dry-run"], "not allowed with"),
        (["--deep"], "--deep and --type can be used only with --pending."),
        (["--type", "x"], "--deep and --type can be used only with --pending."),
    ):
        assert told in call("check", *args)[2]


@pytest.mark.processes
def test_check_fails_for_a_tasks_module_that_cannot_be_imported(transactional_db, tmp_path):
    """The output has the ImportError, and the exit status stops the deploy."""
    broken = "from tests.settings import *\nINSTALLED_APPS = ['atp', 'broken']\nTASKS = {}\n"
    (tmp_path / "broken_settings.py").write_text(broken)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tasks.py").write_text("import shop_that_is_gone\n")
    path = f"{tmp_path}:{child_environment()['PYTHONPATH']}"
    given = child_environment(DJANGO_SETTINGS_MODULE="broken_settings", PYTHONPATH=path)
    command = manage("atp", "check", "--pending")
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "No module named 'shop_that_is_gone'" in done.stderr
    assert "tasks.py" in done.stderr


def test_the_api_shows_pending_problems_to_operators_only(misfits, user_with):
    assert Api(user_with("view_daemon", name="viewer")).get("health/pending").status_code == 403
    assert Api(None).get("health/pending").status_code == 401
    operator = Api(user_with("view_daemon", "operate"))
    answer = operator.get("health/pending")
    [finding] = answer.json()["findings"]
    assert (answer.status_code, answer.json()["fits"]) == (503, False)
    assert (finding["type"], finding["instance"]) == (SHADE, str(misfits[0].uuid))
    queue.cancel(*misfits)
    answer = operator.get("health/pending")
    assert (answer.status_code, answer.json()["fits"]) == (200, True)


# The page


def lines(text):
    """Return the lines of an output without spaces and without the parts that vary."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UUID", text)
    text = re.sub(r"[\d.]+ \w+ ago$", "AGO", text, flags=re.MULTILINE)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_the_code_on_the_deploying_page_works(settings, monkeypatch):
    for name in ("_types", "_former", "_late"):
        monkeypatch.setattr(registry, name, copy(getattr(registry, name)))
    names = {"task_type": task_type, "os": os}
    setting, adapter, former = (text for language, text in BLOCKS if language == "python")
    exec(compile(setting, PAGE.name, "exec"), names)
    settings.ATP = settings.ATP | names["ATP"]
    assert setting_problems() == []
    exec(compile(adapter, PAGE.name, "exec"), names)
    hillshade = names["hillshade"]
    found = adapt_arguments(hillshade.signatures, hillshade.adapters, {"path": "a.tif"})
    assert found == (((), {"path": "a.tif", "zoom": 10}), "")
    registry.remove("dem.hillshade")
    exec(compile(former, PAGE.name, "exec"), names)
    assert registry.get("dem.hillshade") is names["shade"]


@pytest.mark.long
@pytest.mark.processes
def test_check_with_pending_prints_what_the_deploying_page_shows(transactional_db, tmp_path):
    """The code of the new release checks what the old release has enqueued."""
    with Rolling(tmp_path, count=3) as rolling:
        rolling.enqueue(OLD)
        done = rolling.run(NEW, *manage("atp", "check", "--pending"))
    command, *shown = lines(SHOWN[0])
    assert command == "$ manage.py atp check --pending"
    assert lines(done.stdout) + lines(done.stderr) == shown


def test_status_and_pages_show_which_daemon_runs_which_release(world, member, user_with, client):
    types = "shop.loses", "shop.renames"
    for name, pid, release, held, signature in (
        ("web1", 4711, "3f2a", 2, "aaaa0000"),
        ("web2", 812, "8c01", 4, "bbbb0000"),
    ):
        daemon = member(name, release, signature, *types, pid=pid)
        world.enqueue(held, type=types[0])
        assert len(daemon.claim()) == held
    shown = lines(SHOWN[1])
    for subcommand in ("status", "daemons"):
        found = lines(call(subcommand)[1])
        at = found.index(shown[0])
        assert found[at : at + len(shown)] == shown
    client.force_login(user_with("view_daemon"))
    page = client.get("/atp/daemons/").content.decode()
    section = page[page.index("<h2>Releases</h2>") :]
    for part in ("3f2a", "web1:4711", "8c01", *types):
        assert part in section
    assert "8c01" in client.get(f"/atp/daemons/{daemon.uuid}/").content.decode()
