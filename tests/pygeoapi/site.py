"""A project and a configuration of pygeoapi in a folder, for daemons and web servers."""

import os

from tests.conformance.fetching import SQLITE, free_port

SETTINGS = """
from pathlib import Path

FOLDER = Path(__file__).parent
SECRET_KEY = "of the tests only"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes"]
INSTALLED_APPS += ["atp", "atp.contrib.pygeoapi"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": FOLDER / "db.sqlite3",
    }
}
USE_TZ = True
MEDIA_ROOT = FOLDER / "media"
"""
SETTINGS += SQLITE
# A process that waits for a file, and one that returns a text in the encoding of its media type.
PROCESSES = """
import time
from pathlib import Path

from pygeoapi.process.base import BaseProcessor

METADATA = {
    "id": "patient",
    "version": "1.0.0",
    "title": "Patient",
    "description": "Wait for a file.",
    "jobControlOptions": ["sync-execute", "async-execute"],
    "keywords": [],
    "links": [],
    "inputs": {"flag": {"title": "flag", "schema": {"type": "string"}}},
    "outputs": {"found": {"title": "found", "schema": {"type": "string"}}},
}


class Patient(BaseProcessor):
    def __init__(self, processor_def):
        super().__init__(processor_def, METADATA)

    def execute(self, data, outputs=None):
        while not Path(data["flag"]).exists():
            time.sleep(0.05)
        return "application/json", {"found": data["flag"]}


class Typewriter(BaseProcessor):
    def __init__(self, processor_def):
        super().__init__(processor_def, METADATA | {"id": "typewriter"})

    def execute(self, data, outputs=None):
        media_type, _, charset = data["type"].partition("; charset=")
        if charset:
            return data["type"], data["text"].encode(charset)
        return data["type"], {"text": data["text"]}
"""
CONFIG = """
server:
    bind: {{host: 127.0.0.1, port: {port}}}
    url: http://127.0.0.1:{port}
    mimetype: application/json; charset=UTF-8
    encoding: utf-8
    language: en-US
    map: {{url: "http://127.0.0.1/", attribution: none}}
    manager:
        name: atp.contrib.pygeoapi.Manager
        connection: site_of_tests
logging: {{level: ERROR}}
metadata:
    identification:
        title: Tests
        description: Tests
        keywords: [tests]
        keywords_type: theme
        terms_of_service: none
        url: http://127.0.0.1
    license: {{name: none, url: "http://127.0.0.1"}}
    provider: {{name: none, url: "http://127.0.0.1"}}
    contact: {{name: none, email: nobody@127.0.0.1}}
resources:
    hello-world:
        type: process
        processor: {{name: HelloWorld}}
    patient:
        type: process
        processor: {{name: processes_of_tests.Patient}}
    typewriter:
        type: process
        processor: {{name: processes_of_tests.Typewriter}}
"""


def write(folder):
    """Write a project and a configuration to a folder; return environment and port of a server.

    The environment of a daemon also needs DJANGO_SETTINGS_MODULE; the configuration has it.
    """
    port = free_port()
    (folder / "site_of_tests.py").write_text(SETTINGS)
    (folder / "processes_of_tests.py").write_text(PROCESSES)
    (folder / "config.yml").write_text(CONFIG.format(port=port))
    own = {
        "PYTHONPATH": str(folder),
        "PYGEOAPI_CONFIG": str(folder / "config.yml"),
        "PYGEOAPI_OPENAPI": str(folder / "openapi.yml"),
    }
    inherited = {key: each for key, each in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
    return inherited | own, port
