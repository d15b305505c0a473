"""Types and enqueueing."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from ...models import Instance
from ..values import Registration, Submission


class Enqueueing(ABC):
    @abstractmethod
    def register(
        self, registrations: Sequence[Registration], *, who: str = "", update: bool = True
    ) -> set[str]:
        """Write Types, and log the changes; a Type that exists is updated (RFC 14).

        With ``update=False`` only missing Types are written. Returns the identifiers of the Types
        that were not written, since another session had locked them for too long: see
        :meth:`limit_waiting`.
        """

    @abstractmethod
    def name_downstreams(self, names: Mapping[str, str], *, who: str = "") -> set[str]:
        """Write the downstreams of Types, by identifier, into the rows that name others.

        Returns the identifiers of the Types that another session has locked, as :meth:`register`.
        """

    @abstractmethod
    def unregister(self, identifier: str, *, who: str = "") -> None:
        """Remove a Type. Raises UnknownType, or TypeInUse while Instances of it exist."""

    @abstractmethod
    def enqueue(
        self, registration: Registration, submissions: Sequence[Submission], *, who: str = ""
    ) -> Sequence[Instance]:
        """Write Instances with their Inputs, LogRecord and Task: all of them or none.

        Returns the Instances in the order of ``submissions``, including those that existed already.
        Raises DuplicateIdentifier.
        """
