"""The asynchronous backend of EOxServer, in a server of EOxServer beside a daemon."""

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree

import pytest
import requests

from tests import packages
from tests.conformance.fetching import ROOT
from tests.eoxserver import site
from tests.helpers import wait_for

WPS = "{http://www.opengis.net/wps/1.0.0}"
OWS = "{http://www.opengis.net/ows/1.1}"
CLIENTS = ROOT / "tests" / "eoxserver" / "clients.py"
SENT = """<?xml version="1.0"?>
<wps:Execute service="WPS" version="1.0.0" xmlns:wps="http://www.opengis.net/wps/1.0.0"
    xmlns:ows="http://www.opengis.net/ows/1.1">
  <ows:Identifier>patient</ows:Identifier>
  <wps:DataInputs><wps:Input>
    <ows:Identifier>flag</ows:Identifier>
    <wps:Data><wps:LiteralData>{flag}</wps:LiteralData></wps:Data>
  </wps:Input></wps:DataInputs>
  <wps:ResponseForm>
    <wps:ResponseDocument storeExecuteResponse="true" status="true"/>
  </wps:ResponseForm>
</wps:Execute>
"""

# Installing EOxServer takes minutes.
pytestmark = [pytest.mark.long, pytest.mark.processes, pytest.mark.timeout(900)]


class Job:
    """A job as its client sees it: the document at the address of its status."""

    def __init__(self, url, user="anonymous"):
        self.url, self.user = url, user
        self.id = url.rpartition("/")[2]

    def get(self, user=None):
        return requests.get(self.url, headers={"X-User": user or self.user}, timeout=30)

    @property
    def document(self):
        return ElementTree.fromstring(self.get().content)

    @property
    def status(self):
        """The element that says how the job is doing, without its namespace."""
        return self.document.find(f"{WPS}Status")[0].tag.removeprefix(WPS)

    @property
    def message(self):
        return self.document.find(f"{WPS}Status")[0].text

    @property
    def percent(self):
        return self.document.find(f"{WPS}Status")[0].get("percentCompleted")

    @property
    def exception(self):
        """Code, locator and text of the exception with which it has failed."""
        return exception_of(self.document)

    @property
    def outputs(self):
        """The outputs as texts; a box as its corners."""
        return {
            each.findtext(f"{OWS}Identifier"): " ".join(each.find(f"{WPS}Data").itertext()).split()
            for each in self.document.iter(f"{WPS}Output")
        }

    @property
    def has_ended(self):
        return self.status in ("ProcessSucceeded", "ProcessFailed")


def exception_of(document):
    # EOxServer reports by the version 2.0 what it refuses.
    found = document.find(".//{*}Exception")
    return found.get("exceptionCode"), found.get("locator"), found.findtext("{*}ExceptionText")


class Site:
    """A server of EOxServer and daemons, which can be killed and started again."""

    def __init__(self, python, folder):
        self.python, self.folder = python, folder
        self.environment, self.port = site.write(folder)
        self.url = f"http://127.0.0.1:{self.port}/ows"
        self.groups = []
        self.run("-m", "django", "migrate", "--verbosity", "0")

    def run(self, *arguments, check=True):
        command = [self.python, *arguments]
        ended = subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True
        )
        assert not check or ended.returncode == 0, ended.stderr
        return ended

    def client(self, *arguments):
        """Return what a function of :mod:`tests.eoxserver.clients` returns."""
        return json.loads(self.run(CLIENTS, *arguments).stdout.splitlines()[-1])

    def shell(self, code, check=True):
        return self.run("-m", "django", "shell", "--no-imports", "-c", code, check=check)

    def start(self, *arguments):
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(
                [self.python, "-m", "django", *arguments],
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.groups.append(process)
        return process

    def serve(self):
        self.start("runserver", "--noreload", str(self.port))
        wait_for(self._answers)

    def _answers(self):
        with suppress(requests.ConnectionError):
            return requests.get(f"{self.url}?service=WPS&request=GetCapabilities", timeout=30).ok

    def daemon(self):
        return self.start("atpd", "--processes", "1")

    def end(self, process):
        """Kill a process with all that it has started."""
        self.groups.remove(process)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def request(self, process, user="anonymous", lineage=False, **inputs):
        """Execute a process asynchronously; return the answer."""
        values = ";".join(f"{name}={value}" for name, value in inputs.items())
        query = f"service=WPS&version=1.0.0&request=Execute&identifier={process}"
        query += f"&DataInputs={values}&storeExecuteResponse=true&status=true"
        query += "&lineage=true" if lineage else ""
        return requests.get(f"{self.url}?{query}", headers={"X-User": user}, timeout=60)

    def execute(self, process, user="anonymous", lineage=False, **inputs):
        """Execute a process asynchronously; return the job."""
        answer = self.request(process, user, lineage, **inputs)
        assert answer.ok, answer.text
        return Job(ElementTree.fromstring(answer.content).get("statusLocation"), user)

    def notes(self, job):
        """Return what the callbacks of a job have noted."""
        path = self.folder / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.replace(f"{job.id}", "").split() for line in lines if job.id in line]

    def count(self, process):
        """Return the number of jobs of a process."""
        return int(self.shell(f"from atp import queue; print(queue.size('wps.{process}'))").stdout)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    try:
        python = site.require()
    except packages.NotInstalled as error:
        pytest.skip(f"EOxServer cannot run here: {error}")
    found = Site(python, tmp_path_factory.mktemp("eoxserver"))
    try:
        found.serve()
        yield found
    finally:
        for process in [*found.groups]:
            found.end(process)


