"""The testing kit in a separate project with SQLite in memory, under pytest and Django's runner."""

import os
import subprocess
import sys

import pytest

from ..environment import ROOT

pytestmark = pytest.mark.processes

SETTINGS = """
SECRET_KEY = "of the test"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "atp", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}}
USE_TZ = True
MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
"""
TASKS = """
from atp import task_type
from django.core.mail import send_mail

@task_type("shop.invoice")
def invoice(context, *, order: int):
    send_mail("invoice", str(order), "a@example.com", ["b@example.com"])
    return order
"""
BY_PYTEST = """
import pytest
from django.db import connection
from shop.tasks import invoice

def test_in_a_transaction(atp, mailoutbox):
    assert connection.is_in_memory_db()
    invoice.enqueue(order=7)
    atp.assert_enqueued(invoice, order=7)
    assert [run.response for run in atp.drain(twice=True)] == [None, 7]
    assert len(mailoutbox) == 2

@pytest.mark.django_db(transaction=True)
def test_without_one(atp):
    with atp.inline():
        invoice.enqueue(order=7)
    assert [row.state for row in atp.enqueued(invoice)] == ["FINISHED"]

def test_no_daemon_sees_a_database_in_memory(transactional_db, atp):
    from atp.testing import NotPossible
    with pytest.raises(NotPossible, match="one in memory"):
        atp.daemon()
"""
BY_DJANGO = """
from django.test import TestCase
from atp.testing import QueueMixin
from shop.tasks import invoice

class InvoiceTests(QueueMixin, TestCase):
    def test_it(self):
        invoice.enqueue(order=7)
        [run] = self.atp.drain()
        self.assertEqual(run.response, 7)
"""


@pytest.fixture
def run(tmp_path):
    """Run a Python module in the project."""
    (tmp_path / "shop").mkdir()
    for name, text in {
        "settings.py": SETTINGS,
        "shop/__init__.py": "",
        "shop/tasks.py": TASKS,
        "shop/tests.py": BY_DJANGO,
        "test_shop.py": BY_PYTEST,
        "pytest.ini": "[pytest]\n",
    }.items():
        (tmp_path / name).write_text(text)
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    own |= {"DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}

    def run(*args):
        command = [sys.executable, "-m", *args]
        done = subprocess.run(
            command, cwd=tmp_path, env=own, capture_output=True, text=True, timeout=250
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_the_kit_works_in_a_project_under_pytest(run):
    status, told = run("pytest", "-q", "-W", "error", "-p", "no:randomly", "test_shop.py")
    assert (status, "3 passed" in told) == (0, True), told


@pytest.mark.long
def test_the_kit_works_in_a_project_under_manage_py_test(run):
    status, told = run("django", "test", "shop")
    assert (status, "Ran 1 test" in told) == (0, True), told


@pytest.mark.long
def test_pytest_without_django_offers_the_fixtures(run):
    _, told = run("pytest", "--fixtures", "-p", "no:django", "-p", "no:cacheprovider", "shop")
    assert "atp_daemon" in told, told
