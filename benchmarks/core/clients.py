"""Clients: processes that do something at the same time, each with a connection of its own."""

import multiprocessing
import time

START_WITHIN = 60


class ClientError(Exception):
    """A client has failed; what it said itself stands on standard error."""


def named(count):
    """Return so many clients in words."""
    return "1 client" if count == 1 else f"{count} clients"


def rate(count, tasks, prepare):
    """Return how many tasks a second ``count`` clients do together.

    ``prepare()`` is called in each and returns what does one, of a number. They
    begin when all are prepared and have done one; it is over when the last has
    ended. Raises ClientError.
    """
    from django.db import connections

    numbers = range(max(tasks // count, 1))
    # Nothing is forked from a process that holds a connection.
    connections.close_all()
    fork = multiprocessing.get_context("fork")
    barrier, times = fork.Barrier(count), fork.SimpleQueue()
    clients = [
        fork.Process(target=_work, args=(prepare, numbers, barrier, times)) for _ in range(count)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    if any(client.exitcode for client in clients):
        raise ClientError(f"Clients ended with status {[client.exitcode for client in clients]}.")
    began, ended = zip(*(times.get() for _ in clients), strict=True)
    return count * len(numbers) / (max(ended) - min(began))


def _work(prepare, numbers, barrier, times):
    try:
        do = prepare()
        do(0)
        barrier.wait(START_WITHIN)
        began = time.monotonic()
        for number in numbers:
            do(number)
        times.put((began, time.monotonic()))
    except BaseException:
        barrier.abort()
        raise
