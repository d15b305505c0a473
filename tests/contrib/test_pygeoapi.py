"""The manager of pygeoapi, in a server of pygeoapi, beside a daemon; both may be killed."""

import json
import os
import signal
import subprocess
from contextlib import suppress

import pytest
import requests

from tests.conformance.fetching import ROOT, interpreter, make_environment
from tests.helpers import wait_for
from tests.pygeoapi import site

PYGEOAPI = "pygeoapi==0.24.0"
SETTINGS = ("--settings", "site_of_tests")
REFUSED = "http://169.254.169.254/latest"

pytestmark = [pytest.mark.long, pytest.mark.processes]


class Site:
    """A server of pygeoapi and a daemon, which can be killed and started again."""

    def __init__(self, python, folder):
        self.python = python
        self.folder = folder
        self.environment, port = site.write(folder)
        self.config = (folder / "config.yml").read_text()
        self.url = f"http://127.0.0.1:{port}"
        self.processes = {}
        self._call("django-admin", "migrate", "--verbosity", "0", *SETTINGS)
        self._call("pygeoapi", "openapi", "generate", "config.yml", "-of", "openapi.yml")

    def configure(self, before="", after=""):
        (self.folder / "config.yml").write_text(self.config.replace(before, after))

    def _call(self, script, *arguments):
        command = [self.python.with_name(script), *arguments]
        subprocess.run(command, env=self.environment, cwd=self.folder, check=True)

    def run_python(self, script, **own):
        """Run a script of the site, and return the JSON that it prints."""
        own = {**self.environment, "DJANGO_SETTINGS_MODULE": "site_of_tests", **own}
        command = [self.python, "-c", script]
        ended = subprocess.run(
            command, env=own, cwd=self.folder, check=True, capture_output=True, text=True
        )
        return json.loads(ended.stdout)

    def start(self, name):
        script, *arguments = {
            "server": ["pygeoapi", "serve"],
            "daemon": ["django-admin", "atpd", "--processes", "1", *SETTINGS],
        }[name]
        command = [self.python.with_name(script), *arguments]
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if name == "server":
            wait_for(self._answers)

    def _answers(self):
        try:
            return requests.get(f"{self.url}/conformance?f=json", timeout=30).ok
        except requests.ConnectionError:
            return False

    def kill(self, name):
        """Kill a process with its children; the server has one, which answers the requests."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self):
        """End the processes. The group of a daemon's workers is another, which the daemon ends."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(60)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self.processes.clear()

    def clear(self):
        """Remove all jobs, so that they do not keep the only worker busy."""
        script = "from atp.models import Instance as I; from atp import queue; "
        script += "[queue.delete(job, cancel=True) for job in I.objects.all()]"
        self._call("django-admin", "shell", "-c", script, *SETTINGS)

    def execute(self, process, inputs, *, prefer="respond-async", **body):
        return requests.post(
            f"{self.url}/processes/{process}/execution",
            json={"inputs": inputs, **body},
            headers={"Prefer": prefer} if prefer else {},
            timeout=120,
        )

    def status(self, job):
        answer = requests.get(f"{self.url}/jobs/{job}?f=json", timeout=30)
        return answer.json()["status"] if answer.ok else answer.status_code

    def jobs(self):
        return requests.get(f"{self.url}/jobs?f=json", timeout=30).json()["jobs"]

    def message(self, job):
        return requests.get(f"{self.url}/jobs/{job}?f=json", timeout=30).json()["message"]

    def results(self, job):
        return requests.get(f"{self.url}/jobs/{job}/results?f=json", timeout=30)


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
    return Site(python, tmp_path_factory.mktemp("site"))


@pytest.fixture
def there(site_of_all):
    site_of_all.configure()
    yield site_of_all
    site_of_all.configure()
    site_of_all.clear()
    site_of_all.stop()


@pytest.fixture
def running(there):
    there.start("server")
    there.start("daemon")
    return there


def test_job_outlives_the_server_that_took_it(running, flag):
    job = running.execute("patient", {"flag": str(flag)}).json()["jobID"]
    wait_for(lambda: running.status(job) == "running")
    running.kill("server")
    flag.touch()
    running.start("server")
    wait_for(lambda: running.status(job) == "successful")
    assert running.results(job).json() == {"found": str(flag)}


def test_job_is_there_in_the_moment_of_its_answer(there, flag):
    there.start("server")
    job = there.execute("patient", {"flag": str(flag)}).json()["jobID"]
    assert there.status(job) == "accepted"
    [newest, *_] = there.jobs()
    assert (newest["jobID"], newest["processID"]) == (job, "patient")
    assert "No daemon" in newest["message"]
    assert there.results(job).status_code == 404


def test_job_runs_again_after_its_daemon_was_killed(running, flag):
    job = running.execute("patient", {"flag": str(flag)}).json()["jobID"]
    wait_for(lambda: running.status(job) == "running")
    running.kill("daemon")
    flag.touch()
    running.start("daemon")
    wait_for(lambda: running.status(job) == "successful")


