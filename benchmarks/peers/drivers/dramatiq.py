"""dramatiq: on Redis, tasks in threads of several processes."""

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from . import base

broker = RedisBroker(url=f"unix://{base.store()['path']}")
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(number):
    base.noop(number)


@dramatiq.actor
def stamp(number):
    base.stamp(number)


class Peer(base.Driver):
    async def enqueue(self, number):
        noop.send(number)

    async def enqueue_stamp(self, number):
        stamp.send(number)

    def work(self):
        base.become("dramatiq", __name__, *base.option("arguments"))
