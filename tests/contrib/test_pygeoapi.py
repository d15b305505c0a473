"""The manager of pygeoapi, in a server of pygeoapi, beside a daemon; both may be killed."""

import pytest
import requests

from tests.conformance.fetching import ROOT, interpreter, make_environment
from tests.helpers import wait_for
from tests.pygeoapi import site

from .sites import Site

PYGEOAPI = "pygeoapi==0.24.0"
SETTINGS = ("--settings", "site_of_tests")
REFUSED = "http://169.254.169.254/latest"

pytestmark = [pytest.mark.long, pytest.mark.processes]


class Pygeoapi(Site):
    def __init__(self, python, folder):
        environment, port = site.write(folder)
        super().__init__(python, folder, environment)
        self.config = (folder / "config.yml").read_text()
        self.url = f"http://127.0.0.1:{port}"
        self.run("django-admin", "migrate", "--verbosity", "0", *SETTINGS)
        self.run("pygeoapi", "openapi", "generate", "config.yml", "-of", "openapi.yml")

    def configure(self, before="", after=""):
        (self.folder / "config.yml").write_text(self.config.replace(before, after))

    def run_python(self, script, settings="site_of_tests"):
        return self.run("python", "-c", script, check=False, DJANGO_SETTINGS_MODULE=settings)

    def server(self):
        """Start a server; it has a child, which answers the requests."""
        return self.start_server("pygeoapi", "serve", at=f"{self.url}/conformance?f=json")

    def daemon(self):
        return self.start("django-admin", "atpd", "--processes", "1", *SETTINGS)

    def stop(self):
        """End the processes. The group of a daemon's workers is another, which the daemon ends."""
        for process in self.processes:
            process.terminate()
        for process in [*self.processes]:
            process.wait(60)
            self.kill(process)

    def clear(self):
        """Remove all jobs, so that they do not keep the only worker busy."""
        script = "from atp.models import Instance as I; from atp import queue; "
        script += "[queue.delete(job, cancel=True) for job in I.objects.all()]"
        self.run("django-admin", "shell", "-c", script, *SETTINGS)

    def execute(self, process, inputs, *, prefer="respond-async", **body):
        return requests.post(
            f"{self.url}/processes/{process}/execution",
            json={"inputs": inputs, **body},
            headers={"Prefer": prefer} if prefer else {},
            timeout=120,
        )

    def get(self, path):
        return requests.get(f"{self.url}/{path}?f=json", timeout=30)

    def status(self, job):
        answer = self.get(f"jobs/{job}")
        return answer.json()["status"] if answer.ok else answer.status_code


@pytest.fixture(scope="module")
def python():
    try:
        interpreter()
    except SystemExit:
        pytest.skip("there is no Python 3.12 or later on this machine")
    folder = ROOT / ".conformance" / "pygeoapi-site"
    return make_environment(folder, [PYGEOAPI, "-e", f"{ROOT}[contracts]"])


@pytest.fixture(scope="module")
def site_of_all(python, tmp_path_factory):
    return Pygeoapi(python, tmp_path_factory.mktemp("site"))


@pytest.fixture
def there(site_of_all):
    site_of_all.configure()
    yield site_of_all
    site_of_all.configure()
    site_of_all.clear()
    site_of_all.stop()


@pytest.fixture
def running(there):
    there.server()
    there.daemon()
    return there


def test_job_outlives_kills_of_the_server_that_took_it_and_of_its_daemon(there, flag):
    server, daemon = there.server(), there.daemon()
    job = there.execute("patient", {"flag": str(flag)}).json()["jobID"]
    wait_for(lambda: there.status(job) == "running")
    there.kill(server)
    there.server()
    assert there.status(job) == "running"
    there.kill(daemon)
    flag.touch()
    there.daemon()
    wait_for(lambda: there.status(job) == "successful")
    assert there.get(f"jobs/{job}/results").json() == {"found": str(flag)}


def test_job_is_there_in_the_moment_of_its_answer(there, flag):
    there.server()
    job = there.execute("patient", {"flag": str(flag)}).json()["jobID"]
    assert there.status(job) == "accepted"
    [newest, *_] = there.get("jobs").json()["jobs"]
    assert (newest["jobID"], newest["processID"]) == (job, "patient")
    assert "No daemon" in newest["message"]
    assert there.get(f"jobs/{job}/results").status_code == 404


