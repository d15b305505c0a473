"""Steps: the checkpoints that a handler writes while it runs."""

from abc import ABC, abstractmethod
from datetime import timedelta

from ...payload.codec import Payload
from ..values import Checkpoint


class Steps(ABC):
    """A worker calls these verbs, on its own connection.

    The fence is the attempt alone, as for :meth:`.records.Records.conclude`: the Task must be held
    under this attempt, or TaskGone is raised. If another session has locked the Task, the verbs
    write nothing and do not wait.
    """

    @abstractmethod
    def find(self, instance: int, name: str) -> Checkpoint | None:
        """Return the checkpoint of this name; None if the step has not begun."""

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

        If an earlier attempt had begun the step, the log says that it is repeated. With ``delay``
        the step is a sleep of this length, which begins only once. Raises InvalidStep if the name
        belongs to a sleep and this step is none, or the reverse; TooLarge beyond
        ``ATP["MAX_STEPS"]``.
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
        """Keep the result of a step; returns False if the Task is locked.

        In a caller's transaction, the result is committed with it. ``took`` is the time since the
        step began; it is used if the beginning was not written.
        """
