"""Everything that ATP raises, and what a handler raises to speak to ATP.

All errors derive from :class:`ATPError`; those about bad arguments are also
:class:`ValueError`, those about something missing also :class:`LookupError`,
so that code which does not know ATP can still treat them sensibly.
"""

from datetime import timedelta

# Ten years, in seconds: further than any clock or column has to reach.
LONGEST_DELAY = 315_360_000.0


class ATPError(Exception):
    """Base of all errors of ATP."""


class UnknownType(ATPError, LookupError):
    """No Type of this identifier is declared or registered."""


class UnregisteredHandler(UnknownType):
    """The Type is known to the database, but this process has no handler for it."""


class TypeInUse(ATPError):
    """A Type cannot be unregistered while Instances of it exist (RFC 14)."""


class InvalidType(ATPError, ValueError):
    """A Type is declared with parameters that make no sense."""


class InvalidOption(ATPError, ValueError):
    """An option of an enqueue is unknown or out of range."""


class InvalidGate(ATPError, ValueError):
    """A gate cannot be set so: its place, or the time at which it is to open, makes no sense."""


class GateChanged(ATPError):
    """A gate is not as whoever sets it expected: somebody else has set it meanwhile.

    ``gate`` is how it is, None if it is open.
    """

    def __init__(self, message, *, gate=None):
        super().__init__(message)
        self.gate = gate


class InvalidLimit(ATPError, ValueError):
    """A limit or a weight is written wrongly, or out of range."""


class InvalidInputs(ATPError, ValueError):
    """The inputs do not fit the handler's signature.

    ``argument`` is the name of the one that does not, where there is one.
    """

    def __init__(self, message, *, argument=None):
        super().__init__(message)
        self.argument = argument


class NotSerializable(ATPError, ValueError):
    """A value cannot be serialized without losing something."""


class TooLarge(ATPError, ValueError):
    """A serialized value exceeds the limit of its kind."""


class CorruptData(ATPError, ValueError):
    """Stored data cannot be read back: damaged, or its signature is wrong."""


class DuplicateIdentifier(ATPError, ValueError):
    """An Instance with this identifier already exists for the Type.

    ``instance`` is the existing one.
    """

    def __init__(self, message, instance=None):
        super().__init__(message)
        self.instance = instance


class InvalidPageKey(ATPError, ValueError):
    """A page key is of another list, or none at all."""


class InvalidSelection(ATPError, ValueError):
    """A list cannot be filtered so: the name or the value of a filter is unknown.

    ``errors`` are pairs of the filter and what is wrong with it.
    """

    def __init__(self, message, *, errors=()):
        super().__init__(message)
        self.errors = errors


class UnknownInstance(ATPError, LookupError):
    """No Instance with this uuid or identifier exists."""


class IllegalTransition(ATPError):
    """The state of the Instance does not allow the event.

    ``state`` is the state it is in, ``event`` what was asked for.
    """

    def __init__(self, message, *, event=None, state=None):
        super().__init__(message)
        self.event = event
        self.state = state


class NotPausable(IllegalTransition):
    """An Instance of this Type cannot be paused, whatever its state: it is transactional."""


class UnknownDaemon(ATPError, LookupError):
    """No daemon of this uuid, or of this host and pid, is there: it has left, or never was."""


class IllegalOrder(ATPError):
    """What the daemon is doing does not allow the order.

    ``mode`` is what it is doing, or about to do; ``order`` what was asked for.
    """

    def __init__(self, message, *, order=None, mode=None):
        super().__init__(message)
        self.order = order
        self.mode = mode


class WaitTimeout(ATPError, TimeoutError):
    """The Instance did not reach a terminal state in the given time."""


class WaitInTransaction(ATPError):
    """Waiting inside a transaction would never see the Instance finish."""


class LeaseLost(ATPError):
    """The daemon no longer has a lease: its row is gone or has run out."""


class PausedInTransaction(ATPError):
    """A handler cannot pause inside a transaction: it would be open all the while."""


class TaskGone(ATPError):
    """The Task was taken away: what its attempt wrote in its end's transaction is not kept."""


class Retry(Exception):
    """Raised by a handler: try again later.

    It spends one of the Type's ``max_retries`` and is logged without a
    traceback. ``after`` is the delay, in seconds or as a timedelta; without
    it the Type's backoff decides.
    """

    def __init__(self, message="", *, after=None):
        super().__init__(message)
        self.after = None if after is None else _delay("Retry", after)


class Defer(Exception):
    """Raised by a handler: later, and nobody's fault. It spends no budget, however often.

    ``after`` is the delay, in seconds or as a timedelta, and more than 0: nothing else
    keeps an Instance that is always deferred from going round and round.
    """

    def __init__(self, message="", *, after):
        super().__init__(message)
        self.after = _delay("Defer", after, is_from_zero=False)


class Fatal(Exception):
    """Raised by a handler: trying again is no use, the Instance is FAILED now."""


class Interrupted(BaseException):
    """Raised by ``context.check()`` when the attempt has to end here, or wherever its handler is.

    It derives from BaseException so that a handler's ``except Exception``
    does not swallow it. ATP handles it; a handler may clean up and re-raise.
    """


def _delay(name, after, *, is_from_zero=True):
    """Return a delay in seconds. Raises ValueError."""
    after = after.total_seconds() if isinstance(after, timedelta) else float(after)
    if not 0 <= after <= LONGEST_DELAY or not (after or is_from_zero):
        bounds = "from 0 to" if is_from_zero else "more than 0 and at most"
        raise ValueError(f"{name}(after={after:g}): must be {bounds} {LONGEST_DELAY:.0f} s")
    return after
