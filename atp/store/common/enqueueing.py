"""Writing Instances: identifiers, unique keys, hooks of an end, the hand-over to an idle daemon."""

import json
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from django.db import IntegrityError, OperationalError
from django.db.models import Q, QuerySet

from ... import messages, options
from ...exceptions import DuplicateIdentifier, IllegalTransition
from ...models import HOOKED, Inputs, Instance, Kind, LogRecord, Task, Type, group_renamed_types
from ...states import Actor, Event, State
from ..values import Hook, Move, Registration, Submission, hooks_of_end
from .base import Part
from .transitions import Mover
from .unique import HolderEnded, take_turns

if TYPE_CHECKING:
    from .store import ORMStore

# The decision whether an enqueue may hand its Instance to an idle daemon.

# In seconds: an enqueue this soon after another one of this process is not handed over.
APART = 0.02


# How often an enqueue tries in all when others take its identifiers or unique keys meanwhile.
ATTEMPTS = 5


class Enqueueing(Part):
    """Writing Instances."""

    _last = 0.0

    def _may_hand(self, submission: Submission) -> bool:
        """Return whether to look for an idle daemon: not in a row, since then none is idle."""
        last, self._last = self._last, time.monotonic()
        return (
            self._last - last > APART
            and submission.due is None
            and submission.start_before is None
            and submission.waits is None
        )

    def enqueue(
        self, registration: Registration, submissions: Sequence[Submission], *, who: str = ""
    ) -> Sequence[Instance]:
        submissions = hooked(registration, submissions)
        is_nested = self.store.connection.in_atomic_block
        is_alone = len(submissions) == 1 and not is_nested
        for remaining in reversed(range(ATTEMPTS)):
            try:
                with self.store.atomic():
                    return self._enqueue(registration, submissions, who, is_alone)
            except (IntegrityError, OperationalError, HolderEnded) as error:
                # Since we looked, another session took one of the identifiers or keys, or ended the
                # Instance that had one. Or it takes some of them in another order, so that the two
                # wait for each other; not if the other may wait for the caller's transaction.
                is_database = isinstance(error, OperationalError)
                if is_database and (is_nested or not self.store.is_deadlock(error)):
                    raise
                if not remaining or not any(r.identifier or r.unique for r in submissions):
                    raise
        raise AssertionError("unreachable")

    def _enqueue(
        self,
        registration: Registration,
        submissions: Sequence[Submission],
        who: str,
        is_alone: bool,
    ) -> list[Instance]:
        type_id = self.type_id(registration)
        self.keep_hooks(registration, submissions)
        now = self.store.now()
        family = self._family(type_id, submissions)
        existing, live = (
            self._existing(type_id, family, submissions),
            self.store.unique.live(family, submissions),
        )
        instances: list[Instance] = []
        new: list[tuple[Instance, Submission]] = []
        redrive: dict[Instance, str] = {}
        for submission in submissions:
            taken = (
                existing.get(submission.identifier) if submission.identifier is not None else None
            )
            if submission.unique in live:
                taken = live[submission.unique]
                self.store.unique.meet(submission, taken, registration.identifier, now, who)
                instances.append(taken)
                continue
            if taken is None:
                instance = self._instance(type_id, submission, now)
                new.append((instance, submission))
                instances.append(instance)
                if submission.identifier is not None:
                    existing[submission.identifier] = instance
                if submission.unique is not None:
                    live[submission.unique] = instance
                continue
            if submission.existing == "raise" and taken.pk is None:
                raise DuplicateIdentifier(
                    f"The identifier {submission.identifier!r} is given twice in one call."
                )
            if submission.existing == "raise":
                raise DuplicateIdentifier(_duplicate(registration, submission, taken), taken)
            if submission.existing == "redrive" and taken.state == State.FAILED:
                redrive[taken] = submission.created_by or who
            instances.append(taken)
        self._insert(new, type_id, now, who, is_alone)
        if redrive:
            self._redrive(redrive, now)
        return instances

    def enqueue_hooks(
        self, registration: Registration, submissions: Sequence[Submission], *, who: str = ""
    ) -> Sequence[Instance]:
        """Enqueue the hooks of Instances that have just ended, without waiting for locks.

        The hooking Types refer to the Types of their hooks, so those cannot be unregistered.
        """
        return self.enqueue(replace(registration, hooks=None), submissions, who=who)

    def type_id(self, registration: Registration) -> int:
        """Return the key of the Type; nobody can unregister it until this transaction commits."""
        found = self._kept(registration)
        if not found:
            self.store.types.register([registration, *registration.hook_types], update=False)
            found = self._kept(registration)
        return found[0].pk

    def keep_hooks(self, registration: Registration, submissions: Iterable[Submission]) -> None:
        """Register the Types of the Instances' own hooks, and keep them registered until commit."""
        if registration.hook_types and any(each.has_hooks for each in submissions):
            for each in registration.hook_types:
                self.type_id(each)

    def _kept(self, registration: Registration) -> QuerySet[Type]:
        return self.store.vendor.kept_type(self.rows(Type), registration.identifier)

    def _family(self, type_id: int, submissions: Iterable[Submission]) -> list[int]:
        """Return the keys of the Types among which identifiers and unique keys are unique.

        These are several if the Type was renamed. No index covers several, so until this
        transaction commits, nobody else enqueues with any identifier or key in this family.
        """
        keys = {key for each in submissions for key in (each.identifier, each.unique)} - {None}
        family = group_renamed_types(self.rows(Type)).get(type_id) if keys else None
        if family is None or len(family) == 1:
            return [type_id]
        take_turns(self.store, family)
        return sorted(family)

    def _existing(
        self, type_id: int, family: Collection[int], submissions: Iterable[Submission]
    ) -> dict[str | None, Instance]:
        identifiers = {r.identifier for r in submissions if r.identifier is not None}
        if not identifiers:
            return {}
        found = self.rows(Instance).filter(type__in=family, identifier__in=identifiers)
        # Where two names of a Type have one identifier, that of its own name counts.
        return {
            instance.identifier: instance
            for instance in sorted(found, key=lambda instance: instance.type_id == type_id)
        }

    @staticmethod
    def _instance(type_id: int, submission: Submission, now: datetime) -> Instance:
        instance = Instance(
            type_id=type_id,
            identifier=submission.identifier,
            state=State.ACCEPTED,
            collection=submission.collection,
            priority=submission.priority,
            start_before=submission.start_before,
            created_by=submission.created_by,
            created=now,
            own=options.read_own_options(submission.own),
        )
        instance.is_new = True
        return instance

    def _insert(
        self,
        new: Sequence[tuple[Instance, Submission]],
        type_id: int,
        now: datetime,
        who: str,
        is_alone: bool,
    ) -> None:
        """Write the Instances; ``is_alone`` says that one Instance is all that is written."""
        if not new:
            return
        self.store.tell()
        self.rows(Instance).bulk_create([instance for instance, _ in new])
        self.rows(Inputs).bulk_create(
            [
                Inputs(
                    instance=instance, format=submission.inputs.format, data=submission.inputs.data
                )
                for instance, submission in new
            ]
        )
        self.rows(LogRecord).bulk_create(
            [
                LogRecord(
                    instance=instance,
                    time=now,
                    kind=Event.ENQUEUE,
                    state=State.ACCEPTED,
                    attempt=0,
                    level=logging.INFO,
                    who=submission.created_by or who,
                )
                for instance, submission in new
            ]
        )
        self.rows(Task).bulk_create(
            [
                Task(
                    instance=instance,
                    type_id=type_id,
                    collection=submission.collection,
                    priority=submission.priority,
                    due_at=submission.due or now,
                    start_before=submission.start_before,
                    waits=submission.waits,
                    unique_key=submission.unique,
                )
                for instance, submission in new
            ]
        )

    def _redrive(self, failed: Mapping[Instance, str], now: datetime) -> None:
        mover = Mover(self.store, now).load([i.pk for i in failed], revives=True)
        redrive = partial(Move, event=Event.REDRIVE)
        moves = [redrive(instance=instance.pk, who=who) for instance, who in failed.items()]
        for move in mover.in_order(moves):
            is_done = mover.apply(move, actor=Actor.ANYONE)
            instance = mover.instances.get(move.instance)
            # Somebody else may have redriven it meanwhile.
            if not is_done and instance is not None and instance.state == State.FAILED:
                raise IllegalTransition(_refused(instance), event=move.event, state=State.FAILED)
        mover.write()
        for instance in failed:
            instance.refresh_from_db(using=self.store.alias)


