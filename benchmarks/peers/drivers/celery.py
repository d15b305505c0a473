"""Celery: on Redis, prefork."""

import celery

from . import base

app = celery.Celery("peers", broker=f"redis+socket://{base.store()['path']}")
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)


@app.task(name="noop")
def noop(number):
    base.noop(number)


@app.task(name="stamp")
def stamp(number):
    base.stamp(number)


class Peer(base.Driver):
    async def enqueue(self, number):
        noop.delay(number)

    async def enqueue_stamp(self, number):
        stamp.delay(number)

    def work(self):
        base.become(
            "celery", f"--app={__name__}", "worker", "--loglevel=ERROR", *base.option("arguments")
        )
