"""Gates, limits, queue depth, changes of waiting Tasks, commands."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from uuid import UUID

from django.db.models import Count, Max, Min, Q, QuerySet, Sum

from ... import messages, text
from ...commands import (
    CANCEL,
    PAUSE,
    RESUME,
    STACK,
    AttemptCommand,
    Cancelled,
    join_request,
    split_request,
)
from ...exceptions import GateChanged, IllegalTransition, InvalidOption
from ...models import (
    FAILURE_COLUMNS,
    Gate,
    Instance,
    Kind,
    Limit,
    LogRecord,
    Span,
    Statistic,
    Task,
    Type,
    group_renamed_types,
)
from ...querysets import TaskQuerySet
from ...states import Actor, Event, Reason, State
from ..facts import LOW_SHARE, Changes, Fill, Scope
from ..values import Move, Registration, Submission
from .base import Part
from .transitions import Mover, cancel_requests


def _commands(request: str) -> Iterator[str]:
    """Yield the commands in the request of a Task's row."""
    command, has_stack = split_request(request)
    if command:
        yield command
    if has_stack:
        yield STACK


def _makes_sense(request: str, before: str, state: str) -> bool:
    """Return whether a request to pause or resume makes sense in this state, after ``before``."""
    if request == PAUSE:
        return state == State.RUNNING and before != PAUSE
    if request == RESUME:
        return before == PAUSE or (state == State.PAUSED and before != RESUME)
    return True


def _by(record: LogRecord | None, now: datetime) -> dict[str, Any]:
    """Return who asked (``who``) and how long ago (``age``), from the LogRecord of the request."""
    if record is None:
        return {}
    return {"who": record.who, "age": max(0.0, (now - record.time).total_seconds())}


def _refuse_blocked(tasks: Iterable[Task]) -> None:
    """Raise IllegalTransition if a Task waits for others: it becomes due when those end."""
    for task in tasks:
        if task.is_blocked:
            one, of = ("node", "graph") if task.instance.node.graph_id else ("Instance", "schedule")
            others = f"another {one}" if task.waits == 1 else f"{task.waits} other {one}s"
            raise IllegalTransition(
                f"{task.instance} cannot be made due: it waits for {others} of its {of}.",
                state=State.ACCEPTED,
            )


def _alter(task: Task, changes: Changes, now: datetime) -> Iterator[tuple[str, Any, Any]]:
    """Change a Task in memory; yields name, old value and new value of each changed column."""
    try:
        due = changes.due_at(task.due_at, now)
        due = due.astimezone(UTC)
    except OverflowError:
        raise InvalidOption("The due time is beyond what the calendar holds.") from None
    if due != task.due_at:
        if task.start_before is not None and due >= task.start_before:
            raise InvalidOption(
                f"The due time ({due}) must be earlier than start_before ({task.start_before})."
            )
        yield "due", task.due_at, due
        task.due_at = due
    for name in ("priority", "collection"):
        was, wanted = getattr(task, name), getattr(changes, name)
        if wanted is not None and wanted != was:
            yield name, was, wanted
            setattr(task, name, wanted)


# The fill of Types and lanes: waiting Tasks compared with ``max_waiting`` and ``max_wait``.

BOUNDING = Q(max_waiting__isnull=False) | Q(max_wait__isnull=False)
# Late Tasks, and Instances that ended lately, are counted up to this number.
COUNTED = 10_000


