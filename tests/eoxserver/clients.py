"""Runs a client of WPS, or the backend: ``python clients.py NAME [ARGUMENT…]``.

The environment with EOxServer runs this, so nothing of the tests is imported. It prints what it has
understood, as JSON.
"""

import json
import sys


def owslib(url, flag):
    """Execute a process by OWSLib, and wait for its end."""
    from owslib.wps import ASYNC, WebProcessingService, monitorExecution

    service = WebProcessingService(url, version="1.0.0")
    execution = service.execute("patient", [("flag", flag)], output=[("found", False)], mode=ASYNC)
    first = execution.status
    monitorExecution(execution, sleepSecs=0.1)
    return {
        "processes": sorted(each.identifier for each in service.processes),
        "first": first,
        "status": execution.status,
        "outputs": {each.identifier: each.data for each in execution.processOutputs},
        "errors": [each.text for each in execution.errors],
    }


def birdy(url, flag):
    """Execute a process by birdy, which executes asynchronously in its interactive mode."""
    from birdy import WPSClient

    execution = WPSClient(url, progress=True).patient(flag=flag)
    return {"status": execution.status, "outputs": execution.get()._asdict()}


def backend():
    from eoxserver.services.ows.wps.util import get_async_backends

    [found] = get_async_backends()
    return found


def reference(href):
    """Enqueue a job with a reference to a part of its request; return the job's address."""
    from django.test import RequestFactory
    from eoxserver.services.ows.wps.parameters import InputData, InputReference, ResponseDocument
    from eoxserver.services.ows.wps.util import get_process_by_identifier

    inputs = {
        "number": InputData("0", "number"),
        "text": InputReference(href, "text", mime_type="text/plain"),
    }
    form = ResponseDocument(lineage=False, status=True, store_response=True)
    process = get_process_by_identifier("repeated")
    parts, request = {"part": b"\xc3\xa9t\xc3\xa9"}, RequestFactory().get("/")
    job = backend().execute(process, inputs, form, parts, request=request)
    return backend().get_response_url(job)


def execute_as(job):
    """Enqueue a job under an identifier of the caller's; return the job, or what is wrong."""
    from eoxserver.services.ows.wps.exceptions import OWS10Exception
    from eoxserver.services.ows.wps.parameters import ResponseDocument
    from eoxserver.services.ows.wps.util import get_process_by_identifier

    try:
        process = get_process_by_identifier("patient")
        return backend().execute(process, {}, ResponseDocument(), job_id=job)
    except OWS10Exception as error:
        return f"{error.locator}: {error}"


def call(name, job):
    """Call a method of the backend."""
    return getattr(backend(), name)(job)


def look(job, *permissions):
    """Look at the document of a job as an operator with these permissions; return the status."""
    from django.contrib.auth.models import Permission, User
    from django.core.exceptions import PermissionDenied
    from django.test import RequestFactory

    from atp.contrib.eoxserver.urls import job_view

    user, _ = User.objects.get_or_create(username="operator")
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    request = RequestFactory().get("/", headers={"X-User": "operator"})
    request.user = user
    try:
        return job_view(request, job).status_code
    except PermissionDenied:
        return 403


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    if name not in ("owslib", "birdy"):
        import django

        django.setup()
    print(json.dumps(globals()[name](*arguments)))
