"""arq: on Redis, tasks as coroutines."""

import arq
from arq.connections import RedisSettings

from . import base

_REDIS = RedisSettings(unix_socket_path=base.store()["path"])


async def noop(context, number):
    base.noop(number)


async def stamp(context, number):
    base.stamp(number)


class Peer(base.Driver):
    async def connect(self):
        self._pool = await arq.create_pool(_REDIS)

    async def disconnect(self):
        await self._pool.aclose()

    async def enqueue(self, number):
        await self._pool.enqueue_job("noop", number)

    async def enqueue_stamp(self, number):
        await self._pool.enqueue_job("stamp", number)

    def work(self):
        arq.run_worker(
            {"functions": [noop, stamp], "redis_settings": _REDIS}, **base.option("worker")
        )
