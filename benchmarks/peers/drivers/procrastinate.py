"""procrastinate: by psycopg 3, tasks as coroutines."""

import asyncio

import procrastinate

from . import base

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(
        conninfo=base.postgres_url(), min_size=1, max_size=base.option("connections")
    )
)


@app.task(name="noop")
async def noop(number):
    base.noop(number)


@app.task(name="stamp")
async def stamp(number):
    base.stamp(number)


class Peer(base.Driver):
    async def prepare(self):
        with app.open():
            app.schema_manager.apply_schema()

    async def connect(self):
        app.open()

    async def disconnect(self):
        app.close()

    async def enqueue(self, number):
        noop.defer(number=number)

    async def enqueue_stamp(self, number):
        stamp.defer(number=number)

    async def enqueue_many(self, numbers):
        for some in base.calls(numbers):
            noop.batch_defer(*({"number": number} for number in some))

    fill = enqueue_many

    def work(self):
        asyncio.run(_work())


async def _work():
    async with app.open_async():
        await app.run_worker_async(concurrency=base.option("concurrency"))
