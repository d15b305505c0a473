"""The files of docs/running-daemons.md agree with what atpd does."""

import configparser
import json
import re
import shutil
import subprocess
import sys

import pytest

import atp
from atp.daemon.dispatcher.stopping import DELIVERY_GRACE
from atp.daemon.pool.ending import STOP_GRACE
from atp.management.commands.atpd import Command
from tests.environment import ROOT

PAGE = (ROOT / "docs" / "running-daemons.md").read_text()
# What a handler that ends last, and a database that answers last, may take beyond the grace.
BEYOND = STOP_GRACE + DELIVERY_GRACE
HEROKU = 30.0


def file(language):
    """Return the file of that language that the page shows."""
    [text] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return text


def options(words):
    """Return the options of a command line of atpd; argparse refuses what it does not have."""
    where = words.index("atpd")
    assert words[where - 1] == "manage.py"
    return Command().create_parser("manage.py", "atpd").parse_args(words[where + 1 :])


def test_the_unit_waits_for_the_daemon_and_signals_the_supervisor_alone():
    """It goes on when the kernel kills a worker."""
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read_string(file("ini"))
    service = unit["Service"]
    grace = options(service["ExecStart"].split()).grace
    assert float(service["TimeoutStopSec"]) > grace + BEYOND
    assert (service["KillMode"], service["OOMPolicy"]) == ("mixed", "continue")


@pytest.mark.processes
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd here")
def test_systemd_accepts_the_unit(tmp_path):
    path = tmp_path / "atpd.service"
    path.write_text(file("ini").replace("/srv/shop/.venv/bin/python", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", path], capture_output=True, text=True, check=False
    )
    # What it does not know, it says, and goes on.
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_container_takes_this_wheel_and_its_stop_time_is_longer_than_the_daemon_takes():
    [command] = re.findall(r"^CMD (.*)$", file("dockerfile"), re.MULTILINE)
    assert options(json.loads(command)).processes
    assert set(re.findall(r"django_atp-([\d.]+)-py3", file("dockerfile"))) == {atp.__version__}
    times = re.findall(
        r"(?:--stop-timeout |stop_grace_period: |terminationGracePeriodSeconds: )(\d+)", PAGE
    )
    assert len(times) == 3
    assert min(map(float, times)) > options(json.loads(command)).grace + BEYOND


def test_the_procfiles_daemon_stops_in_herokus_time():
    [command] = re.findall(r"^worker: (.*)$", file("procfile"), re.MULTILINE)
    assert options(command.split()).grace + BEYOND < HEROKU
