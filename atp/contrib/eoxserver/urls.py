"""The URLs of jobs: their documents, and the files that they have published.

Include them with ``path("wps-jobs/", include("atp.contrib.eoxserver.urls"))``.
"""

from __future__ import annotations

import posixpath

from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import path
from django.views.decorators.http import require_safe
from eoxserver.services.ows.common.v11.encoders import OWS11ExceptionXMLEncoder
from rest_framework.exceptions import NotAuthenticated

from ... import queue
from ...models import Instance
from ...ogc import access
from ...reports import documents
from ...states import State
from ...web import permissions, raw
from . import jobs
from .backend import with_user

_XML = "application/xml; charset=utf-8"
_NAME = "ExecuteResponse"


@require_safe
def job_view(request: HttpRequest, job: str) -> HttpResponseBase:
    """Answer with the ExecuteResponse of a job."""
    instance = _find(request, job)
    if instance is None:
        return _no_such_job(job)
    if instance.state == State.FINISHED:
        answer = raw.response_with_body(queue.response(instance), _NAME)
        answer["Content-Disposition"] = f'inline; filename="{_NAME}.xml"'
        return answer
    return _xml(jobs.document(instance))


@require_safe
def file_view(request: HttpRequest, job: str, attempt: int, name: str) -> HttpResponseBase:
    """Answer with a file that the process has published."""
    instance = _find(request, job)
    response = None if instance is None else queue.response(instance)
    for number, file in enumerate([] if response is None else documents.files(response)):
        if file["attempt"] == attempt and posixpath.basename(file["path"]) == name:
            return raw.response_with_file(response, number)
    raise Http404("There is no such file.")


def _find(request: HttpRequest, job: str) -> Instance | None:
    """Return a job that the client may see; that of somebody else does not exist for him.

    Raises PermissionDenied for an operator who may see the job, and not what is in its documents.
    """
    instance = jobs.find(job)
    try:
        if instance is None or not access.may_see(with_user(request), instance):
            return None
    except NotAuthenticated:
        return None
    for permission in (permissions.VIEW_INPUTS, permissions.VIEW_RESPONSE):
        access.require(request, instance, permission)
    return instance


def _no_such_job(job: str) -> HttpResponse:
    encoder = OWS11ExceptionXMLEncoder()
    text = f"There is no job {job!r}."
    report = encoder.encode_exception(text, "1.1.0", "InvalidParameterValue", "jobId")
    return _xml(encoder.serialize(report), status=404)


def _xml(content: bytes, status: int = 200) -> HttpResponse:
    """Return a document of which a browser runs nothing: it may hold what a client has sent."""
    answer = HttpResponse(content, content_type=_XML, status=status)
    answer["X-Content-Type-Options"] = "nosniff"
    answer["Content-Security-Policy"] = "default-src 'none'; sandbox"
    answer["Cache-Control"] = "private, no-store"
    return answer


app_name = "atp_eoxserver"
urlpatterns = [
    path("<str:job>", job_view, name="job"),
    path("<str:job>/files/<int:attempt>/<str:name>", file_view, name="file"),
]
