"""Hooks: what is enqueued in the transaction in which an Instance ends.

Settling the end writes them (:mod:`.graphs.settling`), after the end was recorded. They are
written once, since the fence lets an end happen once. So the end and its hooks are committed
together.
"""

import json
import logging
from collections import defaultdict
from typing import Any, NamedTuple

from django.db.models import Q

from ... import messages, options
from ...models import Instance, Kind, LogRecord, Type
from ..values import Hook, Registration, Submission, hooks_of_end


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

    def __init__(self, store):
        self._store = store

    def of(self, keys):
        """Return an :class:`Ended` for each of these ended Instances that has hooks."""
        has_some = Q(type__hooks__isnull=False) | Q(own__has_key=options.HOOKS)
        found = self._store.rows(Instance).filter(has_some, pk__in=keys).order_by("pk")
        rows = found.values_list(
            *("pk", "uuid", "type__identifier", "state", "reason", "attempt"),
            *("type__hooks", "own", "identifier", "collection"),
        )
        return [Ended(key, str(uuid), *rest) for key, uuid, *rest in rows]

    def write(self, ended, who):
        """Enqueue the hooks of these Instances, and log that for each Instance."""
        wanted = defaultdict(list)
        for each in ended:
            # A hook has no hooks of its own.
            for hook in () if options.HOOK_OF in (each.own or {}) else each.hooks:
                wanted[hook.type].append((each, hook))
        if not wanted:
            return
        types = self._store.rows(Type).in_bulk(list(wanted), field_name="identifier")
        records = []
        for name, pairs in sorted(wanted.items()):
            made = []
            if name in types:
                submissions = [_submission(each, hook) for each, hook in pairs]
                registration = Registration.of(types[name])
                made = self._store.enqueue_hooks(registration, submissions, who=who)
            uuids = [instance.uuid for instance in made] or [None] * len(pairs)
            records += [
                _record(each, hook, uuid, who)
                for (each, hook), uuid in zip(pairs, uuids, strict=True)
            ]
        now = self._store.now()
        for record in records:
            record.time = now
        self._store.rows(LogRecord).bulk_create(sorted(records, key=lambda r: r.instance_id))


def _submission(ended, hook):
    return Submission(
        inputs=hook.payload(ended),
        collection=hook.collection,
        priority=hook.priority,
        own=options.own_options(**json.loads(hook.own or "{}"), **{options.HOOK_OF: ended.uuid}),
    )


def _record(ended, hook, uuid, who):
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
