"""procrastinate in a Django project: tasks are functions, which its workers call in threads."""

from django.core.management import call_command

from . import project

project.set_up("procrastinate.contrib.django")

from procrastinate.contrib.django import app  # noqa: E402


@app.task(name="save")
def save(number):
    project.save(number)


class Peer(project.Driver):
    async def enqueue_save(self, number):
        save.defer(number=number)

    def work(self):
        call_command("procrastinate", "worker")
