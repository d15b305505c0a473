"""Run EOxServer's own tests of WPS on ATP's backend::

    python -m tests.eoxserver CHECKOUT

CHECKOUT is one of the repository EOxServer/eoxserver, whose wheel has no tests. They run on
EOxServer 1.5.5 with Debian's GDAL and MapServer, in an environment of its own, and are unchanged.
Each of their requests for a document is executed as a job, and the document drawn from that job
must be the one that the test expects. The command fails if a test fails, or if the backend has
drawn no document.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import packages
from tests.conformance.fetching import ROOT

from . import site

TESTS = "autotest_services.tests.wps"
SETTINGS = """
from autotest.settings import *

from eoxserver.services.ows.config import DEFAULT_EOXS_OWS_SERVICE_HANDLERS

_PLACE = "tests.eoxserver.autotest"
INSTALLED_APPS = (*INSTALLED_APPS, "atp", "atp.contrib.eoxserver")
ROOT_URLCONF = "urls_of_jobs"
TEST_RUNNER = f"{_PLACE}.Runner"
EOXS_ASYNC_BACKENDS = ["atp.contrib.eoxserver.Backend"]
EOXS_PROCESSES = [f"{_PLACE}.{each.replace('.', '-')}" for each in EOXS_PROCESSES]
_OURS = {"eoxserver.services.ows.wps.v10.execute.WPS10ExecuteHandler": f"{_PLACE}.ExecuteHandler"}
EOXS_SERVICE_HANDLERS = [_OURS.get(each, each) for each in DEFAULT_EOXS_OWS_SERVICE_HANDLERS]
ATP = {"OGC_LANE": f"{_PLACE}.lane"}
"""
URLS = """
from autotest.urls import urlpatterns
from django.urls import include, path

urlpatterns = [*urlpatterns, path("wps-jobs/", include("atp.contrib.eoxserver.urls"))]
"""


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.eoxserver", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("checkout", type=Path)
    checkout = parser.parse_args().checkout.absolute()
    try:
        python = site.require()
    except packages.NotInstalled as error:
        sys.exit(f"EOxServer cannot run here: {error}")
    with tempfile.TemporaryDirectory(prefix="atp-eoxserver-") as name:
        folder = Path(name)
        shutil.copytree(checkout / "autotest", folder, dirs_exist_ok=True)
        for each in ("logs", "responses"):
            (folder / "autotest" / each).mkdir(exist_ok=True)
        (folder / "settings_of_jobs.py").write_text(SETTINGS)
        (folder / "urls_of_jobs.py").write_text(URLS)
        own = {
            "DB": "spatialite",
            "DJANGO_SETTINGS_MODULE": "settings_of_jobs",
            "PYTHONPATH": f"{name}:{ROOT}",
        }
        command = [python, "-m", "django", "test", TESTS]
        sys.exit(subprocess.run(command, cwd=folder, env=os.environ | own).returncode)


if __name__ == "__main__":
    main()
