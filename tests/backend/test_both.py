"""django.tasks and its backport can be used in one process, and are loaded only on demand."""

from importlib.util import find_spec

import pytest

from tests.helpers import run_python

pytestmark = pytest.mark.processes
needs_both = pytest.mark.skipif(
    not (find_spec("django.tasks") and find_spec("django_tasks")),
    reason="not both are there: Django 6 and the package django-tasks",
)

_IMPORT = """
import sys
import atp, atp.apps, atp.exceptions, atp.signals
print([name for name in ("django.tasks", "django_tasks", "atp.backend") if name in sys.modules])
"""

_BOTH = """
import pickle
import django
django.setup()

from django.core.checks import run_checks
from django.db import transaction
import django.tasks, django_tasks
from django.tasks import exceptions, signals, task_backends
from django_tasks import exceptions as old_exceptions, signals as old_signals
from atp import queue
from atp.backend import ATPBackend, ATPTask
from tests.backend import tasks

assert type(task_backends["default"]) is type(django_tasks.task_backends["default"]) is ATPBackend

def cube(number):
    return number ** 3

made = django_tasks.task(timeout=60)(cube)
assert type(made) is type(tasks.add) is ATPTask and made.timeout == 60

told = []
def receive(sender, task_result, **kwargs):
    told.append(sender)
for each in (signals, old_signals):
    each.task_enqueued.connect(receive)

queue.register_all()
for task in (made, tasks.add):
    result = task.enqueue(2)
    assert result.status == django.tasks.TaskResultStatus.READY
    assert result.status == django_tasks.TaskResultStatus.READY
    for backends in (django.tasks.task_backends, django_tasks.task_backends):
        assert backends["default"].get_result(result.id) == result
    queue.cancel(result.id)
    queue.delete(result.id)
assert told == [ATPBackend] * 4

for call in (lambda: made.get_result("x"), lambda: made.using(queue_name="two\\nlines")):
    try:
        call()
    except exceptions.TaskException as error:
        assert isinstance(error, old_exceptions.TaskException), type(error).__mro__
    else:
        raise AssertionError("no error")
assert [m for m in run_checks() if m.id and m.id.startswith("atp.E")] == []
print("both")
"""


def test_importing_atp_loads_neither_task_package():
    assert run_python(_IMPORT, "-W", "error") == "[]\n"


@needs_both
def test_one_setting_serves_django_tasks_and_its_backport(transactional_db):
    """A task of either package is an ATPTask; results, errors and signals work with both."""
    assert run_python(_BOTH, "-W", "error") == "both\n"
