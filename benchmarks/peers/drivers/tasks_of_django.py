"""The tasks of every peer that is a backend of Django's tasks: imported when there are settings."""

from django_tasks import task

from . import base, project


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


class Driver(project.Driver):
    async def enqueue(self, number):
        noop.enqueue(number)

    async def enqueue_stamp(self, number):
        stamp.enqueue(number)

    async def enqueue_save(self, number):
        save.enqueue(number)

    async def enqueue_nap(self, number):
        nap.enqueue(number)