def test_synchronous_execution_waits_for_the_daemon(running):
    """A callback that nobody takes does not lose its result."""
    dead = {"successUri": "http://no-such-host.invalid/x", "inProgressUri": "http://x.invalid/y"}
    for more in ({}, {"subscriber": dead}):
        answer = running.execute("hello-world", {"name": "you"}, prefer="", **more)
        assert (answer.status_code, answer.json()["value"]) == (200, "Hello you!")
    failed = running.execute("hello-world", {}, prefer="")
    assert failed.status_code == 400
    assert "Cannot process without a name" in failed.json()["description"]


def test_results_are_stored_as_they_are(running):
    for content_type, text, expected in (
        ("application/json", "a < b", {"text": "a < b"}),
        ("text/plain; charset=latin-1", "ü", b"\xfc"),
        ("text/plain; charset=utf-8", "ü", "ü".encode()),
    ):
        job = running.execute("typewriter", {"text": text, "type": content_type}).json()["jobID"]
        wait_for(lambda job=job: running.status(job) == "successful")
        found = running.get(f"jobs/{job}/results")
        if content_type == "application/json":
            assert found.json() == expected
        else:
            assert (found.headers["Content-Type"], found.content) == (content_type, expected)


SCRIPT = """
from django.db import connection
from pygeoapi.config import get_config
from pygeoapi.process.manager.base import get_manager
manager = get_manager(get_config())
manager.get_jobs()
print(connection.connection is None)
"""


def test_connections_are_renewed_around_each_call(there):
    assert there.run_python(SCRIPT).stdout == "True\n"


@pytest.mark.parametrize("named", ["site_of_test", "no.such.module"])
def test_settings_module_that_does_not_exist_is_named(there, named):
    there.configure("connection: site_of_tests", f"connection: {named}")
    said = f"server.manager.connection: there is no settings module {named!r}. PYTHONPATH must"
    assert said in there.run_python(SCRIPT, settings="").stderr


OPTIONS = """
import django
django.setup()
from atp import queue
print(queue.declared("pygeoapi.hello-world").max_running)
"""


@pytest.fixture
def with_options(there):
    """Give options to a process."""
    processor = "processor: {name: HelloWorld}"
    return lambda options: there.configure(processor, f"{processor}\n        atp: {options}")


def test_options_of_a_process_are_those_of_its_type(there, with_options):
    with_options("{max_running: 3, timeout: 60}")
    assert there.run_python(OPTIONS).stdout == "3\n"
    assert there.run_python(SCRIPT).stdout == "True\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("{timeuot: 3}", "resources.hello-world.atp: there is no option 'timeuot'. Did you mean"),
        ("{timeout: soon}", "resources.hello-world: task_type('pygeoapi.hello-world')"),
        ("[timeout]", "resources.hello-world.atp must have options by name"),
        ("{public: true}", "there is no option 'public'"),
    ],
)
def test_wrong_option_of_a_process_is_named(there, with_options, options, said):
    with_options(options)
    for script in (SCRIPT, OPTIONS):
        assert said in there.run_python(script).stderr


def test_dismissed_job_ends(running, flag):
    job = running.execute("patient", {"flag": str(flag)}).json()["jobID"]
    wait_for(lambda: running.status(job) == "running")
    assert requests.delete(f"{running.url}/jobs/{job}", timeout=30).ok
    wait_for(lambda: running.status(job) in ("dismissed", 404))


def test_callback_to_a_private_address_is_refused_before_anything_is_written(there):
    there.server()
    before = there.get("jobs").json()["jobs"]
    subscriber = {"successUri": REFUSED, "failedUri": REFUSED}
    for prefer in ("respond-async", ""):
        body = {"prefer": prefer, "subscriber": subscriber}
        answer = there.execute("hello-world", {"name": "you"}, **body)
        assert (answer.status_code, answer.json()["code"]) == (400, "InvalidParameterValue")
    assert there.get("jobs").json()["jobs"] == before


def test_process_that_the_configuration_of_the_daemon_lacks_waits(there):
    there.server()
    there.configure("hello-world:", "good-bye:")
    there.daemon()
    job = there.execute("hello-world", {"name": "you"}).json()["jobID"]
    wait_for(lambda: "No daemon serves it" in there.get(f"jobs/{job}").json()["message"])
    assert there.status(job) == "accepted"
