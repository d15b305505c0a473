"""Bodies without a Content-Length, and files that are sent in parts.

A body without a length is rejected, because ignoring the body would turn a dry run into a real
one.
"""

import asyncio
import json

import pytest
from asgiref.testing import ApplicationCommunicator
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.http import FileResponse
from django.test import AsyncRequestFactory
from rest_framework.authentication import SessionAuthentication

from atp.conf import settings
from atp.models import Instance
from tests.asgi import application

from .client import refusal

DRY = json.dumps({"dry_run": True}).encode()
IN_TIME = 120


async def asked(api, method, path, body=b"", **headers):
    """Yield the status and the parts of the body of a response under ASGI."""
    factory = AsyncRequestFactory()
    factory.cookies = api.client.cookies
    given = {"content-type": "application/json", **headers}
    scope = factory.generic(method, path, headers=given).scope
    server = ApplicationCommunicator(application, scope)
    await server.send_input({"type": "http.request", "body": body, "more_body": False})
    start = await server.receive_output(IN_TIME)
    while True:
        part = await server.receive_output(IN_TIME)
        yield start["status"], part.get("body", b"")
        if not part.get("more_body"):
            break
    await server.wait(IN_TIME)


async def status(*given, **headers):
    return [status async for status, _ in asked(*given, **headers)][-1]


@pytest.mark.django_db(transaction=True)
def test_a_body_without_a_length_is_rejected(full, api, monkeypatch):
    address, before = f"/atp/api/errors/{full.error().name}/delete", Instance.objects.count()
    chunked = {"HTTP_TRANSFER_ENCODING": "chunked", "CONTENT_LENGTH": ""}
    answer = api.client.generic("POST", address, DRY, "application/json", **chunked)
    assert refusal(answer) == (400, "bad-request")
    monkeypatch.setattr(SessionAuthentication, "enforce_csrf", lambda *given: None)
    for headers, expected in (
        ({}, 400),
        ({"transfer-encoding": "chunked"}, 400),
        ({"content-length": str(len(DRY))}, 200),
    ):
        assert asyncio.run(status(api, "POST", address, DRY, **headers)) == expected
    assert Instance.objects.count() == before


@pytest.mark.django_db(transaction=True)
def test_a_file_is_streamed_under_asgi(full, api, monkeypatch):
    """By default Django would read the whole file before it sends the first byte."""
    data, read = b"x" * 2**21, []
    name = storages[settings.STORAGE].save("big.bin", ContentFile(data))
    kind = "application/octet-stream"
    done = full.finished(content_type=kind, file=name, size=len(data), data=None)
    whole = FileResponse._set_streaming_content

    def watched(self, value):
        whole(self, value)
        parts = self._iterator

        def counted():
            for part in parts:
                read.append(len(part))
                yield part

        self._iterator = counted()

    monkeypatch.setattr(FileResponse, "_set_streaming_content", watched)

    async def run():
        sent, most = 0, 0
        async for _, part in asked(api, "GET", f"/atp/api/instances/{done.uuid}/response"):
            sent += len(part)
            most = max(most, sum(read) - sent)
        return sent, most

    sent, most = asyncio.run(run())
    assert sent == len(data)
    assert most < len(data) / 2
