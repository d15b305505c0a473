"""The exceptions that a handler raises to control its end, and those that stand for other ends.

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

# Ten years, in seconds: the longest delay that ATP accepts.
LONGEST_DELAY = 315_360_000.0


class Retry(Exception):
    """A handler raises Retry to be tried again later.

    It spends one of the Type's ``max_retries`` and is logged without a traceback. ``after`` is the
    delay, in seconds or as a timedelta; without it the Type's backoff decides.
    """

    def __init__(self, message: str = "", *, after: timedelta | float | None = None) -> None:
        super().__init__(message)
        self.after = None if after is None else _delay("Retry", after)


class Defer(Exception):
    """A handler raises Defer to run later, without a failure. It spends no budget, however often.

    ``after`` is the delay, in seconds or as a timedelta. It must be more than 0: nothing else stops
    an Instance that is always deferred from running again and again at once.
    """

    def __init__(self, message: str = "", *, after: timedelta | float) -> None:
        super().__init__(message)
        self.after = _delay("Defer", after, is_from_zero=False)


class Throttled(Defer):
    """A handler raises Throttled if its Type's downstream refuses calls. It spends no budget.

    ``after`` is the delay that the downstream asked for: an unchanged Retry-After of HTTP, in
    seconds or as a date; a timedelta; or None. A past time is 0, more than an hour counts as an
    hour, and a value that cannot be read counts as None. If the Type has no downstream it is a
    :class:`Defer` of at least ``LEAST`` seconds.
    """

    # The shortest delay in seconds: with no delay the attempts would follow each other at once.
    LEAST = 1.0

    def __init__(self, message: str = "", *, after: object = None) -> None:
        asked = read(after, datetime.now(UTC))
        told = f"{message} ({asked.told})" if message and asked.told else message or asked.told
        super().__init__(told, after=max(self.LEAST, asked.after or 0.0))
        self.asked = asked.after


class Unavailable(Exception):
    """A handler raises Unavailable if its Type's downstream fails or cannot be reached.

    It spends no budget. ``after`` is as in :class:`Throttled`. If the Type has no downstream, it is
    an error like any other, and spends a retry.
    """

    def __init__(self, message: str = "", *, after: object = None) -> None:
        asked = read(after, datetime.now(UTC))
        super().__init__(f"{message} ({asked.told})" if asked.told else message)
        self.asked = asked.after


class Fatal(Exception):
    """A handler raises Fatal if another attempt is no use: the Instance is FAILED at once.

    All failures of one Type with the same ``fingerprint``, a word that the handler chooses, are one
    error group, whatever their messages and wherever they were raised.
    """

    def __init__(self, *args: object, fingerprint: str = "") -> None:
        super().__init__(*args)
        if not isinstance(fingerprint, str):
            raise ValueError(f"Fatal(fingerprint={fingerprint!r}): must be text")
        self.fingerprint = fingerprint


class Interrupted(BaseException):
    """ATP raises Interrupted in ``context.check()``, or anywhere in a handler, to end the attempt.

    It derives from BaseException so that a handler's ``except Exception``
    does not swallow it. A handler may clean up, and must let it pass; ATP handles it.
    """


class TaskFailed(Exception):
    """An Instance is FAILED for a reason other than an exception of its handler.

    Nothing raises this class or its subclasses: results of django.tasks name them as errors.
    """


class Stale(TaskFailed):
    """The Instance lost more attempts than allowed."""


class Cancelled(TaskFailed):
    """Somebody has cancelled the Instance."""


class Dropped(TaskFailed):
    """A gate dropped the Instance."""


class Missed(TaskFailed):
    """The Instance was not started before its ``start_before``."""


class Upstream(TaskFailed):
    """A node of its graph that the Instance depends on failed."""


class Unusable(Exception):
    """Raised ``from`` an error about unusable values: each further attempt would fail too.

    The Instance is FAILED for the reason FATAL, with the message of that error.
    """


class Misfit(Exception):
    """The inputs do not fit the handler of this process; that of another release may accept them.

    The Instance is deferred. The message says why the inputs do not fit.
    """


def path_of(error: BaseException) -> str:
    """Return the dotted path of an exception's class, even if the class overrides its names."""
    kind = type(error)
    names = []
    for slot in ("__module__", "__qualname__"):
        try:
            found = type.__dict__[slot].__get__(kind)
        except AttributeError:
            found = None
        names.append(str.__str__(found) if isinstance(found, str) else "?")
    module, name = names
    return f"{module}.{name}".replace("\x00", "?").encode("utf-8", "replace").decode()


def _delay(name: str, after: timedelta | float, *, is_from_zero: bool = True) -> float:
    """Return a delay in seconds. Raises ValueError."""
    after = after.total_seconds() if isinstance(after, timedelta) else float(after)
    if not 0 <= after <= LONGEST_DELAY or not (after or is_from_zero):
        bounds = "from 0 to" if is_from_zero else "more than 0 and at most"
        raise ValueError(f"{name}(after={after:g}): must be {bounds} {LONGEST_DELAY:.0f} s")
    return after


# The errors that an enqueue raises.


class ATPError(Exception):
    """The base class of all errors of ATP.

    ``call`` is the number of the call or row that the error is about, if there are several.
    """

    call: int


class QueueFull(ATPError):
    """Too many Instances wait in a Type or a lane, so nothing was enqueued.

    ``scope`` is the Type, or the Type and the collection, in words. ``waiting`` is the number that
    wait, counted up to a little more than ``limit``. ``limit`` is the ``max_waiting`` that was
    reached; None if only ``max_wait`` is set. ``oldest`` is how long the oldest due one has waited,
    None if that was not read. ``retry_after`` is in seconds, from 1 to 600.
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


# Tracebacks show the module that they are imported from.
for _name in __all__:
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = "atp.exceptions"
