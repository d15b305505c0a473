"""chancy: by psycopg 3, tasks in threads."""

import asyncio
import logging

from chancy import Chancy, Queue, Worker, job

from . import base


@job()
def noop(*, number: int):
    base.noop(number)


@job()
def stamp(*, number: int):
    base.stamp(number)


class Peer(base.Driver):
    async def prepare(self):
        async with _chancy() as chancy:
            await chancy.migrate()
            queue = Queue(
                "default",
                concurrency=base.option("threads"),
                executor=Chancy.Executor.Threaded,
                polling_interval=1,
                eager_polling=True,
            )
            await chancy.declare(queue, upsert=True)

    async def connect(self):
        self._chancy = _chancy()
        await self._chancy.__aenter__()

    async def disconnect(self):
        await self._chancy.__aexit__(None, None, None)

    async def enqueue(self, number):
        await self._chancy.push(noop.job.with_kwargs(number=number))

    async def enqueue_stamp(self, number):
        await self._chancy.push(stamp.job.with_kwargs(number=number))

    async def enqueue_many(self, numbers):
        jobs = [noop.job.with_kwargs(number=number) for number in numbers]
        async for _ in self._chancy.push_many(jobs):
            pass

    fill = enqueue_many

    def work(self):
        asyncio.run(_work())


def _chancy():
    logger = logging.getLogger("chancy")
    logger.setLevel(logging.WARNING)
    return Chancy(base.postgres_url(), log=logger, min_connection_pool_size=1)


async def _work():
    async with _chancy() as chancy, Worker(chancy) as worker:
        worker.send_outgoing_interval = base.option("flush_every")
        await worker.wait_for_shutdown()
