"""Registering Types; the argument names of stored inputs."""

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from ... import messages
from ...exceptions import TypeInUse, UnknownType
from ...graphs.placeholders import TAG
from ...models import Downstream, Instance, Kind, LogRecord, Schedule, Task, Type, Undo
from ...options import HOOKS
from ...payload import codec
from ...payload.binding import inputs_shape
from ...text import did_you_mean
from ..facts import Shape
from ..values import Registration
from .base import Part

# The shapes of inputs in the portable store: Python reads the inputs one by one.

_COLUMNS = ("pk", "type_id", "instance__inputs__format", "instance__inputs__data")


class Inputs(Part):
    """The inputs of live Instances."""

    def shapes(self, after: int = 0, *, limit: int = 5_000) -> tuple[list[Shape], int | None]:
        tasks = self.store.rows(Task).filter(pk__gt=after).order_by("pk")
        found: dict[Any, list[tuple[int, datetime]]] = defaultdict(list)
        last = None
        for key, type, format, data, created in tasks.values_list(*_COLUMNS, "instance__created")[
            :limit
        ]:
            last = key
            found[type, format, *_shape(format, data)].append((key, created))
        return [_group(facts, members) for facts, members in found.items()], last


def _shape(format: str | None, data: str) -> tuple[int, tuple[str, ...] | None, bool]:
    """Return the number of positional arguments, the names, and whether results may be in them."""
    if format != codec.JSON:
        return 0, None, False
    try:
        inputs = json.loads(data)
    except (ValueError, RecursionError):
        inputs = None
    if not isinstance(inputs, dict) or not isinstance(inputs.get("*", []), list):
        return 0, None, False
    return *inputs_shape(inputs), f'"{TAG}"' in data


def _group(facts: tuple[Any, ...], members: Sequence[tuple[int, datetime]]) -> Shape:
    type, format, placed, names, has_results = facts
    return Shape(
        type=type,
        format=format,
        placed=placed,
        names=names,
        has_results=has_results,
        keys=tuple(key for key, _ in members),
        since=min((created for _, created in members if created), default=None),
    )


# Types in the portable store.

logger = logging.getLogger("atp.store")

_ANOTHER_HANDLER = (
    "Type %r: its handler was %s and is now %s. Where two projects share this database, each "
    "needs identifiers of its own: both take the parameters that were registered last."
)


