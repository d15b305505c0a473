"""Scanning for states that should never be, and repairing them."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from django.db.models import Exists, Max, OuterRef, Q, QuerySet
from django.utils.functional import cached_property

from ... import messages
from ...conf import settings
from ...models import (
    HOOKED,
    Daemon,
    Downstream,
    Gate,
    Instance,
    Kind,
    Limit,
    LogRecord,
    Schedule,
    Task,
    Type,
)
from ...querysets import TaskQuerySet
from ...states import CLAIMED, TERMINAL, Actor, Event, State
from ..facts import NOWHERE, Cursor, Finding, Scanned, Trouble
from ..values import Move
from .base import Part
from .control import Closed
from .limits import LIMITING
from .schedules import TRY_AGAIN
from .transitions import Mover
from .unique import Keys

if TYPE_CHECKING:
    from .store import ORMStore

# Mending: Instances and Tasks that disagree are made consistent.
#
# No verb of the queue causes such a disagreement, but a manual change in the database, a restored
# backup or a fault may. All functions here lock the rows, look again, and then repair them
# according to the transition table, with a line in the log.

# So many locks are waited for in one transaction, each as long as the caller waits for any lock.
_MOST_LOCKED = 10


class _Remedy:
    """The repair of one locked Instance and its locked Task."""

    def __init__(self, store: "ORMStore", now: datetime, who: str) -> None:
        self._store = store
        self._tasks, self._instances = store.rows(Task), store.rows(Instance)
        self._now = now
        self._who = who

    def of_task(self, task: Task, instance: Instance | None, spare: Set[int]) -> str:
        """Mend a Task; returns words for what was done, or "" if it was all right."""
        if instance is None:
            return self._remove_orphan(task)
        if instance.is_terminal:
            self._tasks.filter(pk=task.pk).delete()
            return self._say(instance, messages.ended_with_task(), messages.task_removed())
        is_held, is_claimed = task.daemon_id is not None, instance.state in CLAIMED
        fits = is_held == is_claimed and (is_held or task.attempt == instance.attempt)
        if fits or task.pk in spare:
            return ""
        if is_held:
            return self._free(task, instance)
        if is_claimed:
            self._level(task, instance)
            return self._expire(task.pk, messages.task_not_held(instance.state))
        what = messages.attempts_differ(instance.attempt, task.attempt)
        self._level(task, instance)
        return self._say(instance, what, messages.attempt_aligned())

    def of_instance(self, instance: Instance) -> str:
        """Give a live Instance a Task; returns words for what was done."""
        upstreams = self._store.graphs.upstreams([instance.pk])
        waits = upstreams.waits(instance.pk)
        if waits is None and instance.is_hooked:
            waits = HOOKED
        keys = Keys(self._store, [instance])
        Task(
            instance=instance,
            unique_key=keys.take(instance) if keys.is_free(instance) else None,
            type_id=instance.type_id,
            collection=instance.collection,
            priority=instance.priority,
            due_at=upstreams.due(instance, self._now),
            waits=waits,
            start_before=instance.start_before if instance.started is None else None,
            attempt=instance.attempt,
        ).save(using=self._store.alias, force_insert=True)
        if instance.state in CLAIMED:
            return self._expire(instance.pk, messages.no_task(instance.state))
        self._store.tell()
        return self._say(instance, messages.no_task(), messages.task_created())

    def _remove_orphan(self, task: Task) -> str:
        self._tasks.filter(pk=task.pk).delete()
        self._store.log(
            Kind.MENDED,
            messages.orphan_removed(task.pk),
            subject=f"type:{task.type.identifier}",
            time=self._now,
            who=self._who,
            level=logging.WARNING,
        )
        return messages.task_removed()

    def _free(self, task: Task, instance: Instance) -> str:
        self._level(task, instance)
        self._tasks.filter(pk=task.pk).update(daemon=None, request="")
        self._store.tell()
        return self._say(instance, messages.task_held(instance.state), messages.task_freed())

    def _level(self, task: Task, instance: Instance) -> None:
        """Set both attempts to the higher of the two: an attempt's number never goes down."""
        instance.attempt = max(task.attempt, instance.attempt)
        for rows in (self._tasks, self._instances):
            rows.filter(pk=task.pk).update(attempt=instance.attempt)

    def _expire(self, key: int, why: str) -> str:
        mover = Mover(self._store, self._now).load([key])
        move = Move(
            event=Event.EXPIRE, instance=key, who=self._who, message=why, level=logging.WARNING
        )
        if not mover.apply(move, actor=Actor.SWEEPER):
            raise AssertionError(f"an attempt that nobody holds could not be expired: {key}")
        mover.write()
        return messages.attempt_expired()

    def _say(self, instance: Instance, what: str, done: str) -> str:
        self._store.rows(LogRecord).create(
            instance_id=instance.pk,
            time=self._now,
            kind=Kind.MENDED,
            state=instance.state,
            attempt=instance.attempt,
            level=logging.WARNING,
            who=self._who,
            message=messages.repaired(what, done),
        )
        return done


