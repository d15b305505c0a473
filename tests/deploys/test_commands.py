"""``manage.py atp check --pending``, and ``health/pending`` of the API (docs/deploying.md)."""

import io
import json
import subprocess
import sys

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from atp.models import Daemon
from tests.helpers import child_environment, manage

from ..api.client import Api
from ..app.tasks import echo
from .conftest import SHADE


def check(*args):
    """Return the exit status, what is printed, and what is complained about."""
    out = io.StringIO()
    try:
        call_command("atp", "check", "--pending", *args, stdout=out)
    except CommandError as error:
        return error.returncode, out.getvalue(), str(error)
    return 0, out.getvalue(), ""


@pytest.fixture
def misfits(shade, release, db):
    """Three that wait, and do not fit the handler of the next release."""
    found = [shade.enqueue(path="a") for _ in range(3)]
    release(lambda context, *, path, zoom: 0)
    return found


@pytest.mark.django_db
def test_all_is_well(shade):
    shade.enqueue(path="a")
    status, shown, _ = check()
    assert status == 0
    assert "Live Instances looked at: 1. All that waits fits this code." in shown


def test_what_would_not_run_is_listed(misfits):
    status, shown, complaint = check()
    assert (status, complaint) == (1, "Would not run under this code: 1.")
    line = next(line for line in shown.splitlines() if line.startswith(SHADE))
    for part in ("3", "cannot run", "argument 'zoom' is required", str(misfits[0].uuid)):
        assert part in line


def test_as_json(misfits):
    status, shown, _ = check("--json")
    [finding] = json.loads(shown)["findings"]
    assert status == 1
    assert (finding["kind"], finding["count"], finding["fails"]) == ("misfit", 3, True)


def test_types_that_differ_are_listed(misfits, world):
    world.host(SHADE, name="web1")
    Daemon.objects.update(release="3f2a", signatures={SHADE: "aaaa0000"})
    _, shown, _ = check()
    assert "aaaa0000" in shown
    assert "web1:1" in shown


def test_only_some_types(misfits):
    echo.enqueue()
    assert check("--type", "tests.*")[0] == 0
    assert check("-t", "deploys.*", "-t", "tests.*")[0] == 1


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--pending", "--type", "deploys.shad"], "Did you mean 'deploys.shade'?"),
        (["--pending", "--dry-run"], "not allowed with"),
        (["--deep"], "--deep and --type go with --pending."),
        (["--type", "x"], "--deep and --type go with --pending."),
    ],
)
@pytest.mark.django_db
def test_what_is_refused(shade, args, told):
    with pytest.raises(CommandError, match=told.replace("?", r"\?").replace(".", r"\.")):
        call_command("atp", "check", *args)


@pytest.mark.processes
def test_a_module_of_types_that_cannot_be_imported(transactional_db, tmp_path):
    """It is told with its ImportError, and the exit status lets no deploy go on."""
    app = tmp_path / "broken"
    app.mkdir()
    (app / "__init__.py").touch()
    (app / "tasks.py").write_text("import shop_that_is_gone\n")
    (tmp_path / "broken_settings.py").write_text(
        "from tests.settings import *\nINSTALLED_APPS = ['atp', 'broken']\nTASKS = {}\n"
    )
    path = f"{tmp_path}:{child_environment()['PYTHONPATH']}"
    given = child_environment(DJANGO_SETTINGS_MODULE="broken_settings", PYTHONPATH=path)
    command = manage("atp", "check", "--pending")
    assert command[0] == sys.executable
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "No module named 'shop_that_is_gone'" in done.stderr
    assert "tasks.py" in done.stderr


def test_status_tells_who_runs_which_release(world):
    for release, signature in (("3f2a", "aaaa0000"), ("8c01", "bbbb1111")):
        host = world.host(SHADE, name=f"web-{release}")
        rows = Daemon.objects.filter(uuid=host.uuid)
        rows.update(release=release, signatures={SHADE: signature})
    for subcommand in ("status", "daemons"):
        out = io.StringIO()
        call_command("atp", subcommand, stdout=out)
        [line] = [each for each in out.getvalue().splitlines() if each.startswith("3f2a")]
        assert line.split() == ["3f2a", "web-3f2a:1", "0", SHADE]


@pytest.mark.django_db
def test_one_release_without_a_name_is_not_worth_a_table(world):
    world.host(SHADE)
    out = io.StringIO()
    call_command("atp", "status", stdout=out)
    assert "release" not in out.getvalue()


def test_the_pages_tell_it_too(world, user_with, client):
    old, new = world.host(SHADE, name="old"), world.host(SHADE, name="new")
    for host, signature in ((old, "aaaa0000"), (new, "bbbb1111")):
        rows = Daemon.objects.filter(uuid=host.uuid)
        rows.update(release=f"r-{host.name}", signatures={SHADE: signature})
    client.force_login(user_with("view_daemon"))
    page = client.get("/atp/daemons/").content.decode()
    section = page[page.index("<h2>Releases</h2>") :]
    for part in ("r-old", "old:1", "r-new", SHADE):
        assert part in section
    assert "r-old" in client.get(f"/atp/daemons/{old.uuid}/").content.decode()


class TestAPI:
    def test_operators_alone_may_ask(self, misfits, user_with):
        assert Api(user_with("view_daemon")).get("health/pending").status_code == 403
        assert Api(None).get("health/pending").status_code == 401

    def test_what_would_not_run(self, misfits, user_with):
        answer = Api(user_with("view_daemon", "operate")).get("health/pending")
        [finding] = answer.json()["findings"]
        assert (answer.status_code, answer.json()["fits"]) == (503, False)
        assert (finding["type"], finding["instance"]) == (SHADE, str(misfits[0].uuid))

    @pytest.mark.django_db
    def test_all_is_well(self, user_with):
        answer = Api(user_with("view_daemon", "operate")).get("health/pending")
        assert (answer.status_code, answer.json()["fits"]) == (200, True)
