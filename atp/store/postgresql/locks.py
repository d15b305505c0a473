"""Waiting only a moment for locks of others; statements on an application's connection."""

from contextlib import contextmanager

from django.db import DatabaseError, DataError

from ...models import Edge, Instance, Node, Response, Task, Type
from ..common.base import ORMBase
from ..values import Delivered, ProgressUpdate
from .sessions import of_session, of_transaction, session_of
from .statements import PLANNING, cursor_of, has_code, is_pooled, refuse_characters, waiting

# A daemon's statements on the connection of an application: they leave no trace there.
#
# Tests are such an application: the transaction of a test goes on after a daemon's work in it,
# and its connection after the test.


@contextmanager
def as_guest(connection):
    """Return a context in which a daemon's statements change no setting of the session.

    Each statement sets its own planning. After the block, the session and its open transaction
    plan as before.
    """
    connection.ensure_connection()
    session = session_of(connection)
    own, session.plans_own_way = session.plans_own_way, False
    before = _planning(connection) if connection.in_atomic_block else None
    try:
        yield
        if before and connection.in_atomic_block:
            _plan(connection, before)
    finally:
        session.plans_own_way = own


def _planning(connection):
    said = ", ".join(f"current_setting('{name}')" for name in PLANNING)
    with cursor_of(connection) as cursor:
        cursor.execute(f"SELECT {said}")
        return cursor.fetchone()


def _plan(connection, values):
    """Set these planning values again for the rest of the transaction."""
    given = ", ".join(f"set_config('{name}', %s, true)" for name in PLANNING)
    with cursor_of(connection) as cursor:
        cursor.execute(f"SELECT {given}", values)


# Locks of other sessions: a daemon waits for them only for a moment.
#
# An application, an operator or a stopped client may keep a row locked for any time. The server is
# told how long a statement may wait for such a lock. What is locked is left for later; all else
# goes on. The other settings of a daemon's session are set here too.

# The server's error code for a statement that has waited too long for a lock.
_LOCK_NOT_AVAILABLE = "55P03"


class Locks(ORMBase):
    def limit_waiting(self, seconds):
        self.connection.ensure_connection()
        session = session_of(self.connection)
        if session.lock_timeout == seconds:
            return
        with cursor_of(self.connection) as cursor:
            if not is_pooled(cursor):
                version = self.connection.pg_version
                cursor.execute(f"{of_session(version)}; {waiting('SET', seconds)}")
        session.lock_timeout = seconds

    @contextmanager
    def atomic(self):
        is_outermost = not self.connection.in_atomic_block
        try:
            with super().atomic():
                session = session_of(self.connection)
                if session.lock_timeout is not None and session.is_pooled:
                    # Behind a pooler, each transaction may run in another backend.
                    own = of_transaction(self.connection.pg_version, is_outermost=is_outermost)
                    with cursor_of(self.connection) as cursor:
                        cursor.execute(f"{own}; {waiting('SET LOCAL', session.lock_timeout)}")
                yield
        except DataError as error:
            refuse_characters(error)
            raise

    def is_lock(self, error):
        return has_code(error, _LOCK_NOT_AVAILABLE)

    def deliver(self, entries, *, daemon, careful=False):
        waited = False
        if not careful:
            try:
                return super().deliver(entries, daemon=daemon)
            except DatabaseError as error:
                if not self.is_lock(error):
                    raise
                waited = True
        with self.atomic():
            locked = self._locked_by_others(entries, daemon)
            free = [entry for entry in entries if entry.instance not in locked]
            done = super().deliver(free, daemon=daemon) if free else Delivered()
        return Delivered(refused=done.refused, locked=frozenset(locked), waited=waited)

    def _locked_by_others(self, entries, daemon):
        """Lock the rows that these entries write to; returns the Instances locked by others.

        The rows are the Task, the Instance, the Response if the entry has one, the log if some of
        it is deleted, the Type if a refusal would be counted, the node and the Tasks that wait for
        it, and in the line of a schedule its edges.
        """
        keys = {entry.instance for entry in entries}
        locked = self._not_free(Task, keys) | self._not_free(Instance, keys, no_key=True)
        locked |= self._not_free(Node, keys)
        behind = self.rows(Edge).filter(upstream__in=keys).values_list("upstream", "downstream")
        behind = list(behind)
        waiting = self._not_free(Task, {key for _, key in behind})
        locked |= {upstream for upstream, key in behind if key in waiting}
        of_lines = list(
            self.rows(Node).filter(pk__in=keys, graph=None).values_list("pk", flat=True)
        )
        for end in ("upstream", "downstream") if of_lines else ():
            edges = self.rows(Edge).filter(**{f"{end}__in": of_lines})
            locked |= {key for _, key in self._locked(edges.values_list("pk", f"{end}_id"))}
        for entry in entries:
            if _shortens(entry) and self._locked(self._own_messages(entry).values_list("pk")):
                locked.add(entry.instance)
        locked |= self._not_free(Response, {e.instance for e in entries if _answers(e)})
        held = self.rows(Task).held_by(daemon).filter(pk__in=keys)
        attempts = dict(held.values_list("pk", "attempt"))
        refused = {e.instance for e in entries if attempts.get(e.instance) != e.attempt}
        types = dict(self.rows(Instance).filter(pk__in=refused).values_list("pk", "type_id"))
        not_free = self._not_free(Type, set(types.values()), no_key=True)
        return locked | {key for key, type in types.items() if type in not_free}

    def _not_free(self, model, keys, *, no_key=False):
        """Lock the rows of these keys; returns the keys that other sessions have locked."""
        rows = self.rows(model).filter(pk__in=keys).values_list("pk", flat=True)
        return self._locked(rows, no_key=no_key) if keys else set()

    def _locked(self, rows, *, no_key=False):
        """Lock these rows; returns the values of those that other sessions have locked."""
        rows = rows.order_by("pk")
        return set(rows) - set(rows.select_for_update(skip_locked=True, no_key=no_key))


def _shortens(entry):
    return isinstance(entry, ProgressUpdate) and bool(entry.left_out)


def _answers(entry):
    return bool(entry.files) if isinstance(entry, ProgressUpdate) else entry.response is not None
