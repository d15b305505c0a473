"""huey in a Django project: on Redis, with its tasks for those who use the database."""

from django.core.management import call_command

from . import base, project

project.set_up(
    "huey.contrib.djhuey",
    HUEY={
        "name": "peers",
        "connection": {"url": f"unix://{base.store()['path']}"},
        "consumer": base.option("consumer"),
    },
)

from huey.contrib.djhuey import db_task  # noqa: E402


@db_task()
def save(number):
    project.save(number)


class Peer(project.Driver):
    async def enqueue_save(self, number):
        save(number)

    def work(self):
        call_command("run_huey")