@pytest.fixture
def there(served):
    """The site with its server, and without daemons."""
    [server] = served.groups
    yield served
    for process in [each for each in served.groups if each is not server]:
        served.end(process)


@pytest.fixture
def running(there):
    there.daemon()
    return there


def test_owslib_executes_and_monitors(running, flag):
    flag.touch()
    found = running.client("owslib", running.url, str(flag))
    assert {"patient", "repeated"} <= set(found["processes"])
    assert (found["first"], found["status"]) == ("ProcessAccepted", "ProcessSucceeded")
    assert (found["outputs"], found["errors"]) == ({"found": [str(flag)]}, [])


def test_birdy_executes_and_monitors(running, flag):
    flag.touch()
    found = running.client("birdy", running.url, str(flag))
    assert found == {"status": "ProcessSucceeded", "outputs": {"found": str(flag)}}


def test_status_shows_the_progress(running, flag):
    job = running.execute("patient", flag=flag)
    wait_for(lambda: job.status == "ProcessStarted" and job.percent == "50")
    assert job.message == "half of it"
    flag.touch()
    wait_for(lambda: job.status == "ProcessSucceeded")
    assert job.outputs == {"found": [str(flag)]}
    assert running.notes(job) == [["started", "0", "None"], ["succeeded", "['found']"]]


def test_job_is_there_in_the_moment_of_its_answer_and_says_why_it_waits(there, flag):
    job = there.execute("patient", flag=flag)
    assert (job.status, "No daemon" in job.message) == ("ProcessAccepted", True)


@pytest.mark.parametrize("victim", ["worker", "daemon"])
def test_job_succeeds_once_after_a_kill(there, flag, victim):
    daemon = there.daemon()
    job = there.execute("patient", flag=flag)
    pid = Path(f"{flag}.pid")
    wait_for(lambda: job.status == "ProcessStarted" and pid.exists())
    if victim == "worker":
        os.kill(int(pid.read_text()), signal.SIGKILL)
    else:
        there.end(daemon)
        there.daemon()
    flag.touch()
    wait_for(lambda: job.status == "ProcessSucceeded")
    noted = [what for what, *_ in there.notes(job)]
    assert noted == ["started", "started", "succeeded"]


def test_poison_job_fails_after_its_budget_and_the_daemon_lives(there, flag):
    daemon = there.daemon()
    job = there.execute("poison")
    wait_for(lambda: job.status == "ProcessFailed")
    assert job.exception[:2] == ("NoApplicableCode", "STALE")
    wait_for(lambda: there.notes(job)[-1] == ["failed", "NoApplicableCode", "STALE"])
    assert there.notes(job)[:-1] == [["poisoned"], ["poisoned"]]
    flag.touch()
    after = there.execute("patient", flag=flag)
    wait_for(lambda: after.status == "ProcessSucceeded")
    assert daemon.poll() is None


def test_error_of_a_process_is_that_of_its_document(running):
    job = running.execute("broken")
    wait_for(lambda: job.has_ended)
    assert job.exception == ("NoApplicableCode", "RuntimeError", "it is broken")


def test_error_of_decoding_has_its_locator(running):
    job = running.execute("repeated", number="many")
    wait_for(lambda: job.has_ended)
    code, locator, text = job.exception
    assert (code, locator) == ("InvalidParameterValue", "number")
    assert "Invalid input value" in text


def test_error_of_initialize_is_that_of_the_request(there):
    before = there.count("choosy")
    answer = there.request("choosy", flag="wrong")
    assert answer.status_code == 400
    document = ElementTree.fromstring(answer.content)
    assert exception_of(document) == ("InvalidParameterValue", "flag", "This flag is refused.")
    assert there.count("choosy") == before


def test_request_whose_documents_cannot_be_drawn_is_refused(there):
    before = there.count("repeated")
    answer = there.request("repeated", lineage=True, number=1, box="here")
    assert answer.status_code == 400
    assert there.count("repeated") == before


def test_lineage_shows_inputs_that_a_process_has_as_a_dictionary(running, flag):
    flag.touch()
    job = running.execute("keyed", lineage=True, flag=flag)
    wait_for(lambda: job.has_ended)
    assert job.document.find(f"{WPS}DataInputs/{WPS}Input/{OWS}Identifier").text == "flag"