def hooked(registration: Registration, submissions: Sequence[Submission]) -> Sequence[Submission]:
    """Return the submissions; if their Type has hooks, each is marked as having hooks."""
    if registration.hooks is None:
        return submissions
    return [each._replace(waits=HOOKED) if each.waits is None else each for each in submissions]


def _refused(instance: Instance) -> str:
    return (
        f"{instance.uuid} cannot be redriven, which existing='redrive' asks for: its unique key is "
        "taken, or it is a node and waits for a FAILED one, or its graph was undone."
    )


def _duplicate(registration: Registration, submission: Submission, taken: Instance) -> str:
    return (
        f"An Instance of {registration.identifier!r} with identifier {submission.identifier!r} "
        f"exists already: {taken.uuid}, {taken.state}. Enqueue with existing='return' to get it, "
        "or existing='redrive' to run it again if it has failed."
    )


# Hooks: what is enqueued in the transaction in which an Instance ends.
#
# Settling the end writes them (`graph_ends.py`), after the end was recorded. They are
# written once, since the fence lets an end happen once. So the end and its hooks are committed
# together.


class Ended(NamedTuple):
    """An Instance that has just ended and that has hooks, of its own or of its Type."""

    instance: int
    uuid: str
    type: str
    state: str
    reason: str
    attempt: int
    of_type: list[dict[str, Any]] | None
    own: dict[str, Any] | None
    identifier: str | None
    collection: str

    @property
    def hooks(self) -> list[Hook]:
        return hooks_of_end(self.state, self.of_type, (self.own or {}).get(options.HOOKS))


