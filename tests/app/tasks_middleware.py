"""Types that return what their enqueue has carried to them."""

from django.contrib.auth.models import Group
from django.utils import timezone, translation

from atp import task_type

from .middleware import tenant


def _surroundings():
    return [translation.get_language(), timezone.get_current_timezone_name(), tenant.get()]


@task_type("tests.carried")
def carried(context):
    return _surroundings()


@task_type("tests.carried.async")
async def carried_async(context):
    return _surroundings()


@task_type("tests.carried.on")
def carried_on(context):
    """Enqueue another task, which should get the same carried values."""
    return str(carried.enqueue().uuid)


@task_type("tests.carried.transactional", transactional=True)
def carried_transactional(context):
    Group.objects.create(name="in the handler")
    return _surroundings()