class Filling(Part):
    """How full Types and lanes are."""

    def _looking(self) -> AbstractContextManager[None]:
        """Return a context for reads: inside a caller's transaction, one that may write.

        On SQLite, a transaction that has only read may fail when it writes later.
        """
        return self.store.atomic() if self.store.connection.in_atomic_block else nullcontext()

    def bounded(self) -> dict[str, bool]:
        rows = self.rows(Limit).filter(BOUNDING).order_by()
        # One row for each Type, however many of its lanes have a limit.
        lanes = rows.values_list("type__identifier").annotate(lanes=Count("collection"))
        with self._looking():
            return {identifier: bool(count) for identifier, count in lanes}

    def fills(
        self, type: str, collections: Iterable[str | None], declared: Mapping[str, Any]
    ) -> dict[str | None, Fill]:
        collections = list(collections)
        names = [_subject(type, collection) for collection in collections]
        with self._looking():
            rows = {row.subject: row for row in self.rows(Limit).filter(subject__in=names)}
            return {
                collection: self._fill(type, collection, rows.get(name), declared)
                for collection, name in zip(collections, names, strict=True)
            }

    def _fill(
        self, type: str, collection: str | None, row: Limit | None, declared: Mapping[str, Any]
    ) -> Fill:
        """Return the :class:`Fill` of one scope; ``row`` is its row of Limit, or None."""
        if row is not None:
            max_waiting, max_wait = row.max_waiting, row.max_wait
        elif collection is None:
            max_waiting, max_wait = declared.get("max_waiting"), declared.get("max_wait")
        else:
            max_waiting = max_wait = None
        if max_waiting is None and max_wait is None:
            return Fill(type=type, collection=collection)
        tasks = self.rows(Task).waiting().filter(type__identifier=type)
        if collection is not None:
            tasks = tasks.filter(collection=collection)
        waiting, oldest, late = 0, None, 0
        if max_waiting is not None:
            waiting = tasks[: 2 * max_waiting + 1].count()
        if max_waiting is None or waiting >= LOW_SHARE * max_waiting:
            now = self.store.now()
            first = tasks.filter(due_at__lte=now).aggregate(first=Min("due_at"))["first"]
            oldest = None if first is None else now - first
            if max_wait is not None and oldest is not None and oldest > max_wait:
                late = tasks.filter(due_at__lt=now - max_wait)[:COUNTED].count()
        return Fill(
            type=type,
            collection=collection,
            max_waiting=max_waiting,
            max_wait=max_wait,
            waiting=waiting,
            oldest=oldest,
            late=late,
        )

    def taken(self, type: str, submissions: Sequence[Submission]) -> set[int]:
        names = {each.identifier for each in submissions if each.identifier is not None}
        keys = {each.unique for each in submissions if each.unique is not None}
        named: set[str | None] = set()
        live: set[str | None] = set()
        if not names and not keys:
            return set()
        own: Any = self.rows(Type).filter(identifier=type).values_list("pk", flat=True).first()
        family = group_renamed_types(self.rows(Type)).get(own, {own})
        if names:
            found = self.rows(Instance).filter(type__in=family, identifier__in=names)
            named = set(found.values_list("identifier", flat=True))
        if keys:
            found = self.rows(Task).filter(type__in=family, unique_key__in=keys)
            live = set(found.values_list("unique_key", flat=True))
        return {
            number
            for number, each in enumerate(submissions)
            if each.identifier in named or each.unique in live
        }

    def drain_rate(self, type: str, seconds: float) -> float:
        now = self.store.now()
        since = now - timedelta(seconds=seconds)
        if self.rows(Type).filter(identifier=type, retention__lt=now - since).exists():
            # They do not stay for so long.
            return self._counted_rate(type, since, now)
        ended = self.rows(Instance).of_type(type).filter(finished__gte=since)
        count = ended[:COUNTED].count()
        if count == COUNTED:
            # There may be more: how long the newest took.
            newest = ended.order_by("-finished").values_list("finished", flat=True)
            # Some may have been removed meanwhile.
            for first in newest[COUNTED - 1 : COUNTED]:
                seconds = max((now - first).total_seconds(), 0.001)
        return count / seconds

    def _counted_rate(self, type: str, since: datetime, now: datetime) -> float:
        """Return the ends a second as the daemons have counted them, by minutes."""
        begin = since.replace(second=0, microsecond=0)
        rows = self.rows(Statistic).filter(span=Span.MINUTE, type=type, start__gte=begin)
        sums = rows.aggregate(
            **{f"sum_{name}": Sum(name) for name in ("finished", *FAILURE_COLUMNS)}
        )
        return float(sum(filter(None, sums.values()))) / (now - begin).total_seconds()

    @contextmanager
    def enqueueing_alone(self, registration: Registration) -> Iterator[None]:
        no_key = self.store.connection.features.has_select_for_no_key_update
        # Daemons and other enqueues only keep others from unregistering the Type. So they do not
        # wait for this lock, which needs a right on the table, unlike an advisory lock.
        type = self.rows(Type).select_for_update(no_key=no_key)
        keys = type.filter(identifier=registration.identifier).values_list("pk")
        with self.store.atomic():
            if not list(keys):
                self.store.types.register([registration], update=False)
                list(keys.all())
            yield

    def log_full(self, fill: Fill, count: int, *, seconds: float, who: str = "") -> bool:
        with self.store.atomic():
            now = self.store.now()
            subject = _subject(fill.type, fill.collection)[:255]
            records = self.rows(LogRecord).filter(instance__isnull=True, subject=subject)
            if records.filter(kind=Kind.FULL, time__gt=now - timedelta(seconds=seconds)).exists():
                return False
            self.store.log(
                Kind.FULL,
                messages.queue_full(count, fill.waiting),
                subject=subject,
                time=now,
                who=who,
                detail=str(count),
                level=logging.WARNING,
            )
        return True


