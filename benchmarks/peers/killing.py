"""What becomes of tasks whose workers are killed, all processes of them at once."""

import time
from collections import Counter

NAPS = 200
# So many have ended when the workers are killed.
ENDED_BEFORE = 40
# Seconds that some wait before they take back what a dead worker had: 300 by their defaults.
RECOVERED_WITHIN = 400
LOOK_EVERY = 0.05
KILL_UNITS = {"kill, lost": "tasks", "kill, twice": "tasks", "kill, until the last": "s"}


def killed(stage, amounts):
    """Tasks that never end, tasks that begin more than once, and seconds until the last ends.

    All naps are enqueued before the workers are started. When a fifth has ended, every process
    of the workers gets SIGKILL, and others are started at once. Nobody waits for longer than
    RECOVERED_WITHIN: what has not ended then is lost.
    """
    stage.do("fill_naps", NAPS)
    with stage.workers() as workers:
        _wait(lambda: len(_ended(stage)) >= ENDED_BEFORE, workers)
        workers.kill()
    killed_at = time.monotonic()
    with stage.workers() as workers:
        _wait(lambda: len(_ended(stage)) == NAPS or not stage.unfinished(), workers)
        # One that is done in the store has told so before.
        ended = _ended(stage)
        begun = Counter(number for number, _ in stage.told.pairs() if number > 0)
        workers.kill()
    return {
        "kill, lost": NAPS - len(ended),
        "kill, twice": sum(count > 1 for count in begun.values()),
        "kill, until the last": max(ended.values()) - killed_at,
    }


def _ended(stage):
    """Return when each nap that has ended did so first: it tells its number below zero."""
    ended = {}
    for number, moment in stage.told.pairs():
        if number < 0:
            ended.setdefault(-number, moment)
    return ended


def _wait(is_reached, workers):
    """Wait until it is so, or RECOVERED_WITHIN has passed. Raises Failure if a worker ends."""
    deadline = time.monotonic() + RECOVERED_WITHIN
    while not is_reached() and time.monotonic() < deadline:
        workers.check()
        time.sleep(LOOK_EVERY)
