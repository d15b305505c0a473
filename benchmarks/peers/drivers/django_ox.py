"""django-ox: a database backend of Django's tasks that takes back what a dead worker had."""

from django.core.management import call_command

from . import base, project

project.set_up(
    "django_tasks",
    "django_ox",
    TASKS={"default": {"BACKEND": "django_ox.backend.OxBackend"}},
)

from django_ox.bulk import enqueue_many  # noqa: E402

from . import tasks_of_django  # noqa: E402


class Peer(tasks_of_django.Driver):
    async def enqueue_many(self, numbers):
        for some in base.calls(numbers):
            enqueue_many(tasks_of_django.noop, [((number,), {}) for number in some])

    fill = enqueue_many

    def work(self):
        call_command("ox_worker", verbosity=0, **base.option("worker"))
