"""Celery's chord: on Redis, which keeps the results that the chord counts."""

import celery

from . import base

_URL = f"redis+socket://{base.store()['path']}"

app = celery.Celery("chords", broker=_URL, backend=_URL)
app.conf.update(broker_connection_retry_on_startup=True)


@app.task(name="noop")
def noop(number):
    base.noop(number)


@app.task(name="stamp", ignore_result=True)
def stamp(number):
    base.stamp(number)


class Peer(base.Driver):
    async def enqueue_stamp(self, number):
        stamp.delay(number)

    async def fan(self, numbers):
        celery.chord(noop.si(number) for number in numbers)(stamp.si(base.LAST))

    def work(self):
        base.become(
            "celery", f"--app={__name__}", "worker", "--loglevel=ERROR", *base.option("arguments")
        )