# The scan: it looks for states of the queue that should never be (ATF).

# The number of rows of each table that one scan walks through.
SPAN = 10_000


class Upkeep(Part):
    """The scan, and mending what does not fit."""

    def mend_tasks(
        self, keys: Collection[int], now: datetime, who: str, *, spare: Set[int] = frozenset()
    ) -> dict[int, str]:
        """Mend the Tasks of these keys."""
        if not keys:
            return {}
        with self.store.atomic():
            locked = self.rows(Task).select_for_update(skip_locked=True)
            tasks = list(locked.filter(pk__in=keys).order_by("pk"))
            own = self.rows(Instance).filter(pk__in=[task.pk for task in tasks]).order_by("pk")
            there = set(own.values_list("pk", flat=True))
            free = own.select_for_update(skip_locked=True, no_key=True).in_bulk()
            remedy = _Remedy(self.store, now, who)
            pairs = [
                (task, free.get(task.pk))
                for task in tasks
                if task.pk in free or task.pk not in there
            ]
            of_task = [
                (task.pk, partial(remedy.of_task, task, instance, spare))
                for task, instance in pairs
            ]
            done = self._mended(of_task)
        return {key: words for key, words in done.items() if words}

    def mend_instances(
        self, keys: Collection[int], now: datetime, who: str, *, spare: Set[int] = frozenset()
    ) -> dict[int, str]:
        """Give each live Instance without a Task a new Task."""
        if not keys:
            return {}
        with self.store.atomic():
            # Code that creates or deletes a Task without being its holder locks the Instance first.
            locked = self.rows(Instance).select_for_update(skip_locked=True)
            instances = list(locked.filter(pk__in=keys, finished__isnull=True).order_by("pk"))
            held = self.rows(Task).filter(pk__in=[instance.pk for instance in instances])
            apart = spare | set(held.values_list("pk", flat=True))
            remedy = _Remedy(self.store, now, who)
            lacking = [instance for instance in instances if instance.pk not in apart]
            return self._mended([(i.pk, partial(remedy.of_instance, i)) for i in lacking])

    def _mended(self, remedies: Iterable[tuple[int, Callable[[], str]]]) -> dict[int, str]:
        """Apply the remedies, pairs of a key and a call; returns their words, by key.

        Some need further rows, such as a node, and what waits for its end. If others have locked
        those, the remedy is left for another time, and after many such all the others too.
        """
        done: dict[int, str] = {}
        locked = 0
        for key, remedy in remedies:
            with self.store.unless_locked() as errors:
                done[key] = remedy()
            locked += len(errors)
            if locked == _MOST_LOCKED:
                break
        return done

    def scan(
        self,
        cursor: Cursor | None = None,
        *,
        who: str = "",
        repair: bool = True,
        now: datetime | None = None,
    ) -> Scanned:
        cursor = cursor or Cursor()
        look = Look(self.store, who, repair=repair, now=now)
        forgotten, holders, pairs = Forgotten(look), Holders(look), Pairs(look)
        found = [*forgotten.first_of_each(), *holders.unswept(), *holders.ownerless()]
        found += unplanned(look)

        def tasks(low: int, high: int) -> tuple[list[Finding], bool]:
            found.extend(forgotten.between(low, high))
            found.extend(miscounted(look, low, high))
            return pairs.tasks(low, high)

        task = self._walk(Task, cursor.task, tasks, found)
        instance = self._walk(Instance, cursor.instance, pairs.instances, found)
        # A finding that both an index and the walk have shown counts once.
        once = {finding.key: finding for finding in found}
        cursor = Cursor(task=task, instance=instance)
        return Scanned(
            findings=tuple(once.values()), cursor=Cursor() if cursor == NOWHERE else cursor
        )

    def _walk(
        self,
        model: type[Task] | type[Instance],
        high: int | None,
        look: Callable[[int, int], tuple[list[Finding], bool]],
        found: list[Finding],
    ) -> int:
        """Look at the next rows, downwards from the key ``high``; returns the key to go on from.

        ``look(low, high)`` looks at the rows between these keys, without the lower one. It returns
        findings, and whether the same rows should be looked at again.
        """
        if high == 0:
            return 0
        keys = self.rows(model).order_by("-pk").values_list("pk", flat=True)
        high = keys.first() if high is None else high
        if high is None:
            return 0
        low = next(iter(keys.filter(pk__lte=high)[SPAN : SPAN + 1]), 0)
        findings, again = look(low, high)
        found.extend(findings)
        return high if again else low


