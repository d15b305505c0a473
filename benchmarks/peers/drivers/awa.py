"""awa: its Rust core calls tasks as coroutines in one process."""

import asyncio
import signal
from dataclasses import dataclass

import awa

from . import base


@dataclass
class Noop:
    number: int


@dataclass
class Stamp:
    number: int


class Peer(base.Driver):
    async def prepare(self):
        client = _client()
        await client.migrate()
        # What the first worker of a new installation would do.
        await client.install_queue_storage()
        await client.close()

    async def connect(self):
        self._client = _client()

    async def disconnect(self):
        await self._client.close()

    async def enqueue(self, number):
        await self._client.insert(Noop(number))

    async def enqueue_stamp(self, number):
        await self._client.insert(Stamp(number))

    async def enqueue_many(self, numbers):
        for some in base.calls(numbers):
            await self._client.enqueue_many_copy([Noop(number) for number in some])

    fill = enqueue_many

    def work(self):
        asyncio.run(_work())


def _client():
    return awa.AsyncClient(base.postgres_url(), max_connections=base.option("connections"))


async def _work():
    client = _client()

    @client.task(Noop)
    async def noop(job):
        base.noop(job.args.number)

    @client.task(Stamp)
    async def stamp(job):
        base.stamp(job.args.number)

    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await client.start([{"name": "default", **base.option("queue")}])
    await stopped.wait()
    await client.shutdown()