def _subject(type: str, collection: str | None) -> str:
    return Scope(Type(identifier=type), collection).subject


# Gates in the portable store: the shut gates, and dropping the Tasks behind them.

DROP, HOLD = "drop", "hold"


@dataclass(frozen=True)
class Closed:
    """The closed lanes: pairs of a Type's key and a collection. None stands for all."""

    pairs: frozenset[tuple[int | None, str | None]]

    def shuts(self, type_id: int, collection: str | None = None) -> bool:
        """Return whether a Type is shut; with a collection, whether that lane is shut."""
        return not self.pairs.isdisjoint(
            (
                (None, None),
                (type_id, None),
                *([] if collection is None else [(type_id, collection)]),
            )
        )

    @property
    def lanes(self) -> list[tuple[int, str]]:
        """The pairs that name a single lane."""
        return [pair for pair in self.pairs if None not in pair]  # type: ignore[misc]

    def with_types(self, keys: Iterable[int]) -> Self:
        """Return a copy in which all lanes of these Types are closed too."""
        return replace(self, pairs=self.pairs | {(key, None) for key in keys})

    def with_limits(self, limits: QuerySet[Limit]) -> Self:
        """Return a copy in which the scopes of these Limits are closed too."""
        return replace(self, pairs=self.pairs | set(limits.values_list("type", "collection")))


class Gates(Part):
    """The shut gates, and dropping the Tasks behind them."""

    def closed(self, now: datetime) -> Closed:
        """Return the :class:`Closed` scopes, whose gates hold or drop Tasks."""
        return Closed(frozenset(self._shut(now).values_list("type", "collection")))

    def _shut(self, now: datetime) -> QuerySet[Gate]:
        return self.rows(Gate).filter(Q(until__isnull=True) | Q(until__gt=now))

    def due_lanes(
        self, types: Sequence[int], closed: Closed, time: datetime, limit: int
    ) -> list[tuple[int, str, int]]:
        """Return up to ``limit`` lanes with Tasks that have been due since ``time``.

        Each is a tuple: the Type's key, the collection, the highest priority among the due Tasks.
        Lanes that are ``closed`` are left out.
        """
        due = self.rows(Task).due(time).filter(type__in=types)
        for type, collection in closed.lanes:
            due = due.exclude(type=type, collection=collection)
        lanes = due.values_list("type", "collection").annotate(Max("priority"))
        return list(lanes.order_by("type", "collection")[:limit])

    def _dropped(self, now: datetime) -> Iterator[tuple[Gate, TaskQuerySet]]:
        """Yield each dropping gate with the QuerySet of the waiting Tasks behind it."""
        for gate in self._shut(now).filter(mode=DROP):
            tasks = self.rows(Task).waiting()
            if gate.type_id is not None:
                tasks = tasks.filter(type=gate.type_id)
            if gate.collection is not None:
                tasks = tasks.filter(collection=gate.collection)
            yield gate, tasks

    def drops(self) -> bool:
        """Return whether a Task waits behind a gate that drops it."""
        return any(tasks.exists() for _, tasks in self._dropped(self.store.now()))

    def opens(self, now: datetime) -> float | None:
        """Return the seconds until the first gate opens by itself; None if none will."""
        first = self._shut(now).aggregate(first=Min("until"))["first"]
        return None if first is None else (first - now).total_seconds()

    def drop(self, *, who: str = "", limit: int = 500) -> int:
        now, dropped = self.store.now(), 0
        for gate, tasks in self._dropped(now):
            if dropped < limit and tasks.exists():
                with self.store.atomic():
                    # Whoever opens it meanwhile waits; what is enqueued afterwards stays.
                    shut = self._shut(self.store.now()).filter(
                        pk=gate.pk, mode=DROP, since=gate.since
                    )
                    if not shut.select_for_update(skip_locked=True):
                        continue
                    locked = tasks.select_for_update(skip_locked=True).order_by("pk")
                    keys = list(locked.values_list("pk", flat=True)[: limit - dropped])
                    mover = Mover(self.store, now).load(keys, waits=False)
                    for key in keys:
                        dropped += mover.apply(_drop(key, gate, who), actor=Actor.ANYONE)
                    mover.write()
        return dropped