class Hooks:
    """The hooks of ended Instances; ``store`` enqueues them."""

    def __init__(self, store: "ORMStore") -> None:
        self._store = store

    def of(self, keys: Iterable[int]) -> list[Ended]:
        """Return an :class:`Ended` for each of these ended Instances that has hooks."""
        has_some = Q(type__hooks__isnull=False) | Q(own__has_key=options.HOOKS)
        found = self._store.rows(Instance).filter(has_some, pk__in=keys).order_by("pk")
        rows: Iterable[Any] = found.values_list(
            *("pk", "uuid", "type__identifier", "state", "reason", "attempt"),
            *("type__hooks", "own", "identifier", "collection"),
        )
        return [Ended(key, str(uuid), *rest) for key, uuid, *rest in rows]

    def write(self, ended: Iterable[Ended], who: str) -> None:
        """Enqueue the hooks of these Instances, and log that for each Instance."""
        wanted: dict[str, list[tuple[Ended, Hook]]] = defaultdict(list)
        for each in ended:
            # A hook has no hooks of its own.
            for hook in () if options.HOOK_OF in (each.own or {}) else each.hooks:
                wanted[hook.type].append((each, hook))
        if not wanted:
            return
        types = self._store.rows(Type).in_bulk(list(wanted), field_name="identifier")
        records: list[Any] = []
        for name, pairs in sorted(wanted.items()):
            made: Sequence[Instance] = []
            if name in types:
                submissions = [_submission(each, hook) for each, hook in pairs]
                registration = Registration.of(types[name])
                made = self._store.enqueueing.enqueue_hooks(registration, submissions, who=who)
            uuids: list[UUID | None] = [instance.uuid for instance in made] or [None] * len(pairs)
            records += [
                _record(each, hook, uuid, who)
                for (each, hook), uuid in zip(pairs, uuids, strict=True)
            ]
        now = self._store.now()
        for record in records:
            record.time = now
        self._store.rows(LogRecord).bulk_create(sorted(records, key=lambda r: r.instance_id))


def _submission(ended: Ended, hook: Hook) -> Submission:
    return Submission(
        inputs=hook.payload(ended),
        collection=hook.collection,
        priority=hook.priority,
        own=options.own_options(**json.loads(hook.own or "{}"), **{options.HOOK_OF: ended.uuid}),
    )


def _record(ended: Ended, hook: Hook, uuid: UUID | None, who: str) -> LogRecord:
    return LogRecord(
        instance_id=ended.instance,
        kind=Kind.HOOK,
        state=ended.state,
        attempt=ended.attempt,
        level=logging.WARNING if uuid is None else logging.INFO,
        who=who,
        message=messages.hook_unknown(hook.on, hook.type)
        if uuid is None
        else messages.hook_enqueued(hook.on, hook.type, uuid),
        detail="" if uuid is None else str(uuid),
    )
