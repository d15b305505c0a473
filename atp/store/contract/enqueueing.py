"""Types and enqueueing."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ...models import Instance
from ..values import Registration, Submission


class Enqueueing(ABC):
    @abstractmethod
    def register(
        self, registrations: Sequence[Registration], *, who: str = "", update: bool = True
    ) -> set[str]:
        """Write Types; again is an update (RFC 14). Changes are logged.

        With ``update=False`` only what is missing is written. Returns the identifiers of
        those that were not written as somebody else had locked them for too long: see
        :meth:`limit_waiting`.
        """

    @abstractmethod
    def unregister(self, identifier: str, *, who: str = "") -> None:
        """Remove a Type. Raises UnknownType, or TypeInUse while Instances of it exist."""

    @abstractmethod
    def enqueue(
        self, registration: Registration, submissions: Sequence[Submission], *, who: str = ""
    ) -> Sequence[Instance]:
        """Write Instances with Inputs, LogRecord and Task, all or none.

        Returns the Instances in the order of ``submissions``, among them those
        that existed. Raises DuplicateIdentifier.
        """
