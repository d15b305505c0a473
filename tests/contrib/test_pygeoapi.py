"""The manager of pygeoapi, in a server of pygeoapi, beside a daemon; both may be killed."""

import signal
import subprocess

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
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(60)
        self.processes.clear()

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