# Nodes of graphs that wait for the wrong number of edges (G17).


def miscounted(look: "Look", low: int, high: int) -> list[Finding]:
    """Return findings for miscounted nodes with ``low < key <= high``; recounts them if allowed."""
    graphs = look.store.graph_ends
    tasks = look.rows(Task).filter(pk__gt=low, pk__lte=high)
    if not tasks.filter(waits__gt=0).exists():
        return []
    keys = sorted(graphs.miscounted(tasks))[:MOST]
    if not keys:
        return []
    named = look.named(keys)
    done = graphs.recount(keys, look.now, look.who) if look.repair else {}
    return [
        Finding(
            trouble=Trouble.MISCOUNTED,
            instance=named[key][0],
            type=named[key][1],
            done=done.get(key, ""),
        )
        for key in keys
        if key in done or not look.repair
    ]


# Tasks that have been due for a long time and are not claimed, although a daemon is idle.

# The number of lanes that one scan looks at by their index. The walk sees all lanes.
LANES = 100
# The number of Tasks that are read at once.
PAGE = 1000


class Forgotten:
    """Forgotten Tasks are only reported: a scan cannot mend what keeps daemons from claiming."""

    def __init__(self, look: "Look") -> None:
        self._look = look
        self._rows = look.rows
        self._types = self._served()

    def first_of_each(self) -> list[Finding]:
        """Check the first waiting Tasks of each lane, in its highest priority that is due."""
        look = self._look
        found: dict[int, datetime] = {}
        if not self._types:
            return []
        lanes = look.store.gates.due_lanes(self._types, look.closed, look.then, LANES)
        for type, collection, priority in lanes:
            due = self._due().filter(type=type, collection=collection, priority=priority)
            found |= _by_key(due.order_by("due_at", "pk")[: -(-MOST // len(lanes))])
        return self._unclaimed(found)

    def between(self, low: int, high: int) -> list[Finding]:
        """Check the Tasks with ``low < key <= high``."""
        if not self._types:
            return []
        due = self._due().filter(pk__lte=high, type__in=self._types).order_by("pk")
        found: dict[int, datetime] = {}
        last: int | None = low
        while len(found) < MOST and last is not None:
            # There may be too many closed lanes for a query.
            rows = due.filter(pk__gt=last).values_list("pk", "due_at", "type", "collection")[:PAGE]
            last = None
            for key, due_at, *lane in rows:
                last = key
                if tuple(lane) not in self._look.closed.lanes:
                    found[key] = due_at
        return self._unclaimed(dict(islice(found.items(), MOST)))

    def _due(self) -> TaskQuerySet:
        return self._rows(Task).due(self._look.then)

    def _served(self) -> list[int]:
        """Return the keys of the Types served by a daemon that is idle and has run for long.

        Types that are closed to claims are left out, and those that take resources, which may be
        in use.
        """
        idle = [row for row in self._look.settled if row.idle and isinstance(row.types, list)]
        identifiers = {name for row in idle for name in row.types}
        if not identifiers:
            return []
        types = self._rows(Type).filter(identifier__in=identifiers, resources__isnull=True)
        keys = types.order_by("pk").values_list("pk", flat=True)
        return [key for key in keys if not self._look.closed.shuts(key)]

    def _unclaimed(self, due: Mapping[int, datetime]) -> list[Finding]:
        """Return findings for Tasks with no transition for long; ``due`` maps keys to due times."""
        if not due:
            return []
        last = self._look.last_transitions(due)
        quiet = [key for key in due if key not in last or last[key][0] <= self._look.then]
        # Leave out Instances that were claimed since then, or that disagree with their Task.
        waiting = self._rows(Instance).filter(pk__in=quiet, state=State.ACCEPTED)
        instances = list(waiting.select_related("type").order_by("pk"))
        if self._look.repair and instances:
            self._complain(instances, last)
        return [
            Finding(
                trouble=Trouble.UNCLAIMED,
                instance=instance.uuid,
                type=instance.type.identifier,
                since=due[instance.pk],
            )
            for instance in instances
        ]

    def _complain(
        self, instances: Sequence[Instance], last: Mapping[int, tuple[datetime, int]]
    ) -> None:
        """Log the trouble for each Instance, once until its next transition."""
        said = self._rows(LogRecord).filter(instance__in=instances, kind=Kind.UNCLAIMED)
        newest = said.order_by().values("instance").annotate(newest=Max("pk"))
        newest = {row["instance"]: row["newest"] for row in newest}
        self._rows(LogRecord).bulk_create(
            LogRecord(
                instance=instance,
                time=self._look.now,
                kind=Kind.UNCLAIMED,
                state=instance.state,
                attempt=instance.attempt,
                level=logging.ERROR,
                who=self._look.who,
                message=messages.unclaimed(),
            )
            for instance in instances
            if newest.get(instance.pk, 0) <= last.get(instance.pk, (None, 0))[1]
        )


def _by_key(tasks: TaskQuerySet) -> dict[int, datetime]:
    return dict(tasks.values_list("pk", "due_at"))


# Daemons that are gone but still hold Tasks.

# The number of Tasks that are taken from a lost daemon at a time.
TAKEN = 500


class Holders:
    def __init__(self, look: "Look") -> None:
        self._look = look
        self._rows = look.rows

    def unswept(self) -> list[Finding]:
        """Return findings for daemons lost long ago, although another daemon could have noticed."""
        look = self._look
        lost = [row for row in look.lost if row.lease_until <= look.then]
        return [
            Finding(
                trouble=Trouble.UNSWEPT,
                daemon=str(row),
                since=row.lease_until,
                done=self._take_away(row) if look.repair else "",
            )
            for row in (lost if look.settled else [])
        ]

    def _take_away(self, row: Daemon) -> str:
        gone, lost = self._look.store.daemons.expire_lost(row, self._look.who, TAKEN)
        return messages.tasks_taken(len(lost)) if gone else ""

    def ownerless(self) -> list[Finding]:
        """Return findings for holders without a row, which no sweep can see."""
        daemons = self._rows(Daemon).values("pk")
        # In the order of the index on held Tasks, so that the database walks that index alone.
        held = self._rows(Task).claimed().exclude(daemon__in=daemons).order_by("daemon_id")
        missing = list(held.values_list("daemon_id", flat=True).distinct()[:MOST])
        return [
            Finding(
                trouble=Trouble.OWNERLESS,
                daemon=_name(key),
                done=self._stand_in(key) if self._look.repair else "",
            )
            for key in missing
        ]

    def _stand_in(self, key: int) -> str:
        """Create a row for the holder whose lease nobody renews; a sweep follows when it is over.

        If the daemon still lives, it has noticed by then that its row is lost, and has taken
        another identity.
        """
        look, name = self._look, _name(key)
        host, pid = name.rsplit(":", 1)
        facts = {"uuid": uuid4(), "host": host, "pid": int(pid), "version": ""}
        times = {"started": look.now, "seen": look.now, "lease_until": look.now + look.delay}
        _, is_new = self._rows(Daemon).get_or_create(pk=key, defaults=facts | times)
        if is_new:
            look.store.log(
                Kind.MENDED,
                messages.daemon_row_missing(),
                subject=f"daemon:{name}",
                time=look.now,
                who=look.who,
                level=logging.WARNING,
            )
        return messages.tasks_taken_later()


def _name(key: int) -> str:
    """Return a name for a daemon without a row, in the form host:pid."""
    return f"removed-{key}:0"


# What the parts of a scan share: a delayed clock, the daemons, and names for findings.

# The maximum number of findings of each kind of trouble at a time.
MOST = 100


class Look:
    """One look at the queue; ``who`` signs each repair, and ``repair`` allows repairs.

    The look uses a delayed clock, as ATF does. Trouble that lasts since ``then`` is real; newer
    changes may still be under way.
    """

    def __init__(
        self, store: "ORMStore", who: str, *, repair: bool, now: datetime | None = None
    ) -> None:
        self.store = store
        self.rows = store.rows
        self.who = who
        self.repair = repair
        self.now = now or store.now()
        self.delay = timedelta(seconds=max(settings.SCAN_AFTER, settings.LEASE))
        self.then = self.now - self.delay
        daemons = list(self.rows(Daemon).order_by("pk"))
        self.lost = [row for row in daemons if store.daemons.is_over(row, self.now)]
        self.alive = [row for row in daemons if row not in self.lost]

    @cached_property
    def closed(self) -> Closed:
        """The lanes that gates, limits or downstreams keep from being claimed, or did recently.

        A Task that waits for room is no finding, however long it has been due.
        """
        shut = self.rows(Gate).filter(Q(until__isnull=True) | Q(until__gt=self.then))
        limits = self.rows(Limit).filter(LIMITING | Q(since__gt=self.then))
        closed = Closed(frozenset(shut.values_list("type", "collection"))).with_limits(limits)
        calm = self.rows(Downstream).filter(state="closed", since__lte=self.then)
        calling = self.rows(Type).exclude(downstream="")
        return closed.with_types(
            calling.exclude(downstream__in=calm.values("name")).values_list("pk", flat=True)
        )

    @property
    def settled(self) -> list[Daemon]:
        """The daemons that are alive and have run for long."""
        return [row for row in self.alive if row.started <= self.then]

    def last_transitions(self, keys: Iterable[int]) -> dict[int, tuple[datetime, int]]:
        """Return, by Instance, the time of its last transition and the key of that LogRecord."""
        logs = self.rows(LogRecord).filter(instance__in=keys).transitions().order_by()
        last = logs.values("instance").annotate(time=Max("time"), record=Max("pk"))
        return {row["instance"]: (row["time"], row["record"]) for row in last}

    def may_run(self, keys: Collection[int]) -> set[int]:
        """Return the Instances that a daemon may be running: it says so, or they changed lately."""
        last = self.last_transitions(keys)
        fresh = {key for key, (time, _) in last.items() if time > self.then}
        workers = [worker for row in self.alive for worker in _dicts(row.workers)]
        names = {str(worker.get("instance")) for worker in workers}
        uuids = dict(self.rows(Instance).filter(pk__in=keys).values_list("pk", "uuid"))
        return fresh | {key for key, uuid in uuids.items() if str(uuid) in names}

    def named(self, keys: Collection[int]) -> dict[int, tuple[UUID | None, str]]:
        """Return uuid and Type of each Instance, by key; without an Instance, the Task's Type."""
        tasks = self.rows(Task).filter(pk__in=keys).values_list("pk", "type__identifier")
        instances = self.rows(Instance).filter(pk__in=keys)
        found = instances.values_list("pk", "uuid", "type__identifier")
        named = dict.fromkeys(keys, (None, "")) | {key: (None, type) for key, type in tasks}
        return named | {key: (uuid, type) for key, uuid, type in found}


def _dicts(listed: Any) -> list[dict[str, Any]]:
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


# Instances and Tasks that disagree.
#
# Each statement compares both tables at once, so that nothing changes in between.


class Pairs:
    """Checks of the rows with ``low < key <= high``."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._rows = look.rows

    def tasks(self, low: int, high: int) -> tuple[list[Finding], bool]:
        """Find Tasks whose Instance has ended, is gone, or is in a state that does not fit."""
        tasks = self._rows(Task).filter(pk__gt=low, pk__lte=high)
        own = self._rows(Instance).filter(pk=OuterRef("pk")).order_by()
        accepted = own.filter(state=State.ACCEPTED, attempt=OuterRef("attempt"))
        odd = [
            *_keys(tasks.waiting().filter(~Exists(accepted))),
            *_keys(tasks.claimed().filter(~Exists(own.filter(state__in=CLAIMED)))),
        ]
        if not odd:
            return [], False
        states = dict(self._rows(Instance).filter(pk__in=odd).values_list("pk", "state"))
        troubles = {key: _trouble(states.get(key)) for key in odd}
        return self._found(troubles, self._look.store.upkeep.mend_tasks)

    def instances(self, low: int, high: int) -> tuple[list[Finding], bool]:
        """Find live Instances without a Task."""
        own = self._rows(Task).filter(pk=OuterRef("pk"), pk__gt=low, pk__lte=high).order_by()
        live = self._rows(Instance).filter(pk__gt=low, pk__lte=high, finished__isnull=True)
        keys = _keys(live.filter(~Exists(own)))
        if not keys:
            return [], False
        return self._found(
            dict.fromkeys(keys, Trouble.TASKLESS), self._look.store.upkeep.mend_instances
        )

    def _found(
        self, troubles: Mapping[int, Trouble], mend: Callable[..., dict[int, str]]
    ) -> tuple[list[Finding], bool]:
        """Return the findings, mended if allowed, and whether there may be more to mend."""
        look, keys = self._look, list(troubles)
        named, spare = look.named(keys), look.may_run(keys)
        done = mend(keys, look.now, look.who, spare=spare) if look.repair else {}
        if look.repair:
            # Rows that were not mended were locked: another session is repairing or has repaired
            # them.
            keys = [key for key in keys if key in done or key in spare]
        findings = [
            Finding(
                trouble=troubles[key],
                instance=named[key][0],
                type=named[key][1],
                done=done.get(key, ""),
            )
            for key in keys
        ]
        return findings, bool(done) and len(troubles) >= MOST


def _keys(rows: QuerySet[Any]) -> list[int]:
    return list(rows.order_by("pk").values_list("pk", flat=True)[:MOST])


def _trouble(state: str | None) -> Trouble:
    if state is None:
        return Trouble.ORPHANED
    return Trouble.ENDED if state in TERMINAL else Trouble.MISMATCHED


# Schedules whose slots nobody decides.


def unplanned(look: Look) -> list[Finding]:
    """Return the schedules that have been due for long, and those that cannot be planned.

    Only daemons plan, so the former count only if a daemon has run all the time.
    """
    # A schedule that cannot be planned is due again after TRY_AGAIN. The index is on due_at.
    soon = look.rows(Schedule).filter(due_at__lte=look.now + TRY_AGAIN, next_at__lte=look.then)
    troubled = ~Q(trouble="")
    found = soon.filter(troubled | Q(due_at__lte=look.then) if look.settled else troubled)
    rows = found.order_by("due_at").values_list(
        "identifier", "type__identifier", "next_at", "trouble"
    )
    return [
        Finding(trouble=Trouble.UNPLANNED, schedule=name, type=type, since=since, why=trouble)
        for name, type, since, trouble in rows[:MOST]
    ]
