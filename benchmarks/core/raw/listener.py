"""A listener and a handler, a process each: the least that a queue needs to start a task."""

import multiprocessing
import socket
import struct
import time
from contextlib import contextmanager

from ..told import tell
from . import raw_queue

START_WITHIN = 30
_NOTICE = struct.Struct("qq")
_NUMBER = struct.Struct("q")


@contextmanager
def starting(identifier):
    """Run both until the end of the block; give what enqueues a number so that they hear of it.

    The handler tells the number and when it was entered.
    """
    from django.db import connections

    raw = raw_queue(identifier)
    daemon = raw.join()
    # Nothing is forked from a process that holds a connection.
    connections.close_all()
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(3)
    mouth, ear = socket.socketpair()
    hands = socket.socketpair()
    processes = [
        fork.Process(target=_listen, args=(identifier, daemon, ear, hands[0], barrier)),
        fork.Process(target=_handle, args=(hands[1], barrier)),
    ]
    for process in processes:
        process.start()
    try:
        barrier.wait(START_WITHIN)
        raw = raw_queue(identifier)
        keys = []

        def enqueue(number):
            key = raw.enqueue_one(number, notify=True)
            if not raw.notifies:
                mouth.send(_NOTICE.pack(key, number))
            keys.append(key)

        yield enqueue
    finally:
        for process in processes:
            process.terminate()
            process.join()
        for end in (mouth, ear, *hands):
            end.close()
    raw.finish(keys)
    raw.leave(daemon)


def _listen(identifier, daemon, ear, hand, barrier):
    raw = raw_queue(identifier)
    if raw.notifies:
        raw.listen()
    barrier.wait(START_WITHIN)
    while True:
        notices = raw.heard() if raw.notifies else [_NOTICE.unpack(ear.recv(_NOTICE.size))]
        for key, number in notices:
            raw.hold(key, daemon)
            hand.send(_NUMBER.pack(number))


def _handle(hand, barrier):
    barrier.wait(START_WITHIN)
    while True:
        [number] = _NUMBER.unpack(hand.recv(_NUMBER.size))
        tell(number, time.monotonic())
