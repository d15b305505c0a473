"""django-ox: a database backend of Django's tasks that takes back what a dead worker had."""

from django.core.management import call_command

from . import base, project

project.set_up(
    "django_tasks",
    "django_ox",
    TASKS={"default": {"BACKEND": "django_ox.backend.OxBackend"}},
)

from django_ox.bulk import enqueue_many  # noqa: E402
from django_tasks import task  # noqa: E402


@task()
def noop(number):
    base.noop(number)


@task()
def stamp(number):
    base.stamp(number)


@task()
def save(number):
    project.save(number)


@task()
def nap(number):
    base.nap(number)


class Peer(project.Driver):
    async def enqueue(self, number):
        noop.enqueue(number)

    async def enqueue_stamp(self, number):
        stamp.enqueue(number)

    async def enqueue_save(self, number):
        save.enqueue(number)

    async def enqueue_nap(self, number):
        nap.enqueue(number)

    async def enqueue_many(self, numbers):
        for some in base.calls(numbers):
            enqueue_many(noop, [((number,), {}) for number in some])

    fill = enqueue_many

    def work(self):
        call_command("ox_worker", verbosity=0, **base.option("worker"))