def test_synchronous_execution_waits_for_the_daemon(running):
    answer = running.execute("hello-world", {"name": "you"}, prefer="")
    assert (answer.status_code, answer.json()["value"]) == (200, "Hello you!")
    failed = running.execute("hello-world", {}, prefer="")
    assert failed.status_code == 400
    assert "Cannot process without a name" in failed.json()["description"]


def test_dead_callback_does_not_lose_the_result_of_a_synchronous_execution(running):
    dead = {"successUri": "http://no-such-host.invalid/x", "inProgressUri": "http://x.invalid/y"}
    answer = running.execute("hello-world", {"name": "you"}, prefer="", subscriber=dead)
    assert (answer.status_code, answer.json()["value"]) == (200, "Hello you!")


@pytest.mark.parametrize(
    ("content_type", "text", "expected"),
    [
        ("application/json", "a < b", "a < b"),
        ("text/plain; charset=latin-1", "ü", b"\xfc"),
        ("text/plain; charset=utf-8", "ü", "ü".encode()),
    ],
)
def test_results_are_stored_as_they_are(running, content_type, text, expected):
    job = running.execute("typewriter", {"text": text, "type": content_type}).json()["jobID"]
    wait_for(lambda: running.status(job) == "successful")
    found = running.results(job)
    if content_type == "application/json":
        assert found.json() == {"text": expected}
    else:
        assert (found.headers["Content-Type"], found.content) == (content_type, expected)


def test_callback_to_a_private_address_of_a_synchronous_execution_is_refused(there):
    there.start("server")
    before = there.jobs()
    refused = {"successUri": REFUSED}
    answer = there.execute("hello-world", {"name": "you"}, prefer="", subscriber=refused)
    assert answer.status_code == 400
    assert there.jobs() == before


SCRIPT = """
import json
from django.db import connection
from pygeoapi.config import get_config
from pygeoapi.process.manager.base import get_manager
manager = get_manager(get_config())
manager.get_jobs()
print(json.dumps(connection.connection is None))
"""


def test_connections_are_renewed_around_each_call(there):
    assert there.run_python(SCRIPT) is True


@pytest.mark.parametrize("named", ["site_of_test", "no.such.module"])
def test_settings_module_that_does_not_exist_is_named(there, named):
    there.configure("connection: site_of_tests", f"connection: {named}")
    with pytest.raises(subprocess.CalledProcessError) as error:
        there.run_python(SCRIPT, DJANGO_SETTINGS_MODULE="")
    said = f"server.manager.connection: there is no settings module {named!r}. PYTHONPATH must"
    assert said in error.value.stderr


OPTIONS = """
import json
import django
django.setup()
from atp import queue
print(json.dumps(queue.declared("pygeoapi.hello-world").max_running))
"""


def test_options_of_a_process_are_those_of_its_type(there):
    processor = "processor: {name: HelloWorld}"
    there.configure(processor, f"{processor}\n        atp: {{max_running: 3, timeout: 60}}")
    assert there.run_python(OPTIONS) == 3
    assert there.run_python(SCRIPT) is True


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("{timeuot: 3}", "resources.hello-world.atp: there is no option 'timeuot'. Did you mean"),
        ("{timeout: soon}", "resources.hello-world: task_type('pygeoapi.hello-world')"),
        ("[timeout]", "resources.hello-world.atp must have options by name"),
        ("{public: true}", "there is no option 'public'"),
    ],
)
def test_wrong_option_of_a_process_is_named(there, options, said):
    processor = "processor: {name: HelloWorld}"
    there.configure(processor, f"{processor}\n        atp: {options}")
    for script in (SCRIPT, OPTIONS):
        with pytest.raises(subprocess.CalledProcessError) as error:
            there.run_python(script)
        assert said in error.value.stderr


def test_dismissed_job_ends(running, flag):
    job = running.execute("patient", {"flag": str(flag)}).json()["jobID"]
    wait_for(lambda: running.status(job) == "running")
    assert requests.delete(f"{running.url}/jobs/{job}", timeout=30).ok
    wait_for(lambda: running.status(job) in ("dismissed", 404))


def test_callback_to_a_private_address_is_refused_before_anything_is_written(there):
    there.start("server")
    before = there.jobs()
    subscriber = {"successUri": REFUSED, "failedUri": REFUSED}
    answer = there.execute("hello-world", {"name": "you"}, subscriber=subscriber)
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidParameterValue")
    assert there.jobs() == before


def test_process_that_the_configuration_of_the_daemon_lacks_waits(there):
    there.start("server")
    there.configure("hello-world:", "good-bye:")
    there.start("daemon")
    answer = there.execute("hello-world", {"name": "you"}).json()
    wait_for(lambda: "No daemon serves it" in there.message(answer["jobID"]))
    assert there.status(answer["jobID"]) == "accepted"
