"""Control by operators: gates, limits, changes to Tasks, and requests to holders."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from ...commands import AttemptCommand, Cancelled
from ...models import Gate, Limit
from ..values.changes import Changes
from ..values.scopes import Scope


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

        The gate opens by itself at ``until``, by the database's clock. The attribute ``was`` of the
        row is the gate as it was shut before, or None. ``expected`` is the state that the caller
        expects ("open", "hold" or "drop"), or the time since when the gate has been as it is.
        Raises GateChanged if it is another.
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
        """Open the gate of a :class:`Scope`; returns the gate as it was, None if it was open.

        ``expected`` is as for :meth:`shut`. Raises GateChanged.
        """

    @abstractmethod
    def drop(self, *, who: str = "", limit: int = 500) -> int:
        """Fail the Tasks that wait behind a dropping gate; returns how many."""

    @abstractmethod
    def limit(self, scope: Scope, *, who: str = "", **changes: Any) -> Limit:
        """Set columns of the Limit of a :class:`Scope` for an operator; returns its row."""

    @abstractmethod
    def unlimit(self, scope: Scope, declared: Mapping[str, Any] | None, *, who: str = "") -> bool:
        """Remove an operator's limits of a :class:`Scope`; returns whether there were any.

        ``declared`` are the limits that the code declares, as columns: they are written instead.
        None means that the caller does not know them: then the limits stay in force until code
        declares the next ones.
        """

    @abstractmethod
    def declare(self, limits: Mapping[str, Mapping[str, Any]], *, who: str = "") -> set[str]:
        """Write the limits that code declares, columns by Type, unless an operator has set some.

        Returns the identifiers of the Types whose limits another session had locked, as
        :meth:`register` does.
        """

    @abstractmethod
    def request(self, instance: int, request: str, *, who: str, message: str = "") -> bool:
        """Ask the holder of a claimed Task for something, and log who asked.

        Returns False, and writes nothing, if the Task is not claimed or its holder was asked to
        cancel it. The command for the stack replaces no other command, and is refused unless the
        Instance is RUNNING or PAUSED.
        """

    @abstractmethod
    def cancel(self, instances: Sequence[int], *, who: str = "") -> Cancelled:
        """Cancel the live Instances among those given by key; returns :class:`Cancelled`.

        Waiting Instances are FAILED at once. For a claimed one the holder is asked, and the log
        says who asked. The holder ends the attempt as CANCELLED, unless the attempt has ended
        before. If something else sends the Instance back to the queue, such as the loss of its
        daemon, the same transaction makes it CANCELLED.
        """

    @abstractmethod
    def asked(self, daemon: UUID) -> list[AttemptCommand]:
        """Return the commands to the attempts of a daemon: a list of :class:`AttemptCommand`."""

    @abstractmethod
    def change(
        self, instances: Sequence[int], changes: Changes, *, who: str = ""
    ) -> dict[int, list[tuple[str, Any, Any]]]:
        """Change the waiting ones among these Tasks, and log who changed what.

        If one of them cannot be changed, none is. Tasks that do not wait are left as they are.
        Returns the changed columns of each waiting Task by key, each with its old and new value.
        Raises InvalidOption if a Task would be due only after its ``start_before``.
        """
