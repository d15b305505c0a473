"""One process of a peer: ``python -m benchmarks.peers.drivers NAME ACTION [COUNT]``.

It answers in lines of JSON on its standard output. An action that is measured
says ``{"ready": true}`` first, and begins when it reads a line; ``enqueue`` does so
again and again until there are no more lines. Times are of CLOCK_MONOTONIC, which is
the same for all processes, in seconds.
"""

import asyncio
import json
import os
import random
import sys
import time

from .base import PAUSES, WARM_UP, load


def main():
    name, action, *count = sys.argv[1:]
    answers = _Answers()
    driver = load(name)
    if action == "work":
        driver.work()
    else:
        asyncio.run(ACTIONS[action](driver, answers, *map(int, count)))


class _Answers:
    """The standard output, kept from libraries that print: theirs goes to standard error."""

    def __init__(self):
        self._file = os.fdopen(os.dup(1), "w")
        os.set_inheritable(self._file.fileno(), False)
        os.dup2(2, 1)

    def give(self, **values):
        print(json.dumps(values), file=self._file, flush=True)

    async def wait_for_start(self):
        """Return whether there is one."""
        self.give(ready=True)
        # In a thread: connections may have work to do meanwhile.
        return bool(await asyncio.to_thread(sys.stdin.readline))


async def prepare(driver, answers):
    await driver.prepare()
    answers.give(done=True)


async def fill(driver, answers, count):
    await driver.connect()
    await driver.fill(range(1, count + 1))
    await driver.disconnect()
    answers.give(done=True)


async def fill_saves(driver, answers, count):
    """Rows, and for each a task that saves it."""
    await driver.connect()
    await driver.fill_saves(range(1, count + 1))
    await driver.disconnect()
    answers.give(done=True)


async def fill_naps(driver, answers, count):
    """Tasks that take a moment."""
    await driver.connect()
    await driver.fill_naps(range(1, count + 1))
    await driver.disconnect()
    answers.give(done=True)


async def enqueue(driver, answers, count):
    """One by one, each committed; so many for each line."""
    await driver.connect()
    await driver.enqueue(0)
    while await answers.wait_for_start():
        began = time.monotonic()
        for number in range(1, count + 1):
            await driver.enqueue(number)
        answers.give(began=began, ended=time.monotonic())
    await driver.disconnect()


async def bulk(driver, answers, count):
    """In the peer's bulk calls."""
    await driver.connect()
    await driver.enqueue(0)
    await answers.wait_for_start()
    began = time.monotonic()
    await driver.enqueue_many(range(1, count + 1))
    answers.give(began=began, ended=time.monotonic())
    await driver.disconnect()


async def latency(driver, answers, count):
    """To workers that are idle: when each call began, and when it had ended."""
    await driver.connect()
    for number in range(-WARM_UP, 0):
        await driver.enqueue_stamp(number)
        await asyncio.sleep(PAUSES[0])
    await answers.wait_for_start()
    calls = []
    for number in range(count):
        await asyncio.sleep(random.uniform(*PAUSES))
        began = time.monotonic()
        await driver.enqueue_stamp(number)
        calls.append((began, time.monotonic()))
    answers.give(calls=calls)
    await driver.disconnect()


async def fan(driver, answers, count):
    """No-ops beside each other, and one that waits for all."""
    await driver.connect()
    for number in range(-WARM_UP, 0):
        await driver.enqueue_stamp(number)
    await answers.wait_for_start()
    began = time.monotonic()
    await driver.fan(range(1, count + 1))
    answers.give(began=began, ended=time.monotonic())
    await driver.disconnect()


ACTIONS = {
    "prepare": prepare,
    "fill": fill,
    "fill_naps": fill_naps,
    "fill_saves": fill_saves,
    "enqueue": enqueue,
    "bulk": bulk,
    "fan": fan,
    "latency": latency,
}

if __name__ == "__main__":
    main()
