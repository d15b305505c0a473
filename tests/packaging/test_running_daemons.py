"""The configuration files in docs/running-daemons.md agree with atpd."""

import configparser
import json
import re
import shutil
import subprocess
import sys

import pytest
import yaml

import atp
from atp.management.commands.atpd import Command
from tests.daemon.inside import DELIVERY_GRACE, STOP_GRACE
from tests.environment import ROOT

PAGE = (ROOT / "docs" / "running-daemons.md").read_text()
# What a handler that ends last, and a database that answers last, may take beyond the grace.
BEYOND = STOP_GRACE + DELIVERY_GRACE
HEROKU = 30.0


def file(language):
    """Return the file in this language that the page shows."""
    [text] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return text


def options(words):
    """Parse a command line of atpd; unknown options are an error."""
    where = words.index("atpd")
    assert words[where - 1] == "manage.py"
    return Command().create_parser("manage.py", "atpd").parse_args(words[where + 1 :])


def test_the_systemd_unit_waits_long_enough_and_signals_only_the_supervisor():
    """The unit also keeps running when the kernel kills a worker."""
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read_string(file("ini"))
    service = unit["Service"]
    grace = options(service["ExecStart"].split()).grace
    assert f"longer than `--grace` plus {BEYOND:.0f} s" in PAGE
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


def test_containers_and_heroku_give_the_daemon_enough_time_to_stop():
    """The image installs the wheel of this version."""
    [command] = re.findall(r"^CMD (.*)$", file("dockerfile"), re.MULTILINE)
    assert options(json.loads(command)).processes
    assert set(re.findall(r"django_atp-([\d.]+)-py3", file("dockerfile"))) == {atp.__version__}
    text = PAGE.replace(file("yaml"), "")
    times = re.findall(
        r"(?:--stop-timeout |stop_grace_period: |terminationGracePeriodSeconds: )(\d+)", text
    )
    assert len(times) == 3
    assert min(map(float, times)) > options(json.loads(command)).grace + BEYOND
    pod = next(yaml.safe_load_all(file("yaml")))["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["terminationGracePeriodSeconds"] > options(container["command"]).grace + BEYOND
    [command] = re.findall(r"^worker: (.*)$", file("procfile"), re.MULTILINE)
    assert options(command.split()).grace + BEYOND < HEROKU
