"""What a worker writes itself, on its own connection: checkpoints, and positions of tailers."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import timedelta

from ...payload.codec import Payload
from ..values import Checkpoint, CursorMove, Settled
from ..values.steps import Note


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
    def hold(self, instance: int, attempt: int) -> bool:
        """Lock the Task until the end of the caller's transaction; False if it is locked."""

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


class Tailers(ABC):
    """The positions of the sources outside of the queue, which move with what was read."""

    @abstractmethod
    def begin(self, tailer: str, *, source: str) -> int:
        """Have a row of the tailer; returns how many records in a row were rejected last."""

    @abstractmethod
    def positions(self, tailer: str) -> dict[str, str]:
        """Return the position of each shard that has been read."""

    @abstractmethod
    def advance(
        self, tailer: str, moves: Sequence[CursorMove], settled: Settled, *, who: str = ""
    ) -> bool:
        """Move cursors and add to the counts, in the caller's transaction.

        The notes of the moves are counted, and written to the log of the Type. Returns False if a
        cursor is not where its move begins: then the caller rolls back.
        """

    @abstractmethod
    def look(
        self,
        tailer: str,
        *,
        source: str,
        behind: int | None,
        notes: Sequence[Note] = (),
        who: str = "",
    ) -> bool:
        """Write how an attempt leaves the source; ``source`` is text for display.

        The notes replace those of the look before. Returns True if the Type's log tells of them:
        when they come and go, and at most once an hour while they change.
        """

    @abstractmethod
    def stop(self, tailer: str, error: str) -> None:
        """Write why a tailer has stopped itself, until the next :meth:`look`."""

    @abstractmethod
    def miss(
        self, tailer: str, missing: Collection[str], present: Collection[str], *, for_: timedelta
    ) -> None:
        """Note which shards are missing from the source, and which are not missing any more.

        Cursors of shards that have been missing for longer than ``for_`` are removed.
        """

    @abstractmethod
    def remove(self, tailer: str) -> None:
        """Remove the row of a tailer and its cursors; nothing happens if there are none."""

    @abstractmethod
    def seek(self, tailer: str, shard: str, position: str | None, *, who: str = "") -> None:
        """Set the position of a shard; None removes its cursor. The Type's log tells who did it.

        Raises InvalidOption if there is no cursor of this shard.
        """
