"""ATP itself, by the same questions as its peers."""

import json
import os

from django.core.management import call_command

from . import base, project

project.set_up(
    "atp",
    options={"options": "-c client_connection_check_interval=1000"},
    ATP=json.loads(os.environ.get("BENCHMARK_ATP", "{}")),
)

from atp import Graph, task_type  # noqa: E402


@task_type("peers.noop")
def noop(context, *, number):
    base.noop(number)


@task_type("peers.stamp")
def stamp(context, *, number):
    base.stamp(number)


@task_type("peers.save")
def save(context, *, number):
    project.save(number)


@task_type("peers.nap")
def nap(context, *, number):
    base.nap(number)


class Peer(project.Driver):
    async def enqueue(self, number):
        noop.enqueue(number=number)

    async def enqueue_stamp(self, number):
        stamp.enqueue(number=number)

    async def enqueue_save(self, number):
        save.enqueue(number=number)

    async def enqueue_nap(self, number):
        nap.enqueue(number=number)

    async def enqueue_many(self, numbers):
        for some in base.calls(numbers):
            noop.enqueue_many({"number": number} for number in some)

    fill = enqueue_many

    async def fan(self, numbers):
        with Graph("fan") as graph:
            all_of_them = graph.map(noop, ({"number": number} for number in numbers))
            graph.add(stamp, number=base.LAST, after=all_of_them)

    def work(self):
        call_command("atpd", processes=base.option("processes"))
