"""Steps: the checkpoints that a handler writes while it runs."""

from abc import ABC, abstractmethod
from datetime import timedelta

from ...payload.codec import Payload
from ..values import Checkpoint


class Steps(ABC):
    """A worker writes these, on its own connection.

    The fence is the attempt alone, as for :meth:`.records.Records.conclude`: it has to be
    the one under which the Task is held. Else they raise TaskGone. Where somebody else has
    locked the Task they write nothing and wait for nobody.
    """

    @abstractmethod
    def find(self, instance: int, name: str) -> Checkpoint | None:
        """Return the checkpoint of this name; None if the step has not been begun."""

    @abstractmethod
    def begin(
        self,
        instance: int,
        attempt: int,
        name: str,
        *,
        who: str = "",
        delay: timedelta | None = None,
    ) -> Checkpoint | None:
        """Write that an attempt begins a step, unless it is done; None if the Task is locked.

        If an earlier attempt had begun it, the log says that it is repeated. With ``delay``
        it is a sleep of this length, which begins once only. Raises InvalidStep if a step
        of this name is of the other kind, and TooLarge beyond ``ATP["MAX_STEPS"]``.
        """

    @abstractmethod
    def keep(
        self,
        instance: int,
        attempt: int,
        name: str,
        payload: Payload,
        *,
        took: timedelta = timedelta(0),
    ) -> bool:
        """Keep the result of a step; False if the Task is locked.

        In a caller's transaction it is committed with that. ``took`` is the time since its
        beginning, for a step of which that was not written.
        """