class Types(Part):
    """Registering Types."""

    def register(
        self, registrations: Sequence[Registration], *, who: str = "", update: bool = True
    ) -> set[str]:
        with self.store.atomic():
            now = self.store.now()
            wanted = {r.identifier: r for r in registrations}
            known = self.rows(Type).in_bulk(list(wanted), field_name="identifier")
            missing = [r for name, r in wanted.items() if name not in known]
            locked: set[str] = set()
            with self.store.unless_locked() as is_locked:
                # Another process may register the same Types at this moment.
                self.rows(Type).bulk_create(
                    [Type(**r.columns(), registered=now) for r in missing],
                    ignore_conflicts=True,
                )
                self._add_downstreams(missing, now)
                self._keep_hooks(missing)
                message = messages.type_registered()
                self.store.log_all(
                    self._told(Kind.REGISTERED, message, registration, now, who)
                    for registration in missing
                )
            if is_locked:
                locked.update(registration.identifier for registration in missing)
            if update:
                pairs = [(row, wanted[name]) for name, row in known.items()]
                locked |= self._update(pairs, now, who)
            return locked | self._join_names(registrations)

    def _join_names(self, registrations: Iterable[Registration]) -> set[str]:
        """Write which rows are names of one Type; return the Types that another session locked."""
        locked: set[str] = set()
        for each in registrations:
            if not each.formerly:
                continue
            rows = self.rows(Type).filter(identifier__in=[each.identifier, *each.formerly])
            # A release that knows fewer names of the Type does not split its family.
            known = set(rows.exclude(family="").values_list("family", flat=True))
            family = min(known, default=each.identifier)
            if rows.exclude(family=family).exists():
                with self.store.unless_locked() as is_locked:
                    rows.exclude(family=family).update(family=family)
                if is_locked:
                    locked.add(each.identifier)
        return locked

    def _update(
        self, pairs: Iterable[tuple[Type, Registration]], now: datetime, who: str
    ) -> set[str]:
        locked: set[str] = set()
        for row, registration in pairs:
            differs = {
                name: value
                for name, value in registration.columns().items()
                if getattr(row, name) != value
            }
            if differs:
                changes = {name: (getattr(row, name), value) for name, value in differs.items()}
                message = messages.parameters_changed(changes)
                with self.store.unless_locked() as is_locked:
                    self.rows(Type).filter(pk=row.pk).update(**differs, registered=now)
                    self._add_downstreams([registration], now)
                    self._keep_hooks([registration])
                    self._log(Kind.PARAMETERS, message, row, now, who)
                if is_locked:
                    locked.add(row.identifier)
                elif "handler" in differs:
                    logger.warning(_ANOTHER_HANDLER, row.identifier, *changes["handler"])
        return locked

    def name_downstreams(self, names: Mapping[str, str], *, who: str = "") -> set[str]:
        rows = self.rows(Type).filter(identifier__in=names)
        wrong = [row for row in rows if row.downstream != names[row.identifier]]
        if not wrong:
            return set()
        with self.store.atomic():
            pairs = [
                (row, replace(Registration.of(row), downstream=names[row.identifier]))
                for row in wrong
            ]
            return self._update(pairs, self.store.now(), who)

    def _add_downstreams(self, registrations: Iterable[Registration], now: datetime) -> None:
        """Create the rows of downstreams that no Type has named before."""
        names = {r.downstream for r in registrations if r.downstream}
        known = set(self.rows(Downstream).filter(name__in=names).values_list("name", flat=True))
        self.rows(Downstream).bulk_create(
            [Downstream(name=name, since=now) for name in sorted(names - known)],
            ignore_conflicts=True,
        )

    def _keep_hooks(self, registrations: Iterable[Registration]) -> None:
        """Keep the Types of these Types' hooks registered until this transaction commits."""
        for name in sorted({hook["type"] for r in registrations for hook in r.hooks or ()}):
            list(self.store.vendor.kept_type(self.rows(Type), name))

    def _log(self, *about: Any) -> None:
        self.store.log_all([self._told(*about)])

    def _told(
        self, kind: Kind, message: str, type: Type | Registration, now: datetime, who: str
    ) -> LogRecord:
        return self.store.log_record(
            kind, message, subject=f"type:{type.identifier}", time=now, who=who
        )

    def unregister(self, identifier: str, *, who: str = "") -> None:
        with self.store.atomic():
            rows = self.rows(Type).select_for_update().filter(identifier=identifier)
            row = rows.first()
            if row is None:
                names = self.rows(Type).values_list("identifier", flat=True)
                raise UnknownType(
                    f"No Type {identifier!r} is registered.{did_you_mean(identifier, names)}"
                )
            if self.rows(Instance).filter(type=row).exists():
                raise TypeInUse(
                    f"Type {identifier!r} cannot be removed: there are Instances of it."
                )
            schedule = self.rows(Schedule).filter(type=row).first()
            if schedule is not None:
                raise TypeInUse(f"Type {identifier!r} cannot be removed: {schedule} enqueues it.")
            if self.rows(Undo).filter(type=row).exists():
                raise TypeInUse(
                    f"Type {identifier!r} cannot be removed: nodes of graphs are undone by it."
                )
            self._refuse_hook(identifier)
            self.store.tailers.remove(identifier)
            row.delete(using=self.store.alias)
            self._log(Kind.UNREGISTERED, messages.type_unregistered(), row, self.store.now(), who)

    def _refuse_hook(self, identifier: str) -> None:
        """Raise TypeInUse if a Type, or a live Instance, has this Type as a hook."""
        types = self.rows(Type).filter(hooks__isnull=False).exclude(identifier=identifier)
        hooking: Iterable[Any] = types.values_list("identifier", "hooks")
        for name, hooks in hooking:
            if any(hook["type"] == identifier for hook in hooks):
                raise TypeInUse(f"Type {identifier!r} cannot be removed: it is a hook of {name!r}.")
        live = self.rows(Instance).filter(task__waits__isnull=False, own__has_key=HOOKS)
        # No name holds the iterator: its cursor is closed before the error leaves the transaction.
        for own in live.values_list("own", flat=True).iterator():
            if any(hook["type"] == identifier for hook in own[HOOKS]):
                raise TypeInUse(
                    f"Type {identifier!r} cannot be removed: it is a hook of a live Instance."
                )
