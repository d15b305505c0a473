"""The exceptions that a handler raises to speak to ATP, and those that stand for other ends.

:mod:`atp.exceptions` lists them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ..protection.retry_after import read

# All that a handler or an application may meet.
__all__ = [  # noqa: RUF022 (by who raises them)
    "LONGEST_DELAY",
    "Retry",
    "Defer",
    "Throttled",
    "Unavailable",
    "Fatal",
    "Interrupted",
    "TaskFailed",
    "Stale",
    "Cancelled",
    "Dropped",
    "Missed",
    "Upstream",
    "ATPError",
    "QueueFull",
]

# Ten years, in seconds: further than any clock or column has to reach.
LONGEST_DELAY = 315_360_000.0


class Retry(Exception):
    """Raised by a handler: try again later.

    It spends one of the Type's ``max_retries`` and is logged without a
    traceback. ``after`` is the delay, in seconds or as a timedelta; without
    it the Type's backoff decides.
    """

    def __init__(self, message: str = "", *, after: timedelta | float | None = None) -> None:
        super().__init__(message)
        self.after = None if after is None else _delay("Retry", after)


class Defer(Exception):
    """Raised by a handler: later, and nobody's fault. It spends no budget, however often.

    ``after`` is the delay, in seconds or as a timedelta, and more than 0: nothing else
    keeps an Instance that is always deferred from going round and round.
    """

    def __init__(self, message: str = "", *, after: timedelta | float) -> None:
        super().__init__(message)
        self.after = _delay("Defer", after, is_from_zero=False)


class Throttled(Defer):
    """Raised by a handler: the downstream of its Type refuses calls. It spends no budget.

    ``after`` is what the downstream asked for: a Retry-After of HTTP as it came, in seconds or
    as a date; a timedelta; or None. What has passed is 0, more than an hour is cut to an hour,
    and what cannot be read says nothing. Where the Type has no downstream it is a
    :class:`Defer`, of ``LEAST`` seconds at least.
    """

    # A delay of nothing would go round and round.
    LEAST = 1.0

    def __init__(self, message: str = "", *, after: object = None) -> None:
        asked = read(after, datetime.now(UTC))
        told = f"{message} ({asked.told})" if message and asked.told else message or asked.told
        super().__init__(told, after=max(self.LEAST, asked.after or 0.0))
        self.asked = asked.after


class Unavailable(Exception):
    """Raised by a handler: the downstream of its Type fails, or cannot be reached.

    It spends no budget. ``after`` is as in :class:`Throttled`. Where the Type has no
    downstream it is an error like any other, and spends a retry.
    """

    def __init__(self, message: str = "", *, after: object = None) -> None:
        asked = read(after, datetime.now(UTC))
        super().__init__(f"{message} ({asked.told})" if asked.told else message)
        self.asked = asked.after


class Fatal(Exception):
    """Raised by a handler: trying again is no use, the Instance is FAILED now.

    Those of one Type with one ``fingerprint``, a word of the handler's own, are one error
    group, wherever they were raised and whatever they say.
    """

    def __init__(self, *args: object, fingerprint: str = "") -> None:
        super().__init__(*args)
        if not isinstance(fingerprint, str):
            raise ValueError(f"Fatal(fingerprint={fingerprint!r}): must be text")
        self.fingerprint = fingerprint


class Interrupted(BaseException):
    """Raised by ``context.check()`` when the attempt has to end here, or wherever its handler is.

    It derives from BaseException so that a handler's ``except Exception``
    does not swallow it. ATP handles it; a handler may clean up and re-raise.
    """


class TaskFailed(Exception):
    """An Instance is FAILED, and no exception of its handler is the reason.

    Nothing raises it or those below: results of django.tasks name them as errors.
    """


class Stale(TaskFailed):
    """Attempts of the Instance were lost more often than allowed."""


class Cancelled(TaskFailed):
    """Somebody asked for the Instance to be cancelled."""


class Dropped(TaskFailed):
    """A gate dropped the Instance."""


class Missed(TaskFailed):
    """The Instance was not started before its ``start_before``."""


class Upstream(TaskFailed):
    """A node of its graph that the Instance depends on failed."""


class Unusable(Exception):
    """Raised ``from`` an error about values that cannot be used: it is the same next time.

    The Instance is FAILED for the reason FATAL, with the words of that error.
    """


class Misfit(Exception):
    """The inputs do not fit the handler of this process: that of another release may take them.

    The Instance is deferred. The message says why they do not fit.
    """


def path_of(error: BaseException) -> str:
    """Return the dotted path of the class of an exception, whatever that says of itself."""
    kind = type(error)
    names = []
    for slot in ("__module__", "__qualname__"):
        try:
            found = type.__dict__[slot].__get__(kind)
        except AttributeError:
            found = None
        names.append(str.__str__(found) if isinstance(found, str) else "?")
    module, name = names
    path = f"{'atp.exceptions' if module == __name__ else module}.{name}"
    return path.replace("\x00", "?").encode("utf-8", "replace").decode()


def _delay(name: str, after: timedelta | float, *, is_from_zero: bool = True) -> float:
    """Return a delay in seconds. Raises ValueError."""
    after = after.total_seconds() if isinstance(after, timedelta) else float(after)
    if not 0 <= after <= LONGEST_DELAY or not (after or is_from_zero):
        bounds = "from 0 to" if is_from_zero else "more than 0 and at most"
        raise ValueError(f"{name}(after={after:g}): must be {bounds} {LONGEST_DELAY:.0f} s")
    return after


# What an enqueue raises.


class ATPError(Exception):
    """Base of all errors of ATP.

    ``call`` is the place of the call, or the row, that it is about, where there are many.
    """

    call: int


class QueueFull(ATPError):
    """So many wait in a Type or a lane that nothing more is let in, and nothing was enqueued.

    ``scope`` is the Type, or the Type and the collection, as a sentence has it. ``waiting`` is
    how many wait, counted up to little more than ``limit``, which is the ``max_waiting`` that was
    reached; None if only ``max_wait`` is set. ``oldest`` is how long the oldest due one has
    waited, None if that was not asked. ``retry_after`` is in seconds, from 1 to 600.
    """

    def __init__(
        self,
        message: str,
        *,
        scope: str = "",
        waiting: int = 0,
        limit: int | None = None,
        oldest: timedelta | None = None,
        retry_after: float = 30.0,
    ) -> None:
        super().__init__(message)
        self.scope = scope
        self.waiting = waiting
        self.limit = limit
        self.oldest = oldest
        self.retry_after = retry_after
