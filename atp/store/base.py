"""The store contract: every write to the queue, as verbs on batches.

A store is the only code that writes Task, Instance.state or LogRecord. All
stores pass the same contract tests. Each verb is one transaction; inside a
caller's transaction it is part of that.

What goes in and comes out is in :mod:`.values`.
"""

from abc import ABC, abstractmethod

from ..modes import Mode


class Store(ABC):
    """The verbs. ``alias`` is the database that holds the queue."""

    def __init__(self, alias):
        self.alias = alias

    @property
    @abstractmethod
    def lock_folder(self):
        """Where daemons' leases are file locks instead of times: the Path of their folder, or None.

        So on SQLite: its daemons share a host, and any open transaction
        keeps all writers waiting, so a renewed row would lapse innocently.
        """

    @abstractmethod
    def now(self):
        """The database's clock, which leases and due times are compared with."""

    @abstractmethod
    def register(self, registrations, *, who="", update=True):
        """Write Types; again is an update (RFC 14). Changes are logged.

        With ``update=False`` only what is missing is written.
        """

    @abstractmethod
    def unregister(self, identifier, *, who=""):
        """Remove a Type. Raises UnknownType, or TypeInUse while Instances of it exist."""

    @abstractmethod
    def enqueue(self, registration, requests, *, who=""):
        """Write Instances with Inputs, LogRecord and Task, all or none.

        Returns the Instances in the order of ``requests``, among them those
        that existed. Raises DuplicateIdentifier.
        """

    @abstractmethod
    def join(self, facts, *, lease, old=None, holding=()):
        """Give a daemon a row and thereby an identity.

        With ``old`` (a uuid) it takes that identity over: nothing can be
        claimed under the old one any more, ``holding`` (pairs of Instance and
        attempt) is moved to the new one, and whatever else the old one held
        is expired. A request on the old row goes on to the new one. Returns
        :class:`Reconciled`. Joining again under the same uuid, because the answer
        got lost, does no harm.
        """

    @abstractmethod
    def renew(self, daemon, *, lease, workers=(), idle=False, mode=Mode.RUNNING, channel=""):
        """Extend the daemon's lease; returns :class:`Renewal`. Raises LeaseLost.

        ``channel`` is that of its listener: while it is idle, an enqueue may hand it a
        Task there, which it holds then as if it had claimed it.
        """

    @abstractmethod
    def command(self, daemon, order, *, who=""):
        """Write on a daemon's row what it shall do, and log who said so; returns the row.

        The daemon finds it there. Raises UnknownDaemon, or IllegalOrder where it is
        doing that already, is stopping, or is lost.
        """

    @abstractmethod
    def outlook(self, types, *, daemon=None):
        """Tell what there is to do, as an :class:`Outlook`: for Tasks of these Types, and all.

        ``daemon`` is who asks. Takes and writes nothing.
        """

    @abstractmethod
    def leave(self, daemon):
        """Remove the daemon's row. Whatever it still held is released."""

    @abstractmethod
    def is_over(self, row, now):
        """Tell whether the lease of a Daemon row is over, by its lock or by the time."""

    @abstractmethod
    def claim(self, daemon, types, limit, *, free=None):
        """Claim up to ``limit`` due Tasks of the Types named, in order within each lane.

        Shared between Types by their weights, and between the lanes of each evenly, over
        time too. What is held is left out. Of what is limited it takes no more than may
        be started, and no more than ``free`` workers can start now.

        Returns a list of :class:`Claimed`. Raises LeaseLost. RFC 14's dequeue.
        """

    @abstractmethod
    def shut(self, place, mode, *, who="", reason="", until=None, expected=None):
        """Set the gate of a :class:`Place` to "hold" or "drop"; returns its row.

        ``until`` is when it opens by itself, by the database's clock. ``was`` of the row is
        the one that was shut before. ``expected`` is how the gate has to be: "open", "hold"
        or "drop", or since when it has been as it is. Raises GateChanged.
        """

    @abstractmethod
    def open(self, place, *, who="", reason="", expected=None):
        """Open the gate of a :class:`Place`; returns it as it was, None if it was open.

        ``expected`` is as for :meth:`shut`. Raises GateChanged.
        """

    @abstractmethod
    def drop(self, *, who="", limit=500):
        """Fail what waits where a gate drops it; returns how many."""

    @abstractmethod
    def limit(self, place, *, who="", **changes):
        """Set what is named of a Limit's columns for a :class:`Place`, for an operator.

        Returns its row.
        """

    @abstractmethod
    def unlimit(self, place, declared, *, who=""):
        """Leave the limits of a :class:`Place` to the code; returns whether an operator's were set.

        ``declared`` is what the code says of them, as columns: that is written. None is
        what nobody here knows: what is in force stays, until it is declared next.
        """

    @abstractmethod
    def declare(self, limits, *, who=""):
        """Write the limits that code declares, columns by Type, where no operator has set any."""

    @abstractmethod
    def record(self, changes, *, daemon=None):
        """Apply events, each with its LogRecord, those of one Instance in order.

        With ``daemon`` they are its holder's, fenced by holder and attempt;
        without, they are somebody's who holds nothing. Returns the changes
        that were refused, of which nothing was written.

        What a holder was refused because its Task had been taken away is kept, as
        a message in the Instance's log, and counted for its Type (G4). A change that
        is in the log already, with the same time and hand, is not refused: whoever
        does not know whether it was written may record it again.
        """

    @abstractmethod
    def conclude(self, change, *, note=None):
        """Record, in the caller's transaction, that an attempt FINISHED, and what it says.

        So a worker ends a transactional attempt (G7). The fence is the attempt alone:
        its number is given out once, whatever identity its daemon has by now. Raises
        TaskGone, and then the transaction must be rolled back.
        """

    @abstractmethod
    def keep_late(self, refused):
        """Keep changes and notes that were refused, as :meth:`record` does with those it refuses.

        Returns those that had not been written before.
        """

    @abstractmethod
    def note(self, notes, *, daemon):
        """Write progress, messages and published files, fenced. Returns the refused notes.

        Of each attempt that had its Task taken away one refusal is kept, as by :meth:`record`.
        """

    @abstractmethod
    def request(self, instance, request, *, who, message=""):
        """Ask the holder of a claimed Task for something, and log who asked.

        Returns False, with nothing written, if the Task is not claimed, or to be cancelled.
        """

    @abstractmethod
    def cancel(self, instances, *, who=""):
        """End what is live of the Instances given by key; returns :class:`Cancelled`.

        What waits is FAILED at once. The holder of what is claimed is asked, and the log
        says by whom: it ends the attempt as CANCELLED, unless that has ended by then.
        Whatever else sends the Instance back to the queue, a lost daemon too, leads on
        to CANCELLED in the same transaction.
        """

    @abstractmethod
    def asked(self, daemon):
        """The requests on the Tasks that the daemon holds, as a list of :class:`Asked`."""

    @abstractmethod
    def change(self, instances, alteration, *, who=""):
        """Change Tasks that wait, and log what and who: all of those that do, or none.

        Returns, by key, what was changed in words, empty where nothing was different; what
        does not wait is left out, as it is. Raises InvalidOption if one would be due only
        after its ``start_before``.
        """

    @abstractmethod
    def sweep(self, *, daemon=None, limit=500):
        """Expire what lost daemons hold.

        ``daemon`` is who sweeps: it never sweeps itself. Returns :class:`Swept`.
        """

    @abstractmethod
    def miss(self, *, who="", limit=500):
        """Fail what waits and was not started before its ``start_before``; returns how many."""

    @abstractmethod
    def scan(self, place=None, *, who="", repair=True):
        """Look for what should never be, with queries of its own and a delayed clock.

        Returns :class:`~.findings.Scanned`. What indexes tell is looked for each
        time; besides, a part of each table by its primary key, from ``place`` on,
        which is what the last scan returned, or None to begin with the newest.
        What is safe to repair is repaired, as ``who``, unless ``repair`` is off;
        each under its locks, looked at again. So any number may scan at once.
        """

    @abstractmethod
    def purge(self, *, type=None, instances=None, limit=500, who=""):
        """Remove up to ``limit`` terminal Instances and return how many.

        By retention: those that ended longer ago than their Type keeps them,
        of one Type if ``type`` is given. Or those given by key. If somebody
        asked for it, ``who``, that is logged about the Type.
        """

    @abstractmethod
    def tell(self):
        """Wake the daemons that are idle, where they listen: something may be started."""

    def listener(self):
        """Return what tells of commits by others, or None: then there is only polling.

        It has ``wait(timeout)``, which blocks for up to that many seconds and returns
        True as soon as another connection may have committed something, and never
        raises because the database is locked; and ``close()``. What it has open
        it opens in the thread that waits. A hint, nothing to rely on: who listens
        polls all the same.

        Where Tasks are handed over, ``channel`` is what :meth:`renew` is to be told, and
        another, or empty, once that has been lost; ``handed()`` takes what has come there:
        pairs of the daemon's uuid and a :class:`Claimed`. What came after a channel was
        lost is held by the daemon, and it does not know. ``keeps`` tells whether what came
        while nobody waited is heard of by the next who does; else somebody always has to.
        """
        return None  # noqa: RET501 (an answer)
