"""EOxServer's project of tests, whose Execute requests for a document run as jobs of ATP.

The settings name this module's classes. A process of the tests is asynchronous while a request is
executed, and only then: the descriptions of processes stay as the tests expect them.
"""

import importlib
import re
from contextlib import contextmanager

from django.test import Client
from django.test.runner import DiscoverRunner
from eoxserver.services.ows.wps.v10.execute import WPS10ExecuteHandler
from lxml import etree

LOCATION = re.compile(rb' statusLocation="[^"]*"')
# The addresses of the documents that the backend has drawn.
drawn = []
is_executing = True


@contextmanager
def executing(value):
    global is_executing
    before, is_executing = is_executing, value
    try:
        yield
    finally:
        is_executing = before


def __getattr__(name):
    """Return a class of processes, made asynchronous; its name has ``-`` in place of dots."""
    if "-" not in name:
        raise AttributeError(name)
    module, _, name = name.replace("-", ".").rpartition(".")
    synchronous = getattr(importlib.import_module(module), name)
    process = synchronous()
    changed = {
        # EOxServer takes it as the description of the process.
        "__doc__": synchronous.__doc__,
        "asynchronous": property(lambda self: is_executing),
        "execute": lambda self, context=None, **inputs: process.execute(**inputs),
    }
    return type(name, (synchronous,), changed)


class Asynchronous:
    """A decoded request that wants an asynchronous execution."""

    def __init__(self, decoder):
        self.identifier, self.inputs = decoder.identifier, decoder.inputs
        self.response_form = decoder.response_form
        self.response_form.store_response = self.response_form.status = True


class ExecuteHandler(WPS10ExecuteHandler):
    """Executes by ATP what EOxServer would execute while the client waits.

    A raw output, which no asynchronous execution has, stays with EOxServer.
    """

    @staticmethod
    def get_decoder(request):
        decoder = WPS10ExecuteHandler.get_decoder(request)
        return decoder if decoder.response_form.raw else Asynchronous(decoder)

    def handle(self, request):
        if self.get_decoder(request).response_form.raw:
            return super().handle(request)
        with executing(True):
            content, content_type = super().handle(request)
            return _document_of_end(content), content_type


def _document_of_end(accepted):
    """Run the job that EOxServer has accepted; return its document, without its address."""
    from atp.testing import Kit

    address = etree.fromstring(accepted).get("statusLocation")
    with Kit() as kit:
        kit.drain(raises=False)
    answer = Client().get(address)
    content = b"".join(answer) if answer.streaming else answer.content
    drawn.append(address)
    return LOCATION.sub(b"", content, count=1)


class Runner(DiscoverRunner):
    """Runs the tests; fails if the backend has drawn no document."""

    def run_suite(self, suite, **options):
        with executing(False):
            return super().run_suite(suite, **options)

    def suite_result(self, suite, result, **options):
        print(f"The backend has drawn {len(drawn)} documents.")
        return super().suite_result(suite, result, **options) + (not drawn)


def lane(request):
    return "user:tests"
