"""PgQueuer: by asyncpg on uvloop, tasks as coroutines in one process."""

import asyncio
import signal

import asyncpg
import pgqueuer
import uvloop

from . import base

uvloop.install()


class Peer(base.Driver):
    async def prepare(self):
        await self.connect()
        await self._queries.install()
        await self._queries.optimize_autovacuum()
        await self.disconnect()

    async def connect(self):
        self._connection = await asyncpg.connect(base.postgres_url())
        self._queries = pgqueuer.Queries.from_asyncpg_connection(self._connection)

    async def disconnect(self):
        await self._connection.close()

    async def enqueue(self, number):
        await self._queries.enqueue("noop", b"%d" % number)

    async def enqueue_stamp(self, number):
        await self._queries.enqueue("stamp", b"%d" % number)

    async def enqueue_many(self, numbers):
        for some in base.calls(numbers):
            payloads = [b"%d" % number for number in some]
            await self._queries.enqueue(["noop"] * len(some), payloads, [0] * len(some))

    fill = enqueue_many

    def work(self):
        asyncio.run(_work())


async def _work():
    connection = await asyncpg.connect(base.postgres_url())
    manager = pgqueuer.PgQueuer.from_asyncpg_connection(connection)

    @manager.entrypoint("noop")
    async def noop(job):
        base.noop(int(job.payload))

    @manager.entrypoint("stamp")
    async def stamp(job):
        base.stamp(int(job.payload))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, manager.shutdown.set)
    await manager.run(batch_size=base.option("batch"))
    await connection.close()
