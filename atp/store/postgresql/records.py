"""Recording on PostgreSQL: one or two statements for a whole batch."""

import logging
from collections import defaultdict
from contextlib import nullcontext

from django.db import DataError, OperationalError

from ...exceptions import NotSerializable
from ...states import Event, Row
from ..common.records import Records as ORMRecords
from ..common.removal import is_followed
from .columns import failed_parameters, finish_parameters, record_parameters
from .driver.cursors import cursor_of
from .driver.statements import FEW, execute
from .plain import EFFECTS, TARGETS, is_plain
from .removal import PATIENCE

# The parts of a statement for the Instances that it may end. _ALONE: those whose end has no
# consequences; _NODES: also nodes of graphs, already locked; _HOOKED: also Instances with hooks.
_ALONE = frozenset({("nodes", None), ("hooked", None)})
_NODES = frozenset({("hooked", None)})
_HOOKED: frozenset = frozenset()


class Records(ORMRecords):
    def record(self, moves, *, daemon=None):
        if daemon is None:
            return super().record(moves)
        of_instance = defaultdict(list)
        for move in moves:
            of_instance[move.instance].append(move)
        # All or nothing: once an Instance is removed, nobody can tell that its end was recorded.
        # And the end of a node, or of an Instance with hooks, must be settled.
        expects_settled = self.graphs.expects_settled()
        is_simple = not expects_settled and all(move.kept for move in moves)
        with nullcontext() if is_simple else self.atomic():
            if expects_settled:
                self._record_ends(of_instance, daemon, is_all=True)
            for key in self._finish_unkept(of_instance, daemon):
                del of_instance[key]
            if not of_instance:
                return []
            rest = [move for move in moves if move.instance in of_instance]
            return self._record_kept(of_instance, rest, daemon)

    def _record_ends(self, of_instance, daemon, *, is_all):
        """Record and settle the ends of graph nodes and of Instances with hooks.

        Removes the Instances that were written from ``of_instance``. The others are recorded one by
        one.
        """
        ends = [
            key for key, own in of_instance.items() if EFFECTS.get(own[-1].event) is Row.DELETED
        ]
        if not ends:
            return
        nodes, hooked = self.graphs.lock_ends(ends, is_all=is_all)
        ended = {}
        for keys, which in ((nodes, _NODES), (hooked, _HOOKED)):
            if keys:
                # A node is kept whole until its graph has ended, an Instance with hooks for some
                # time.
                own = {key: [m._replace(kept=True) for m in of_instance[key]] for key in keys}
                written = self._write(*_sorted_out(own), daemon, which)
                ended |= {key: own[key][-1] for key in written}
        for key in ended:
            del of_instance[key]
        if ended:
            who = next(iter(ended.values())).who
            self.graphs.settle({key: TARGETS[m.event] for key, m in ended.items()}, who=who)

    def _record_kept(self, of_instance, moves, daemon):
        finished, plain = _sorted_out(of_instance)
        steps = bool(finished) + bool(plain) + (len(finished) + len(plain) < len(of_instance))
        with self.atomic() if steps > 1 else nullcontext():
            written = self._write(finished, plain, daemon)
            left = {key: own for key, own in of_instance.items() if key not in written}
            if not left:
                return []
            with self.atomic():
                # Nodes and hooks that this session has not expected.
                self._record_ends(left, daemon, is_all=False)
                # Moves that were refused as a whole may be legal in part.
                rest = [move for move in moves if move.instance in left]
                return super().record(rest, daemon=daemon)

    def _write(self, finished, plain, daemon, which=_ALONE):
        """Write the simple ends and moves; returns the keys of those that were not refused.

        ``which`` says which Instances may end: the caller has to settle nodes and hooks.
        """
        written = self._finish(finished, daemon, which) if finished else set()
        if plain:
            written |= self._record_plain(plain, daemon, which)
            if any(EFFECTS[own[-1].event] is Row.FREED for own in plain.values()):
                self.tell()
        return written

    def _finish_unkept(self, of_instance, daemon):
        """Remove Instances that FINISHED and are not kept; returns the keys of those removed.

        If something of an Instance is locked, it is recorded like any other, and left to the purge.
        """
        unkept = {
            key: own[0] for key, own in of_instance.items() if not own[0].kept and _is_finish(own)
        }
        if not unkept or is_followed():
            return set()
        given = finish_parameters(unkept, daemon)
        try:
            with self.atomic(), cursor_of(self.connection) as cursor:
                cursor.execute(PATIENCE)
                execute(cursor, "finish_unkept", given)
                written, _ = cursor.fetchone()
        except OperationalError as error:
            if not self.is_lock(error):
                raise
            return set()
        return set(written or ())

    def _finish(self, finished, daemon, which):
        """Record finished attempts; returns the keys of those that were not refused."""
        savepoint = self.atomic() if self.connection.in_atomic_block else nullcontext()
        try:
            with savepoint, cursor_of(self.connection) as cursor:
                execute(
                    cursor,
                    "finish",
                    finish_parameters(finished, daemon),
                    fixed=_responds(finished) | which,
                )
                written, is_all, _ = cursor.fetchone()
        except (DataError, NotSerializable):
            # Some value is invalid: record one by one to find out which.
            return set()
        return set(finished) if is_all else set(written or ())

    def _record_plain(self, plain, daemon, which):
        if any(move.time is None for own in plain.values() for move in own):
            now = self.now()
            plain = {key: [_timed(move, now) for move in own] for key, own in plain.items()}
        with cursor_of(self.connection) as cursor:
            given, few = record_parameters(plain, daemon), len(plain) <= FEW
            if any(move.failed for own in plain.values() for move in own):
                given |= failed_parameters(plain)
                which |= _details(plain)
            else:
                which |= _details(plain) | _WITHOUT_FAILED
            execute(cursor, "record", given, prepared=few, fixed=which)
            return {key for (key,) in cursor.fetchall()}


def _is_finish(moves):
    """Return whether the only event of an Instance is a plain finish without a message."""
    if len(moves) > 1:
        return False
    [move] = moves
    return (
        move.event == Event.FINISH
        and move.time is not None
        and move.level == logging.INFO
        and not move.message
    )


def _sorted_out(of_instance):
    """Return, by Instance, the plain finishes and the other plain moves, of kept Instances."""
    finished, plain = {}, {}
    for key, own in of_instance.items():
        if _is_finish(own) and own[0].kept:
            finished[key] = own[0]
        elif is_plain(own) and all(move.kept for move in own):
            plain[key] = own
    return finished, plain


_SILENT = frozenset({(name, None) for name in ("content_types", "data", "files", "sizes")})


def _responds(finished):
    """Return the fixed parameters: without Responses, the statement has no columns for them."""
    some = any(move.response is not None for move in finished.values())
    return frozenset() if some else _SILENT


_WITHOUT_DETAILS = frozenset({("details", None)})
_FAILED = ("groups", "types", "fingerprints", "versions", "exceptions", "titles")
# Without dead letters, the statement has no columns for them.
_WITHOUT_FAILED = frozenset((name, None) for name in _FAILED)


def _details(plain):
    """Return the fixed parameters: if no move has a detail, the statement has no such column."""
    some = any(move.detail for own in plain.values() for move in own)
    return frozenset() if some else _WITHOUT_DETAILS


def _timed(move, now):
    return move if move.time is not None else move._replace(time=now)
