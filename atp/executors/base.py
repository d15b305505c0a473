"""What an engine has to do for ATP: run a ticket somewhere, and report when that has ended."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from ..exceptions import ATPError


class EngineAway(ATPError):
    """The engine cannot be reached."""


class Cluster(NamedTuple):
    """What an engine has: hosts, places for attempts on them, and their resources.

    ``room`` is the number of attempts that this daemon can have there now, those that run already
    included: other users of the engine take the other places. ``resources`` are the sums of all
    hosts, and ``largest`` the most that one of its workers has, or None if it does not count them.
    """

    address: str
    hosts: int
    places: int
    room: int
    resources: dict[str, float]
    largest: dict[str, float] | None


class Executor(ABC):
    """The link of a daemon to an engine, which runs ``stub.run(ticket)`` on one of its workers.

    ``options`` are those of the setting EXECUTORS. All methods are called in one thread, which may
    wait for the engine; an engine may call ``ended`` in any. Without the options ``required`` an
    executor cannot work.
    """

    required: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.name = name
        self.options = options
        # The number of attempts that the engine is given at a time.
        self.slots: int = options["SLOTS"]

    @abstractmethod
    def open(self) -> None:
        """Connect to the engine, also again after it was away. Raises EngineAway."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect from the engine; what runs there goes on."""

    @abstractmethod
    def submit(
        self, ticket: str, resources: Mapping[str, int], ended: Callable[[str], object]
    ) -> Any:
        """Have the engine run a ticket; return a handle for it. Raises EngineAway.

        ``ended(error)`` is called when the engine has nothing more to do for the ticket; ``error``
        is "" if the stub has returned.
        """

    @abstractmethod
    def cancel(self, handle: Any) -> None:
        """Have the engine forget a ticket, if it does not run yet."""

    @abstractmethod
    def cluster(self) -> Cluster:
        """Ask the engine what it has. Raises EngineAway."""

    @abstractmethod
    def address(self) -> str:
        """Return the address of this host under which the engine's workers can reach it."""
