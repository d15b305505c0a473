"""The asynchronous backend of EOxServer, in a server of EOxServer beside a daemon."""

import json
import os
import signal
from pathlib import Path
from xml.etree import ElementTree

import pytest
import requests

from tests import packages
from tests.conformance.fetching import ROOT
from tests.eoxserver import site
from tests.helpers import wait_for

from .sites import Site

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
    def element(self):
        """The element that says how the job is doing."""
        return self.document.find(f"{WPS}Status")[0]

    @property
    def status(self):
        """Its name, without its namespace."""
        return self.element.tag.removeprefix(WPS)

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


class Eoxserver(Site):
    def __init__(self, python, folder):
        environment, self.port = site.write(folder)
        super().__init__(python, folder, environment)
        self.url = f"http://127.0.0.1:{self.port}/ows"
        self.run("python", "-m", "django", "migrate", "--verbosity", "0")

    def client(self, *arguments):
        """Return what a function of :mod:`tests.eoxserver.clients` returns."""
        return json.loads(self.run("python", CLIENTS, *arguments).stdout.splitlines()[-1])

    def shell(self, code, check=True):
        command = ["python", "-m", "django", "shell", "--no-imports", "-c", code]
        return self.run(*command, check=check)

    def server(self):
        command = ["python", "-m", "django", "runserver", "--noreload", str(self.port)]
        return self.start_server(*command, at=f"{self.url}?service=WPS&request=GetCapabilities")

    def daemon(self):
        return self.start("python", "-m", "django", "atpd", "--processes", "1")

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
        return [line.replace(job.id, "").split() for line in lines if job.id in line]

    def count(self):
        """Return the number of all jobs."""
        return int(self.shell("from atp import queue; print(queue.size())").stdout)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    try:
        python = site.require()
    except packages.NotInstalled as error:
        pytest.skip(f"EOxServer cannot run here: {error}")
    found = Eoxserver(python, tmp_path_factory.mktemp("eoxserver"))
    try:
        found.server()
        yield found
    finally:
        for process in [*found.processes]:
            found.kill(process)


@pytest.fixture
def there(served):
    """The site with its server, and without daemons."""
    yield served
    for process in served.processes[1:]:
        served.kill(process)


@pytest.fixture
def running(there):
    there.daemon()
    return there


def test_clients_of_others_execute_and_monitor(running, flag):
    flag.touch()
    found = running.client("owslib", running.url, str(flag))
    assert {"patient", "repeated"} <= set(found["processes"])
    assert (found["first"], found["status"]) == ("ProcessAccepted", "ProcessSucceeded")
    assert (found["outputs"], found["errors"]) == ({"found": [str(flag)]}, [])
    found = running.client("birdy", running.url, str(flag))
    assert found == {"status": "ProcessSucceeded", "outputs": {"found": str(flag)}}


def test_status_shows_the_progress(running, flag):
    job = running.execute("patient", flag=flag)
    wait_for(lambda: job.element.get("percentCompleted") == "50")
    assert (job.status, job.element.text) == ("ProcessStarted", "half of it")
    flag.touch()
    wait_for(lambda: job.status == "ProcessSucceeded")
    assert job.outputs == {"found": [str(flag)]}
    assert running.notes(job) == [["started", "0", "None"], ["succeeded", "['found']"]]


def test_job_is_there_in_the_moment_of_its_answer_and_says_why_it_waits(there, flag):
    job = there.execute("patient", flag=flag)
    assert (job.status, "No daemon" in job.element.text) == ("ProcessAccepted", True)


@pytest.mark.parametrize("victim", ["worker", "daemon"])
def test_job_succeeds_once_after_a_kill(there, flag, victim):
    daemon = there.daemon()
    job = there.execute("patient", flag=flag)
    pid = Path(f"{flag}.pid")
    wait_for(lambda: job.status == "ProcessStarted" and pid.exists())
    if victim == "worker":
        os.kill(int(pid.read_text()), signal.SIGKILL)
    else:
        there.kill(daemon)
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


def test_error_of_a_job_is_that_of_its_document(running):
    """That of decoding has its locator."""
    broken, odd = running.execute("broken"), running.execute("repeated", number="many")
    missing = Job(running.client("reference", "cid:other"))
    for job in (broken, odd, missing):
        wait_for(lambda job=job: job.has_ended)
    assert broken.exception == ("NoApplicableCode", "RuntimeError", "it is broken")
    code, locator, text = odd.exception
    assert (code, locator) == ("InvalidParameterValue", "number")
    assert "Invalid input value" in text
    assert missing.exception[:2] == ("InvalidParameterValue", "text")


def test_wrong_request_is_refused_and_is_no_job(there):
    """Its process refuses it, its document cannot be drawn, or it is too large."""
    before = there.count()
    choosy = there.request("choosy", flag="wrong")
    undrawable = there.request("repeated", lineage=True, number=1, box="here")
    body = SENT.format(flag="x" * 2**20)
    large = requests.post(there.url, body, headers={"Content-Type": "text/xml"}, timeout=60)
    assert {each.status_code for each in (choosy, undrawable, large)} == {400}
    found = exception_of(ElementTree.fromstring(choosy.content))
    assert found == ("InvalidParameterValue", "flag", "This flag is refused.")
    code, locator, text = exception_of(ElementTree.fromstring(large.content))
    assert (code, locator) == ("FileSizeExceeded", "DataInputs")
    assert "the limit is" in text
    assert there.count() == before


def test_full_queue_is_busy(there):
    there.execute("choosy", flag="right")
    answer = there.request("choosy", flag="right")
    assert exception_of(ElementTree.fromstring(answer.content))[0] == "ServerBusy"


def test_inputs_of_every_kind_arrive(running, flag):
    """A lineage shows those that a process has as a dictionary, too."""
    text = "word@mimeType=text/plain"
    values = running.execute("repeated", number=1, box="0,10,20,30", text=text)
    part = Job(running.client("reference", "cid:part"))
    flag.touch()
    keyed = running.execute("keyed", lineage=True, flag=flag)
    for job in (values, part, keyed):
        wait_for(lambda job=job: job.has_ended)
    assert values.outputs == {"number": ["5"], "box": ["0", "10", "20", "30"]}
    assert part.outputs == {"number": ["3"]}
    assert keyed.document.find(f"{WPS}DataInputs/{WPS}Input/{OWS}Identifier").text == "flag"


def test_published_file_is_the_owners(running):
    job = running.execute("publisher", user="ann")
    wait_for(lambda: job.has_ended)
    address = next(job.document.iter(f"{WPS}Reference")).get("href")
    answers = [
        requests.get(address, headers={"X-User": user}, timeout=30) for user in ("ann", "bob")
    ]
    assert [each.status_code for each in answers] == [200, 404]
    assert answers[0].text == "published"


def test_job_of_somebody_else_is_there_only_for_operators(there, flag):
    job = there.execute("patient", user="ann", flag=flag)
    assert (job.get().status_code, job.get("bob").status_code) == (200, 404)
    code, locator, _ = exception_of(ElementTree.fromstring(job.get("bob").content))
    assert (code, locator) == ("InvalidParameterValue", "jobId")
    # An operator needs the permissions for what is in the document.
    names = "view_instance", "view_inputs", "view_response"
    for permissions, status in (((), 404), (names[:2], 403), (names, 200)):
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
