"""No queue at all: processes that make the calls of the handlers in a plain loop."""

import multiprocessing
import signal

from . import base, project

project.set_up()


class Peer(project.Driver):
    async def enqueue_save(self, number):
        """Nothing: each process knows its share."""

    def work(self):
        from django.db import connection

        from benchmarks.models import Counter

        numbers = list(Counter.objects.order_by("pk").values_list("pk", flat=True))
        # Nothing is forked from a process that holds a connection.
        connection.close()
        fork = multiprocessing.get_context("fork")
        count = base.option("processes")
        for share in range(count):
            fork.Process(target=_save, args=(numbers[share::count],)).start()
        # As a worker it is there until it is stopped.
        signal.pause()


def _save(numbers):
    for number in numbers:
        project.save(number)
