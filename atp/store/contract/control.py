"""Control by operators: gates, limits, changes, and requests to holders."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from ...models import Gate, Limit
from ..values import Ask, Cancelled, Changes, Scope


class Control(ABC):
    @abstractmethod
    def shut(
        self,
        scope: Scope,
        mode: str,
        *,
        who: str = "",
        reason: str = "",
        until: datetime | None = None,
        expected: datetime | str | None = None,
    ) -> Gate:
        """Set the gate of a :class:`Scope` to "hold" or "drop"; returns its row.

        ``until`` is when it opens by itself, by the database's clock. ``was`` of the row is
        the one that was shut before. ``expected`` is how the gate has to be: "open", "hold"
        or "drop", or since when it has been as it is. Raises GateChanged.
        """

    @abstractmethod
    def open(
        self,
        scope: Scope,
        *,
        who: str = "",
        reason: str = "",
        expected: datetime | str | None = None,
    ) -> Gate | None:
        """Open the gate of a :class:`Scope`; returns it as it was, None if it was open.

        ``expected`` is as for :meth:`shut`. Raises GateChanged.
        """

    @abstractmethod
    def drop(self, *, who: str = "", limit: int = 500) -> int:
        """Fail what waits where a gate drops it; returns how many."""

    @abstractmethod
    def limit(self, scope: Scope, *, who: str = "", **changes: Any) -> Limit:
        """Set what is named of a Limit's columns for a :class:`Scope`, for an operator.

        Returns its row.
        """

    @abstractmethod
    def unlimit(self, scope: Scope, declared: Mapping[str, Any] | None, *, who: str = "") -> bool:
        """Leave the limits of a :class:`Scope` to the code; returns whether an operator's were set.

        ``declared`` is what the code says of them, as columns: that is written. None is
        what nobody here knows: what is in force stays, until it is declared next.
        """

    @abstractmethod
    def declare(self, limits: Mapping[str, Mapping[str, Any]], *, who: str = "") -> set[str]:
        """Write the limits that code declares, columns by Type, where no operator has set any.

        Returns the identifiers of those that somebody else had locked, as :meth:`register`.
        """

    @abstractmethod
    def request(self, instance: int, request: str, *, who: str, message: str = "") -> bool:
        """Ask the holder of a claimed Task for something, and log who asked.

        Returns False, with nothing written, if the Task is not claimed, or to be cancelled.
        """

    @abstractmethod
    def cancel(self, instances: Sequence[int], *, who: str = "") -> Cancelled:
        """End what is live of the Instances given by key; returns :class:`Cancelled`.

        What waits is FAILED at once. The holder of what is claimed is asked, and the log
        says by whom: it ends the attempt as CANCELLED, unless that has ended by then.
        Whatever else sends the Instance back to the queue, a lost daemon too, leads on
        to CANCELLED in the same transaction.
        """

    @abstractmethod
    def asked(self, daemon: UUID) -> list[Ask]:
        """The requests on the Tasks that the daemon holds, as a list of :class:`Ask`."""

    @abstractmethod
    def change(
        self, instances: Sequence[int], changes: Changes, *, who: str = ""
    ) -> dict[int, list[tuple[str, Any, Any]]]:
        """Change Tasks that wait, and log what and who: all of those that do, or none.

        Returns, by key, the columns that were changed, each with what it was and what it
        is; what does not wait is left out, as it is. Raises InvalidOption if one would be
        due only after its ``start_before``.
        """
