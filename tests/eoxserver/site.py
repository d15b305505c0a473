"""What EOxServer takes to run here, and a small project with processes of the tests.

EOxServer needs GDAL and MapServer. Those of Debian fit Debian's Python alone, so the project runs
in an environment of its own, which sees Debian's packages.
"""

import os
import shutil
import subprocess

from tests import packages
from tests.conformance.fetching import ROOT, SQLITE, free_port, make_environment

PACKAGES = ("python3-gdal", "python3-mapscript", "libsqlite3-mod-spatialite", "python3-venv")
PYTHON = "/usr/bin/python3"
PINS = ROOT / ".ci" / "eoxserver.txt"

SETTINGS = """
from pathlib import Path

FOLDER = Path(__file__).parent
PROJECT_DIR = str(FOLDER)
SECRET_KEY = "of the tests only"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "urls_of_tests"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.gis",
    "eoxserver.core",
    "eoxserver.services",
    "eoxserver.resources.coverages",
    "eoxserver.backends",
    "atp",
    "atp.contrib.eoxserver",
    "tasks_of_tests",
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.contrib.gis.db.backends.spatialite",
        "NAME": FOLDER / "db.sqlite3",
    }
}
SPATIALITE_LIBRARY_PATH = "mod_spatialite.so"
USE_TZ = True
MEDIA_ROOT = FOLDER / "media"
EOXS_PROCESSES = [
    f"processes_of_tests.{each}"
    for each in ("Patient", "Poison", "Broken", "Choosy", "Publisher", "Repeated", "Keyed")
]
EOXS_ASYNC_BACKENDS = ["atp.contrib.eoxserver.Backend"]
ATP = {
    "OGC_LANE": "urls_of_tests.lane",
    # A killed daemon is soon replaced.
    "LEASE": 6,
    "RENEW_EVERY": 0.5,
    "STATEMENT_TIMEOUT": 2,
    "KILL_AFTER": 4,
}
"""
CONFIG = """
[core.system]
instance_id=tests

[services.owscommon]
http_service_url=http://127.0.0.1:{port}/ows?

[services.ows]
name=Tests
title=Tests
abstract=Tests
onlineresource=http://127.0.0.1:{port}
keywords=tests
fees=None
access_constraints=None
provider_name=Tests
provider_site=http://127.0.0.1:{port}
individual_name=Tests
position_name=Tests
phone_voice=None
phone_facsimile=None
delivery_point=None
city=None
administrative_area=None
postal_code=None
country=None
electronic_mail_address=None
hours_of_service=None
contact_instructions=None
role=None
update_sequence=1
"""
URLS = """
from django.urls import include, re_path, path

urlpatterns = [
    path("wps-jobs/", include("atp.contrib.eoxserver.urls")),
    re_path(r"^ows", include("eoxserver.services.urls")),
]


def lane(request):
    # Who a client is, in these tests, he says himself.
    return "user:" + request.headers.get("X-User", "anonymous")
"""
TASKS = """
from atp import task_type


@task_type("wps.own")
def own(context):
    return 1
"""
PROCESSES = """
import os
import signal
import time
from pathlib import Path

from eoxserver.services.ows.wps.exceptions import InvalidParameterValue
from eoxserver.services.ows.wps.parameters import (
    BoundingBoxData,
    ComplexData,
    FormatText,
    LiteralData,
    Reference,
)

FOLDER = Path(__file__).parent


def note(line):
    with open(FOLDER / "notes", "a") as file:
        file.write(line + "\\n")


class Asynchronous:
    asynchronous = True
    synchronous = False

    @property
    def identifier(self):
        return type(self).__name__.lower()

    inputs = [("flag", LiteralData("flag", str, optional=True, default=""))]
    outputs = [("found", LiteralData("found", str))]


class Patient(Asynchronous):
    # Waits for a file.
    def on_started(self, context, progress, message):
        note(f"started {context.identifier} {progress} {message}")

    def on_succeeded(self, context, outputs):
        note(f"succeeded {context.identifier} {sorted(outputs)}")

    def on_failed(self, context, exception):
        note(f"failed {context.identifier} {exception.code} {exception.locator}")

    def discard(self, context):
        note(f"discarded {context.identifier}")

    def execute(self, context, flag):
        Path(f"{flag}.pid").write_text(str(os.getpid()))
        context.update_progress(50, "half of it")
        while not Path(flag).exists():
            time.sleep(0.05)
            context.update_progress(50, "half of it")
        return flag


class Poison(Asynchronous):
    # Kills its worker.
    atp_options = {"max_restarts": 1}

    def on_failed(self, context, exception):
        note(f"failed {context.identifier} {exception.code} {exception.locator}")

    def execute(self, context, flag):
        note(f"poisoned {context.identifier}")
        os.kill(os.getpid(), signal.SIGKILL)


class Broken(Asynchronous):
    def execute(self, context, flag):
        raise RuntimeError("it is broken")


class Choosy(Asynchronous):
    # Refuses some jobs before they are enqueued, and only one may wait.
    atp_options = {"max_waiting": 1, "exact": True}

    def initialize(self, context, raw_inputs, resp_form, extra_parts):
        if raw_inputs["flag"].data == "wrong":
            raise InvalidParameterValue("This flag is refused.", "flag")

    def execute(self, context, flag):
        return flag


class Keyed(Asynchronous):
    # Its inputs are a dictionary, with which EOxServer alone can draw no lineage.
    inputs = {"flag": LiteralData("flag", str)}

    def execute(self, context, flag):
        return flag


class Publisher(Asynchronous):
    outputs = [("found", ComplexData("found", formats=[FormatText("text/plain")]))]

    def execute(self, context, flag, found):
        Path("report.txt").write_text("published")
        path, url = context.publish("report.txt")
        return Reference(path, url, mime_type="text/plain")


class Repeated(Asynchronous):
    # Returns its inputs, of every kind.
    inputs = [
        ("number", LiteralData("number", int)),
        ("box", BoundingBoxData("box", optional=True)),
        ("text", ComplexData("text", formats=[FormatText("text/plain")], optional=True)),
    ]
    outputs = [("number", LiteralData("number", int)), ("box", BoundingBoxData("box"))]

    def execute(self, context, number, box, text):
        return {"number": number + len(text.data), "box": box}
"""


def require():
    """Return the Python of an environment with EOxServer. Raises NotInstalled."""
    if not _is_installed():
        packages.install(*PACKAGES)
    lines = PINS.read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    return make_environment(
        ROOT / ".conformance" / "eoxserver",
        ["--no-deps", "--no-compile", *pins, "-e", str(ROOT)],
        "--system-site-packages",
        base=PYTHON,
    )


def _is_installed():
    if shutil.which("dpkg") is None:
        return False
    command = ["dpkg", "--status", *PACKAGES]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def write(folder):
    """Write the project to a folder; return the environment of its processes, and a port."""
    port = free_port()
    (folder / "site_of_tests.py").write_text(SETTINGS + SQLITE)
    (folder / "urls_of_tests.py").write_text(URLS)
    (folder / "processes_of_tests.py").write_text(PROCESSES)
    (folder / "tasks_of_tests").mkdir()
    (folder / "tasks_of_tests" / "__init__.py").touch()
    (folder / "tasks_of_tests" / "tasks.py").write_text(TASKS)
    (folder / "conf").mkdir()
    (folder / "conf" / "eoxserver.conf").write_text(CONFIG.format(port=port))
    own = {"DJANGO_SETTINGS_MODULE": "site_of_tests", "PYTHONPATH": str(folder)}
    return os.environ | own, port