def test_full_queue_is_busy(there):
    there.execute("choosy", flag="right")
    answer = there.request("choosy", flag="right")
    assert exception_of(ElementTree.fromstring(answer.content))[0] == "ServerBusy"


def test_inputs_that_are_too_large_are_refused(there):
    before = there.count("patient")
    body = SENT.format(flag="x" * 2**20)
    answer = requests.post(there.url, body, headers={"Content-Type": "text/xml"}, timeout=60)
    assert answer.status_code == 400
    code, locator, text = exception_of(ElementTree.fromstring(answer.content))
    assert (code, locator) == ("FileSizeExceeded", "DataInputs")
    assert "the limit is" in text
    assert there.count("patient") == before


def test_inputs_of_every_kind_arrive(running):
    text = "word@mimeType=text/plain"
    job = running.execute("repeated", number=1, box="0,10,20,30", text=text)
    wait_for(lambda: job.has_ended)
    assert job.outputs == {"number": ["5"], "box": ["0", "10", "20", "30"]}


def test_parts_of_a_request_arrive(running):
    job = Job(running.client("reference", "cid:part"))
    wait_for(lambda: job.has_ended)
    assert job.outputs == {"number": ["3"]}


def test_reference_to_a_part_that_is_missing_fails_with_its_locator(running):
    job = Job(running.client("reference", "cid:other"))
    wait_for(lambda: job.has_ended)
    assert job.exception[:2] == ("InvalidParameterValue", "text")


def test_published_file_is_the_owners(running):
    job = running.execute("publisher", user="ann")
    wait_for(lambda: job.has_ended)
    address = next(job.document.iter(f"{WPS}Reference")).get("href")
    answers = [
        requests.get(address, headers={"X-User": user}, timeout=30) for user in ("ann", "bob")
    ]
    assert [each.status_code for each in answers] == [200, 404]
    assert answers[0].text == "published"


def test_job_of_somebody_else_does_not_exist(there, flag):
    job = there.execute("patient", user="ann", flag=flag)
    assert (job.get().status_code, job.get("bob").status_code) == (200, 404)
    code, locator, _ = exception_of(ElementTree.fromstring(job.get("bob").content))
    assert (code, locator) == ("InvalidParameterValue", "jobId")


@pytest.mark.parametrize(
    ("permissions", "status"),
    [
        ((), 404),
        (("view_instance", "view_inputs"), 403),
        (("view_instance", "view_inputs", "view_response"), 200),
    ],
)
def test_operator_needs_the_permissions_for_what_is_in_a_document(there, flag, permissions, status):
    job = there.execute("patient", user="ann", flag=flag)
    assert there.client("look", job.id, *permissions) == status


def test_instance_of_another_type_is_no_job(there):
    code = (
        "from tasks_of_tests.tasks import own;"
        "own.using(identifier='own', collection='user:anonymous').enqueue()"
    )
    there.shell(code)
    for job in ("own", "%00", "x" * 300):
        answer = requests.get(f"http://127.0.0.1:{there.port}/wps-jobs/{job}", timeout=30)
        assert answer.status_code == 404


def test_backend_pauses_resumes_cancels_and_purges(running, flag):
    job = running.execute("patient", flag=flag)
    wait_for(lambda: job.status == "ProcessStarted")
    running.client("call", "pause", job.id)
    wait_for(lambda: job.status == "ProcessPaused")
    assert running.client("call", "get_status", job.id) == "PAUSED"
    running.client("call", "resume", job.id)
    wait_for(lambda: job.status == "ProcessStarted")
    running.client("call", "cancel", job.id)
    wait_for(lambda: job.has_ended)
    assert job.exception[:2] == ("NoApplicableCode", "CANCELLED")
    assert running.client("call", "get_status", job.id) == "CANCELLED"
    running.client("call", "purge", job.id)
    assert job.get().status_code == 404
    assert running.notes(job)[-1] == ["discarded"]


def test_identifier_of_a_job_can_be_the_callers(there):
    assert there.client("execute_as", "mine") == "mine"
    assert there.client("execute_as", "mine") == "job_id: There is a job 'mine' already."
    assert there.client("execute_as", "a/b").startswith("job_id: 'a/b' cannot be")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ('["timeout"]', "must be a dictionary"),
        ('{"tiemout": 60}', "Did you mean 'timeout'?"),
        ('{"serializer": "json"}', "a process cannot choose serializer"),
    ],
)
def test_wrong_options_name_the_class(there, options, problem):
    code = (
        "from processes_of_tests import Patient; from atp.contrib.eoxserver.tasks import declare;"
        f"Patient.atp_options = {options}; declare(Patient())"
    )
    ended = there.shell(code, check=False)
    assert ended.returncode
    last = ended.stderr.splitlines()[-1]
    assert "processes_of_tests.Patient.atp_options" in last
    assert problem in last


def test_nothing_is_pickled():
    package = ROOT / "atp" / "contrib" / "eoxserver"
    assert [each.name for each in package.glob("*.py") if "pickle" in each.read_text()] == []
