"""One or two statements for a batch of transitions; checkpoints."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeGuard
from uuid import UUID

from django.db import DatabaseError, DataError, OperationalError
from django.db.models import Model, QuerySet

from ... import states
from ...conf import settings
from ...exceptions import NotSerializable
from ...models import Edge, Instance, Node, Response, Task, Type
from ...payload.codec import Payload
from ...states import DEAD_LETTER, Event, Row, State
from ..common.incompatible import is_misfit
from ..common.records import Records as ORMRecords
from ..common.removal import is_followed
from ..common.steps import Steps as ORMSteps
from ..values import Checkpoint, Delivered, Failed, Move, ProgressUpdate, ResponseData
from .removal import PATIENCE
from .statements import FEW, Fixed, array, cursor_of, execute, statement, texts

if TYPE_CHECKING:
    from . import PostgreSQLStore

# The parameters of the recording statements: a batch of moves as columns.

_NUMBERS = (
    *("instances", "attempts", "started", "finished", "retries", "delays"),
    *("logged", "times", "log_attempts", "levels"),
)

_TEXTS = (
    *("sources", "targets", "effects", "reasons"),
    *("events", "states", "whos", "messages", "details"),
)

_NOT_FAILED = Failed(None, "", b"", 0, "", "")  # type: ignore[arg-type]


def finish_parameters(finished: Mapping[int, Move], daemon: UUID) -> dict[str, Any]:
    """Return the parameters of finished attempts, in the order in which Tasks are locked."""
    keys = sorted(finished)
    moves = [finished[key] for key in keys]
    return {
        "daemon": str(daemon),
        "given": len(finished),
        "instances": array(keys),
        "attempts": array([move.attempt for move in moves]),
        "began": array([_microseconds(move.started) for move in moves]),
        "ended": array([_microseconds(move.time) for move in moves]),
        "whos": texts([move.who for move in moves]),
        **_response_parameters([move.response for move in moves]),
    }


def _response_parameters(responses: Collection[Any]) -> dict[str, Any]:
    """Return the columns of the Responses, with None for moves without one.

    If no move has a Response, the columns are empty.
    """
    if not any(responses):
        return {"content_types": [], "data": [], "files": [], "sizes": []}
    return {
        "content_types": [response and response.content_type for response in responses],
        "data": texts([response and _bytes(response.data) for response in responses]),
        "files": [response and response.file for response in responses],
        "sizes": [response and response.size for response in responses],
    }


def record_parameters(plain: Mapping[int, Sequence[Move]], daemon: UUID) -> dict[str, Any]:
    columns: defaultdict[str, list[Any]] = defaultdict(list)
    responses: dict[int, ResponseData] = {}
    for key, moves in plain.items():
        events = list(events_of(moves))
        _add_instance(columns, key, events)
        for move in events:
            _add_log(columns, move)
            if move.response is not None:
                responses[key] = move.response
    return {
        "daemon": str(daemon),
        **{name: array(columns[name]) for name in _NUMBERS},
        **{name: texts(columns[name]) for name in _TEXTS},
        "responding": list(responses),
        **_response_parameters(list(responses.values())),
    }


def failed_parameters(plain: Mapping[int, Sequence[Move]]) -> dict[str, Any]:
    """Return the columns of the dead letters; a move that is none has empty facts."""
    failed = [moves[-1].failed or _NOT_FAILED for moves in plain.values()]
    return {
        "groups": array([each.group for each in failed]),
        "types": texts([each.type for each in failed]),
        "fingerprints": texts([each.fingerprint.hex() for each in failed]),
        "versions": array([each.version for each in failed]),
        "exceptions": texts([each.exception for each in failed]),
        "titles": texts([each.title for each in failed]),
    }


def _add_instance(columns: defaultdict[str, list[Any]], key: int, moves: Sequence[Move]) -> None:
    last = moves[-1]
    is_terminal = TARGETS[last.event] in states.TERMINAL
    started = [move.time for move in moves if move.event == Event.START]
    columns["instances"].append(key)
    columns["attempts"].append(last.attempt)
    columns["sources"].append(SOURCES[moves[0].event])
    columns["targets"].append(str(TARGETS[last.event]))
    columns["effects"].append(EFFECTS[last.event].value)
    columns["started"].append(_epoch(started[-1]) if started else None)
    columns["finished"].append(_epoch(last.time) if is_terminal else None)
    columns["reasons"].append(str(last.reason) if is_terminal else "")
    columns["retries"].append(sum(RETRIES[move.event] for move in moves))
    columns["delays"].append(None if last.delay is None else last.delay.total_seconds())


def _add_log(columns: defaultdict[str, list[Any]], move: Move) -> None:
    columns["logged"].append(move.instance)
    columns["times"].append(_epoch(move.time))
    columns["events"].append(str(move.event))
    columns["states"].append(str(TARGETS[move.event]))
    columns["log_attempts"].append(move.attempt)
    columns["levels"].append(move.level)
    columns["whos"].append(move.who)
    columns["messages"].append(move.message)
    columns["details"].append(move.detail)


def _bytes(data: bytes | None) -> str | None:
    """Return bytes as hexadecimal text, which the server reads whatever the session sets."""
    return None if data is None else f"\\x{data.hex()}"


def _epoch(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()


def _microseconds(time: datetime | None) -> int | None:
    """Return microseconds since the epoch as an integer: quickest to write and to read."""
    return None if time is None else round(1e6 * time.timestamp())


# The plain events of a holder, which one statement can record.

# Most moves of a batch are plain. An expiry is not, since it may end in FAILED, which the portable
# store decides. The same holds for a deferral of a misfit.
PLAIN = states.plain_transitions()
TARGETS = {event: row.target for event, row in PLAIN.items()}
EFFECTS = {event: row.row for event, row in PLAIN.items()}
SOURCES = {event: "{" + ",".join(sorted(row.sources)) + "}" for event, row in PLAIN.items()}
RETRIES = {event: row.counts.count("retries") for event, row in PLAIN.items()}
_HOLDERS = {
    state: {event for event, row in PLAIN.items() if state in row.sources} for state in State
}


def is_plain(moves: Collection[Move]) -> bool:
    """Return whether the moves of an Instance are plain, of one attempt, and in legal order."""
    if len({move.attempt for move in moves}) > 1:
        return False
    state = None
    for move in events_of(moves):
        if move.event not in PLAIN or is_misfit(move):
            return False
        if move.reason in DEAD_LETTER and move.failed is None:
            return False
        if state is not None and move.event not in _HOLDERS.get(state, ()):
            return False
        state = TARGETS[move.event]
    return True


def events_of(moves: Iterable[Move]) -> Iterator[Move]:
    """Yield one move for each event: a move with ``started`` is two events."""
    for move in moves:
        if move.started is not None:
            yield Move(
                event=Event.START,
                instance=move.instance,
                attempt=move.attempt,
                time=move.started,
                who=move.who,
            )
        yield move


# Recording on PostgreSQL: one or two statements for a whole batch.

# The Instances that a statement may end. _ALONE: those whose end has no consequences; _NODES: also
# nodes of graphs, already locked; _HOOKED: those with hooks.
_ALONE: Fixed = frozenset({("ends", "plain")})
_NODES: Fixed = frozenset({("ends", "nodes")})
_HOOKED: Fixed = frozenset({("ends", "hooked")})


class Records(ORMRecords):
    """Writes a whole batch of moves by a statement or two. Odd moves go to the portable store."""

    store: "PostgreSQLStore"

    def record(self, moves: Sequence[Move], *, daemon: UUID | None = None) -> list[Move]:
        if daemon is None:
            return super().record(moves)
        of_instance: defaultdict[int, list[Move]] = defaultdict(list)
        for move in moves:
            of_instance[move.instance].append(move)
        # All or nothing: once an Instance is removed, nobody can tell that its end was recorded.
        # And the end of a node, or of an Instance with hooks, must be settled.
        expects_settled = self.store.graph_ends.expects_settled()
        is_simple = not expects_settled and all(move.kept for move in moves)
        with nullcontext() if is_simple else self.store.atomic():
            if expects_settled:
                self._record_ends(of_instance, daemon, is_all=True)
            for key in self._finish_unkept(of_instance, daemon):
                del of_instance[key]
            if not of_instance:
                return []
            rest = [move for move in moves if move.instance in of_instance]
            return self._record_kept(of_instance, rest, daemon)

    def _record_ends(
        self, of_instance: dict[int, list[Move]], daemon: UUID, *, is_all: bool
    ) -> None:
        """Record and settle the ends of graph nodes and of Instances with hooks.

        Removes the Instances that were written from ``of_instance``. The others are recorded one by
        one.
        """
        ends = [
            key for key, own in of_instance.items() if EFFECTS.get(own[-1].event) is Row.DELETED
        ]
        if not ends:
            return
        nodes, hooked = self.store.graph_ends.lock_ends(ends, is_all=is_all)
        ended: dict[int, Move] = {}
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
            settled = {key: TARGETS[move.event] for key, move in ended.items()}
            self.store.graph_ends.settle(settled, who=who)

    def _record_kept(
        self, of_instance: dict[int, list[Move]], moves: Sequence[Move], daemon: UUID
    ) -> list[Move]:
        finished, plain = _sorted_out(of_instance)
        steps = bool(finished) + bool(plain) + (len(finished) + len(plain) < len(of_instance))
        with self.store.atomic() if steps > 1 else nullcontext():
            written = self._write(finished, plain, daemon)
            left = {key: own for key, own in of_instance.items() if key not in written}
            if not left:
                return []
            with self.store.atomic():
                # Nodes and hooks that this session has not expected.
                self._record_ends(left, daemon, is_all=False)
                # Moves that were refused as a whole may be legal in part.
                rest = [move for move in moves if move.instance in left]
                return super().record(rest, daemon=daemon)

    def _write(
        self,
        finished: Mapping[int, Move],
        plain: Mapping[int, Sequence[Move]],
        daemon: UUID,
        which: Fixed = _ALONE,
    ) -> set[int]:
        """Write the simple ends and moves; returns the keys of those that were not refused.

        ``which`` says which Instances may end: the caller has to settle nodes and hooks.
        """
        written = self._finish(finished, daemon, which) if finished else set()
        if plain:
            written |= self._record_plain(plain, daemon, which)
            if any(EFFECTS[own[-1].event] is Row.FREED for own in plain.values()):
                self.store.tell()
        return written

    def _finish_unkept(self, of_instance: Mapping[int, Sequence[Move]], daemon: UUID) -> set[int]:
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
            with self.store.atomic(), cursor_of(self.store.connection) as cursor:
                cursor.execute(PATIENCE)
                execute(cursor, "finish_unkept", given)
                written, _ = cursor.fetchone()
        except OperationalError as error:
            if not self.store.is_lock(error):
                raise
            return set()
        return set(written or ())

    def _finish(self, finished: Mapping[int, Move], daemon: UUID, which: Fixed) -> set[int]:
        """Record finished attempts; returns the keys of those that were not refused."""
        savepoint = self.store.atomic() if self.store.connection.in_atomic_block else nullcontext()
        try:
            with savepoint, cursor_of(self.store.connection) as cursor:
                responds = any(move.response is not None for move in finished.values())
                given = finish_parameters(finished, daemon)
                execute(cursor, "finish" if responds else "finish_plain", given, fixed=which)
                written, is_all, _ = cursor.fetchone()
        except (DataError, NotSerializable):
            # Some value is invalid: record one by one to find out which.
            return set()
        return set(finished) if is_all else set(written or ())

    def _record_plain(
        self, plain: Mapping[int, Sequence[Move]], daemon: UUID, which: Fixed
    ) -> set[int]:
        if any(move.time is None for own in plain.values() for move in own):
            now = self.store.now()
            plain = {key: [_timed(move, now) for move in own] for key, own in plain.items()}
        with cursor_of(self.store.connection) as cursor:
            given, name = record_parameters(plain, daemon), "record_plain"
            if any(move.failed or move.detail for own in plain.values() for move in own):
                given |= failed_parameters(plain)
                name = "record"
            execute(cursor, name, given, prepared=len(plain) <= FEW, fixed=which)
            return {key for (key,) in cursor.fetchall()}

    def deliver(
        self,
        entries: Sequence[Move] | Sequence[ProgressUpdate],
        *,
        daemon: UUID,
        careful: bool = False,
    ) -> Delivered:
        waited = False
        if not careful:
            try:
                return super().deliver(entries, daemon=daemon)
            except DatabaseError as error:
                if not self.store.is_lock(error):
                    raise
                waited = True
        with self.store.atomic():
            locked = self._locked_by_others(entries, daemon)
            free: list[Any] = [entry for entry in entries if entry.instance not in locked]
            done = super().deliver(free, daemon=daemon) if free else Delivered()
        return Delivered(refused=done.refused, locked=frozenset(locked), waited=waited)

    def _locked_by_others(
        self, entries: Collection[Move | ProgressUpdate], daemon: UUID
    ) -> set[int]:
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

    def _not_free(
        self, model: type[Model], keys: Collection[int], *, no_key: bool = False
    ) -> set[int]:
        """Lock the rows of these keys; returns the keys that other sessions have locked."""
        rows = self.rows(model).filter(pk__in=keys).values_list("pk", flat=True)
        return self._locked(rows, no_key=no_key) if keys else set()

    def _locked(self, rows: QuerySet[Any, Any], *, no_key: bool = False) -> set[Any]:
        """Lock these rows; returns the values of those that other sessions have locked."""
        rows = rows.order_by("pk")
        return set(rows) - set(rows.select_for_update(skip_locked=True, no_key=no_key))


def _shortens(entry: Move | ProgressUpdate) -> TypeGuard[ProgressUpdate]:
    return isinstance(entry, ProgressUpdate) and bool(entry.left_out)


def _answers(entry: Move | ProgressUpdate) -> bool:
    return bool(entry.files) if isinstance(entry, ProgressUpdate) else entry.response is not None


def _is_finish(moves: Collection[Move]) -> bool:
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


def _sorted_out(
    of_instance: Mapping[int, Sequence[Move]],
) -> tuple[dict[int, Move], dict[int, Sequence[Move]]]:
    """Return, by Instance, the plain finishes and the other plain moves, of kept Instances."""
    finished: dict[int, Move]
    plain: dict[int, Sequence[Move]]
    finished, plain = {}, {}
    for key, own in of_instance.items():
        if _is_finish(own) and own[0].kept:
            finished[key] = own[0]
        elif is_plain(own) and all(move.kept for move in own):
            plain[key] = own
    return finished, plain


def _timed(move: Move, now: datetime) -> Move:
    return move if move.time is not None else move._replace(time=now)


# Checkpoints on PostgreSQL: one statement each, which is a transaction by itself.


class Steps(ORMSteps):
    """Writes a checkpoint by one statement. What is not plain goes to the portable store."""

    store: "PostgreSQLStore"

    def begin(
        self,
        instance: int,
        attempt: int,
        name: str,
        *,
        who: str = "",
        delay: timedelta | None = None,
    ) -> Checkpoint | None:
        given = {"instance": instance, "attempt": attempt, "name": name, "delay": delay}
        if self._write("begin_step", given | {"most": settings.MAX_STEPS}):
            left = 0.0 if delay is None else delay.total_seconds()
            return Checkpoint(is_done=False, left=left)
        return super().begin(instance, attempt, name, who=who, delay=delay)

    def keep(
        self,
        instance: int,
        attempt: int,
        name: str,
        payload: Payload,
        *,
        took: timedelta | None = None,
    ) -> bool:
        given = {"instance": instance, "attempt": attempt, "name": name, **payload._asdict()}
        if self._write("keep_step", given):
            return True
        return super().keep(instance, attempt, name, payload, took=took)

    def _write(self, name: str, given: Mapping[str, Any]) -> bool:
        """Execute a statement that writes at most one row; returns whether it wrote one."""
        with cursor_of(self.store.connection) as cursor:
            cursor.execute(statement(name).text, given)
            return cursor.rowcount == 1
