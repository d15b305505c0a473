"""Recording the moves and notes of attempts."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ..values import Delivered, Move, Note


class Records(ABC):
    @abstractmethod
    def record(self, moves: Sequence[Move], *, daemon: UUID | None = None) -> list[Move]:
        """Apply moves, each with its LogRecord; those of one Instance are applied in order.

        With ``daemon`` the moves are those of a holder, fenced by holder and attempt; without it,
        they come from somebody who holds nothing. Returns the moves that were refused: nothing of
        them was written.

        If a holder is refused because its Task was taken away, the refusal is kept as a message in
        the Instance's log, and counted for its Type (G4). A move that is in the log already, with
        the same time and ``who``, is not refused: a daemon that does not know whether a move was
        written may record it again.
        """

    @abstractmethod
    def conclude(self, move: Move, *, note: Note | None = None) -> None:
        """Record, in the caller's transaction, that an attempt FINISHED, with its last note.

        A worker ends a transactional attempt in this way (G7). The fence is the attempt alone: its
        number is given out once, whatever identity its daemon has by now. Raises TaskGone: then the
        caller must roll the transaction back.
        """

    def deliver(
        self, entries: Sequence[Move] | Sequence[Note], *, daemon: UUID, careful: bool = False
    ) -> Delivered:
        """Record a daemon's moves, or write its notes; returns :class:`Delivered`.

        An Instance that another session has locked for longer than :meth:`limit_waiting` allows is
        left out; the others are written. With ``careful`` the store looks for such locks before it
        writes, and waits for none.
        """
        write: Any = self.record if isinstance(entries[0], Move) else self.note
        return Delivered(refused=write(entries, daemon=daemon))

    def limit_waiting(self, seconds: float) -> None:  # noqa: B027 (a store without locks of rows has no limit)
        """Limit how long statements of this thread's connection wait for locks of other sessions.

        It also sets what a daemon relies on, whatever the role or the database sets.
        """

    def is_lock(self, error: BaseException) -> bool:
        """Return whether a call failed only because another session held a lock for too long.

        If so, nothing was written, and the connection can be used.
        """
        return False

    @abstractmethod
    def keep_late(self, refused: Sequence[Move | Note]) -> list[Move | Note]:
        """Keep refused moves and notes in the log, as :meth:`record` does.

        Returns those that had not been written before.
        """

    @abstractmethod
    def note(self, notes: Sequence[Note], *, daemon: UUID) -> list[Note]:
        """Write progress, messages and published files, fenced; returns the refused notes.

        If an attempt had its Task taken away, one refusal is kept, as by :meth:`record`.
        """