def _drop(key: int, gate: Gate, who: str) -> Move:
    return Move(
        event=Event.FAIL,
        instance=key,
        who=who,
        message=messages.dropped(gate),
        level=logging.WARNING,
        reason=Reason.DROPPED,
    )


# Setting gates and limits, in the portable store.

# When a gate is set, the gates that opened this long ago are deleted.
KEPT = timedelta(days=1)
# The columns of a Limit that limits nothing.
NOTHING: dict[str, Any] = {
    "max_running": None,
    "max_running_per_collection": None,
    "rate": "",
    "per_second": None,
    "burst": 1,
    "weight": 1.0,
    "max_waiting": None,
    "max_wait": None,
}


class Control(Part):
    """Gates and limits that operators set, commands to attempts, changes of waiting Tasks."""

    # Commands to the holders of claimed Tasks; and cancelling, which fails unclaimed Tasks at once.

    def request(self, instance: int, request: str, *, who: str, message: str = "") -> bool:
        with self.store.atomic():
            tasks = self.rows(Task).select_for_update().filter(pk=instance)
            task = tasks.filter(daemon__isnull=False).exclude(request=CANCEL).first()
            if task is None:
                return False
            states = dict(self.rows(Instance).values_list("pk", "state").filter(pk=instance))
            before, has_stack = split_request(task.request)
            if request == STACK:
                if has_stack or states[instance] not in (State.RUNNING, State.PAUSED):
                    return False
                tasks.update(request=join_request(before, with_stack=True))
            elif not _makes_sense(request, before, states[instance]):
                return False
            else:
                tasks.update(request=join_request(request, with_stack=has_stack))
            self._log_requests([task], states, request, who, message)
            return True

    def cancel(self, instances: Sequence[int], *, who: str = "") -> Cancelled:
        keys = sorted(set(instances))
        failed: list[int] = []
        asked: list[Task] = []
        before: list[Task] = []
        with self.store.atomic():
            mover = Mover(self.store, self.store.now()).load(keys)
            for task in [mover.tasks[key] for key in keys if key in mover.tasks]:
                if task.daemon_id is None:
                    self._fail(mover, task.pk, who)
                    failed.append(task.pk)
                else:
                    (before if task.request == CANCEL else asked).append(task)
            mover.write()
            if asked:
                self.rows(Task).filter(pk__in=[task.pk for task in asked]).update(request=CANCEL)
                states = {task.pk: mover.instances[task.pk].state for task in asked}
                self._log_requests(asked, states, CANCEL, who)
        return Cancelled(
            failed=tuple(failed),
            asked=tuple(task.pk for task in asked),
            before=tuple(task.pk for task in before),
        )

    @staticmethod
    def _fail(mover: Mover, key: int, who: str) -> None:
        move = Move(
            event=Event.FAIL,
            instance=key,
            who=who,
            message=messages.cancelled(),
            level=logging.WARNING,
            reason=Reason.CANCELLED,
        )
        if not mover.apply(move, actor=Actor.ANYONE):
            raise AssertionError(f"a waiting Task belongs to an Instance that does not: {key}")

    def _log_requests(
        self,
        tasks: Iterable[Task],
        states: Mapping[int, str],
        request: str,
        who: str,
        message: str = "",
    ) -> None:
        now = self.store.now()
        self.rows(LogRecord).bulk_create(
            [
                LogRecord(
                    instance_id=task.pk,
                    time=now,
                    kind=Kind.ASK,
                    state=states[task.pk],
                    attempt=task.attempt,
                    level=logging.INFO,
                    who=who,
                    message=message or messages.command_sent(request),
                    detail=request,
                )
                for task in tasks
            ]
        )

    def asked(self, daemon: UUID) -> list[AttemptCommand]:
        held = self.rows(Task).held_by(daemon).exclude(request="")
        asked = list(held.values_list("pk", "attempt", "request"))
        cancels = cancel_requests(
            self.store, [key for key, _, request in asked if request == CANCEL]
        )
        now: Any = self.store.now() if cancels else None
        return [
            AttemptCommand(
                instance=key, attempt=attempt, request=command, **_by(cancels.get(key), now)
            )
            for key, attempt, request in asked
            for command in _commands(request)
        ]

    # Changes to waiting Tasks, in the portable store.

    def change(
        self, instances: Sequence[int], changes: Changes, *, who: str = ""
    ) -> dict[int, list[tuple[str, Any, Any]]]:
        with self.store.atomic():
            tasks = self.rows(Task).select_for_update().waiting().filter(pk__in=list(instances))
            tasks = list(tasks.order_by("pk"))
            now = self.store.now()
            if changes.due is not None or changes.postpone is not None:
                _refuse_blocked(tasks)
            steps = {task.pk: list(_alter(task, changes, now)) for task in tasks}
            changed = [task for task in tasks if steps[task.pk]]
            if changed:
                self._write_changed(changed, steps, now, who)
            return steps

    def _write_changed(
        self,
        tasks: Sequence[Task],
        steps: Mapping[int, Sequence[tuple[str, Any, Any]]],
        now: datetime,
        who: str,
    ) -> None:
        fields = ["priority", "collection"]
        self.rows(Task).bulk_update(tasks, [*fields, "due_at"], batch_size=200)
        # The Instance keeps the values too: its next Task copies them.
        copies = [
            Instance(pk=task.pk, **{name: getattr(task, name) for name in fields}) for task in tasks
        ]
        self.rows(Instance).bulk_update(copies, fields, batch_size=200)
        self.rows(LogRecord).bulk_create(
            [
                LogRecord(
                    instance_id=task.pk,
                    time=now,
                    kind=Kind.CHANGE,
                    state=State.ACCEPTED,
                    attempt=task.attempt,
                    level=logging.INFO,
                    who=who,
                    message=messages.task_changed(steps[task.pk], now),
                )
                for task in tasks
            ]
        )
        if any(task.due_at <= now for task in tasks):
            self.store.tell()

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
        with self.store.atomic():
            now = self.store.now()
            columns = {"mode": mode, "reason": reason, "until": until, "who": who, "since": now}
            # If two operators shut an open gate at once, the second finds the row of the first.
            rows = self.rows(Gate).select_for_update(of=("self",)).select_related("type")
            gate, created = rows.get_or_create(
                subject=scope.subject, defaults=columns | scope.columns
            )
            was = None
            if not created:
                # Take the time after the lock: another writer may have used a later time than ours.
                columns["since"] = now = self.store.now()
                was = _if_shut(gate, now)
            check_expected(scope, was, expected)
            if not created:
                self.rows(Gate).filter(pk=gate.pk).update(**columns)
                gate = self.rows(Gate).select_related("type").get(pk=gate.pk)
            gate.was = was
            self._forget_open(now - KEPT)
            message = messages.gate_set(mode, until=until, reason=reason, was=was)
            self._log_scope(scope, now, who, Kind.GATE, message, mode)
            # Daemons must look again: the new mode may let Tasks go that the old one kept.
            self.store.tell()
            return gate

    def _forget_open(self, before: datetime) -> None:
        """Delete the gates that opened before this time, but for those that others set just now."""
        old = self.rows(Gate).filter(until__lt=before).select_for_update(skip_locked=True)
        keys = list(old.values_list("pk", flat=True))
        self.rows(Gate).filter(pk__in=keys).delete()

    def open(
        self,
        scope: Scope,
        *,
        who: str = "",
        reason: str = "",
        expected: datetime | str | None = None,
    ) -> Gate | None:
        with self.store.atomic():
            rows = self.rows(Gate).filter(subject=scope.subject)
            found = rows.select_for_update(of=("self",)).select_related("type").first()
            now = self.store.now()
            was = None if found is None else _if_shut(found, now)
            check_expected(scope, was, expected)
            if was is not None:
                # The row stays, because a scan needs to know since when the gate has been open.
                rows.update(until=now)
                message = messages.gate_set("open", reason=reason, was=was)
                self._log_scope(scope, now, who, Kind.GATE, message, "open")
                self.store.tell()
        return was

    def limit(self, scope: Scope, *, who: str = "", **changes: Any) -> Limit:
        with self.store.atomic():
            columns = NOTHING | changes | {"is_set": True, "who": who, "since": self.store.now()}
            # If two operators set the first limit at once, the second finds the row of the first.
            rows = self.rows(Limit).select_for_update()
            row, is_new = rows.get_or_create(
                subject=scope.subject, defaults=columns | scope.columns
            )
            now = self.store.now()
            if not is_new:
                before = _columns(row)
                after = before | changes
                if before == after and row.is_set:
                    return row
                columns = after | {"is_set": True, "who": who, "since": now}
                if before["per_second"] != after["per_second"]:
                    columns |= {"tokens": 0.0, "refilled": None}
                self.rows(Limit).filter(pk=row.pk).update(**columns)
                row.refresh_from_db(using=self.store.alias)
            message = messages.limits_set(_columns(row))
            self._log_scope(scope, now, who, Kind.LIMITS, message, "set")
            self.store.tell()
            return row

    def unlimit(self, scope: Scope, declared: dict[str, Any] | None, *, who: str = "") -> bool:
        with self.store.atomic():
            rows = self.rows(Limit).filter(subject=scope.subject)
            row = rows.select_for_update().first()
            if row is None or not row.is_set:
                return False
            now, before = self.store.now(), _columns(row)
            after = before if declared is None else NOTHING | declared
            if after == NOTHING:
                rows.delete()
            else:
                columns = after | {"is_set": False, "who": who, "since": now}
                if before["per_second"] != after["per_second"]:
                    columns |= {"tokens": 0.0, "refilled": None}
                rows.update(**columns)
            message = messages.limits_left_to_code(after, is_known=declared is not None)
            self._log_scope(scope, now, who, Kind.LIMITS, message, "left")
            self.store.tell()
        return True

    def declare(self, limits: Mapping[str, dict[str, Any]], *, who: str = "") -> set[str]:
        """Write the limits that code declares, by Type, except where an operator has set some."""
        rows = self.rows(Limit).filter(type__identifier__in=limits, collection=None)
        known = {row.type.identifier: row for row in rows.select_related("type")}
        locked = set()
        for identifier, declared in limits.items():
            row = known.get(identifier)
            wanted = NOTHING | declared
            if (row is not None and row.is_set) or (
                NOTHING if row is None else _columns(row)
            ) == wanted:
                continue
            with self.store.unless_locked() as is_locked:
                self._declare(identifier, declared, wanted, who)
            if is_locked:
                locked.add(identifier)
        return locked

    def _declare(
        self, identifier: str, declared: Mapping[str, Any], wanted: Mapping[str, Any], who: str
    ) -> None:
        now, subject = self.store.now(), f"type:{identifier}"
        # An operator may set this limit at the same moment.
        own = self.rows(Limit).filter(subject=subject, is_set=False)
        if not declared:
            own.delete()
        elif not own.update(**wanted, tokens=0.0, refilled=None, who=who, since=now):
            type = self.rows(Type).get(identifier=identifier)
            limit = Limit(subject=subject, type=type, who=who, since=now, **wanted)
            self.rows(Limit).bulk_create([limit], ignore_conflicts=True)
        message = messages.limits_declared(declared)
        self.store.log(Kind.LIMITS, message, subject=subject, time=now, who=who, detail="declared")
        self.store.tell()

    def _log_scope(
        self, scope: Scope, now: datetime, who: str, kind: Kind, message: str, detail: str
    ) -> None:
        self.store.log(
            kind,
            message,
            # A lane's name may be longer than the column.
            subject=scope.subject[:255],
            time=now,
            who=who,
            detail=detail,
            level=logging.WARNING,
        )


def _columns(row: Limit) -> dict[str, Any]:
    return {name: getattr(row, name) for name in NOTHING}


def _if_shut(gate: Gate, now: datetime) -> Gate | None:
    """Return the gate; None if it has been opened or has opened by itself."""
    return gate if gate.until is None or gate.until > now else None


def check_expected(scope: Scope, gate: Gate | None, expected: datetime | str | None) -> None:
    """Raise GateChanged if a gate (None if it is open) is not as ``expected``."""
    if expected is None or expected in ("open" if gate is None else gate.mode, gate and gate.since):
        return
    identifier = None if scope.type is None else scope.type.identifier
    raise GateChanged(
        f"The gate of {text.describe_target(identifier, scope.collection)} is not as expected: "
        f"it is {text.describe_gate(gate)}.",
        gate=gate,
    )
