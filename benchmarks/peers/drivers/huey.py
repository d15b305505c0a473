"""huey: on PostgreSQL, Redis or SQLite, by its own consumer."""

import huey

from . import base

_STORES = {
    "postgres": lambda: huey.PostgresHuey("peers", dsn=base.postgres_url(), results=False),
    "redis": lambda: huey.RedisHuey("peers", url=f"unix://{base.store()['path']}", results=False),
    "sqlite": lambda: huey.SqliteHuey(
        "peers", filename=base.store()["path"], fsync=True, results=False
    ),
}
queue = _STORES[base.option("store")]()


@queue.task()
def noop(number):
    base.noop(number)


@queue.task()
def stamp(number):
    base.stamp(number)


class Peer(base.Driver):
    """Its tables are made when the queue is."""

    async def enqueue(self, number):
        noop(number)

    async def enqueue_stamp(self, number):
        stamp(number)

    def work(self):
        base.become(
            "huey_consumer",
            f"{__name__}.queue",
            "--quiet",
            "--graceful-signal=TERM",
            "--no-periodic",
            *base.option("arguments"),
        )
