"""django-q2: by Django's ORM, tasks in worker processes."""

from django.core.management import call_command

from . import base, project

project.set_up(
    "django_q",
    Q_CLUSTER={
        "name": "peers",
        "orm": "default",
        "timeout": 60,
        "retry": 120,
        "log_level": "WARNING",
        **base.option("cluster"),
    },
)

from django_q.tasks import async_task  # noqa: E402


def noop(number):
    base.noop(number)


def stamp(number):
    base.stamp(number)


class Peer(project.Driver):
    async def enqueue(self, number):
        async_task(noop, number)

    async def enqueue_stamp(self, number):
        async_task(stamp, number)

    def work(self):
        call_command("qcluster")
