"""Tickets, which an engine carries, and the messages between a daemon and a keeper.

A *keeper* is the process beside an engine's worker that runs attempts there. The ticket says where
the daemon is and which attempt is to be run; the keeper asks the daemon for everything else. So an
engine carries no inputs and no names of code, and only this project can make a ticket.
"""

from typing import Any, NamedTuple

from django.core import signing

_SALT = "atp.executors.ticket"

Key = tuple[int, int]


class Ticket(NamedTuple):
    """An attempt of an Instance of a Type, and the address of the daemon that holds it."""

    host: str
    port: int
    instance: int
    attempt: int
    type: str

    @property
    def key(self) -> Key:
        return self.instance, self.attempt

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    def signed(self) -> str:
        """Return the ticket as text that :meth:`read` accepts."""
        return signing.dumps(list(self), salt=_SALT)

    @classmethod
    def read(cls, text: str) -> "Ticket":
        """Return the ticket in a text. Raises signing.BadSignature if nobody of us has made it."""
        return cls(*signing.loads(text, salt=_SALT))


# From a keeper to a daemon. Times are on the keeper's own clock, in seconds.


class Hello(NamedTuple):
    """A keeper has connected, and runs these attempts of the daemon. ``release`` is its code's."""

    host: str
    pid: int
    release: str
    running: tuple[Key, ...]


class MayI(NamedTuple):
    """The keeper asks whether it may start an attempt; ``at`` is when it asks."""

    key: Key
    at: float


class Asking(NamedTuple):
    """The keeper asks for further leave for its attempts."""

    keys: tuple[Key, ...]
    at: float


class Said(NamedTuple):
    """An attempt has sent this message of :mod:`atp.daemon.protocol`, ``age`` seconds ago.

    The messages of an attempt have numbers from 1 on. After a cut they are said again from the
    first that the daemon may not have heard.
    """

    key: Key
    number: int
    message: Any
    age: float


class Over(NamedTuple):
    """An attempt has ended after ``seconds``, with this outcome, ``age`` seconds before ``at``."""

    key: Key
    seconds: float
    age: float
    outcome: Any
    at: float


# The cause if an attempt has not begun.
UNSTARTED = "unstarted"


class Gone(NamedTuple):
    """No process of the attempt is left. ``how`` says how the last one ended, ``cause`` as data."""

    key: Key
    how: str
    cause: str


# From a daemon to a keeper.


class Go(NamedTuple):
    """The attempt may start. ``attempt`` is what a worker gets of it; ``leave`` is in seconds.

    ``seconds`` is the time-out, or None. ``asked`` is the time at which the keeper has asked.
    """

    key: Key
    attempt: Any
    leave: float
    asked: float


class Then(NamedTuple):
    """The daemon has noted the end of an attempt; what the engine ran it for takes the next."""

    key: Key
    go: Go


class No(NamedTuple):
    """The attempt may not start, or may not go on. ``why`` is a reason in words."""

    key: Key
    why: str


class Done(NamedTuple):
    """The daemon has noted the end of an attempt, or its death: the keeper may forget it."""

    key: Key


class Leave(NamedTuple):
    """These attempts may live for ``seconds`` from the moment ``asked``, on the keeper's clock.

    ``heard`` are the numbers of their messages that the daemon has heard last.
    """

    keys: tuple[Key, ...]
    heard: tuple[int, ...]
    seconds: float
    asked: float


class End(NamedTuple):
    """The attempt shall end: its handler is interrupted, and killed after ``grace`` seconds."""

    key: Key
    grace: float
