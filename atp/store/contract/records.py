"""Recording what happened to attempts."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ..values import Delivered, Move, Note


class Records(ABC):
    @abstractmethod
    def record(self, moves: Sequence[Move], *, daemon: UUID | None = None) -> list[Move]:
        """Apply events, each with its LogRecord, those of one Instance in order.

        With ``daemon`` they are its holder's, fenced by holder and attempt;
        without, they are somebody's who holds nothing. Returns the moves
        that were refused, of which nothing was written.

        What a holder was refused because its Task had been taken away is kept, as
        a message in the Instance's log, and counted for its Type (G4). A move that
        is in the log already, with the same time and hand, is not refused: whoever
        does not know whether it was written may record it again.
        """

    @abstractmethod
    def conclude(self, move: Move, *, note: Note | None = None) -> None:
        """Record, in the caller's transaction, that an attempt FINISHED, and what it says.

        So a worker ends a transactional attempt (G7). The fence is the attempt alone:
        its number is given out once, whatever identity its daemon has by now. Raises
        TaskGone, and then the transaction must be rolled back.
        """

    def deliver(
        self, entries: Sequence[Move] | Sequence[Note], *, daemon: UUID, careful: bool = False
    ) -> Delivered:
        """Record moves, or write notes, of a daemon; returns :class:`Delivered`.

        An Instance that somebody else has locked for longer than :meth:`limit_waiting`
        allows is left out; the others are written. With ``careful`` it looks for such
        locks before it writes, and waits for none.
        """
        write: Any = self.record if isinstance(entries[0], Move) else self.note
        return Delivered(refused=write(entries, daemon=daemon))

    def limit_waiting(self, seconds: float) -> None:  # noqa: B027 (a store without locks of rows has no limit)
        """Make this thread's connection a daemon's: no statement waits longer for a lock of others.

        What a role or a database sets that a daemon relies on is set as it should be.
        """

    def is_lock(self, error: BaseException) -> bool:
        """Tell whether a call failed only because somebody else held a lock for too long.

        Then nothing was written, and the connection is sound.
        """
        return False

    @abstractmethod
    def keep_late(self, refused: Sequence[Move | Note]) -> list[Move | Note]:
        """Keep moves and notes that were refused, as :meth:`record` does with those it refuses.

        Returns those that had not been written before.
        """

    @abstractmethod
    def note(self, notes: Sequence[Note], *, daemon: UUID) -> list[Note]:
        """Write progress, messages and published files, fenced. Returns the refused notes.

        Of each attempt that had its Task taken away one refusal is kept, as by :meth:`record`.
        """
