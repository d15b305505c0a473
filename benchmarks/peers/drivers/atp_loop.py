"""ATP with coroutines in a loop, on uvloop."""

import uvloop
from django.core.management import call_command

from . import base
from .atp import Peer as Functions
from .atp import task_type

# The loops of a daemon are those of the policy.
uvloop.install()

CONCURRENCY = base.option("concurrency")


@task_type("peers.loop.noop", concurrency=CONCURRENCY)
async def noop(context, *, number):
    base.noop(number)


@task_type("peers.loop.stamp", concurrency=CONCURRENCY)
async def stamp(context, *, number):
    base.stamp(number)


class Peer(Functions):
    async def enqueue(self, number):
        noop.enqueue(number=number)

    async def enqueue_stamp(self, number):
        stamp.enqueue(number=number)

    async def enqueue_many(self, numbers):
        for some in base.calls(numbers):
            noop.enqueue_many({"number": number} for number in some)

    fill = enqueue_many

    def work(self):
        call_command("atpd", processes=1, loops=base.option("loops"))
