"""django-tasks-db: the database backend of Django's tasks, one task at a time in each worker."""

from django.core.management import call_command

from . import base, project

project.set_up(
    "django_tasks",
    "django_tasks_db",
    TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
)

from . import tasks_of_django  # noqa: E402


class Peer(tasks_of_django.Driver):
    def work(self):
        call_command("db_worker", reload=False, verbosity=0, **base.option("worker"))
