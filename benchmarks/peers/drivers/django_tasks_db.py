"""django-tasks-db: the database backend of Django's tasks, one task at a time in each worker."""

from django.core.management import call_command

from . import base, project

project.set_up(
    "django_tasks",
    "django_tasks_db",
    TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
)

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

    def work(self):
        call_command("db_worker", reload=False, verbosity=0, **base.option("worker"))
