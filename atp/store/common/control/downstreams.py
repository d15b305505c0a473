"""Downstreams in the portable store: reports of daemons, settings of operators, and claims.

A claim of a Type whose downstream is not closed takes tokens under the lock of the
Downstream's row, as it does with limits. While another session keeps that lock, Types of that
downstream are not claimed. No daemon waits for the lock; only operators do.
"""

import logging

from .... import messages
from ....downstreams import protection
from ....downstreams.protection import State
from ....exceptions import DownstreamChanged, UnknownDownstream
from ....models import Downstream, Kind, Task, Type
from ....states import State as InstanceState
from ....text import did_you_mean
from ...buckets import Bucket
from ..base import ORMBase


class Downstreams(ORMBase):
    def report(self, name, report, *, who="", spread=0.0):
        with self.atomic():
            row = self._locked_downstream(name)
            if row is None:
                return None
            now = self.now()
            found = protection.apply_report(row.protection, report, now.timestamp(), spread=spread)
            self._save(row, found, now, who)
            return row

    def bound(self, name, *, who="", expected=None, **changes):
        def change(row, now):
            for column, value in changes.items():
                setattr(row, column, value)
            return protection.apply_limits(row.protection, now)

        return self._set(
            name, expected, who, change, messages.downstream_rate_limited(changes), "set"
        )

    def reset(self, name, *, who="", expected=None):
        message = messages.downstream_reset()
        return self._set(
            name,
            expected,
            who,
            lambda row, now: protection.close_breaker(row.protection, now),
            message,
            "reset",
        )

    def trip(self, name, *, who="", expected=None):
        message = messages.downstream_breaker_opened()
        return self._set(
            name,
            expected,
            who,
            lambda row, now: protection.open_breaker(row.protection, now),
            message,
            "trip",
        )

    def _set(self, name, expected, who, change, message, verb):
        """Change a row for an operator, waiting for the lock if another session has it."""
        with self.atomic():
            row = self.rows(Downstream).select_for_update().filter(name=name).first()
            if row is None:
                known = self.rows(Downstream).values_list("name", flat=True)
                raise UnknownDownstream(
                    f"No Type names the downstream {name!r}.{did_you_mean(name, known)}"
                )
            if expected is not None and expected not in (row.state, row.since):
                raise DownstreamChanged(
                    f"The downstream {name} is not as expected: it is {row.state}.", downstream=row
                )
            now = self.now()
            found = change(row, now.timestamp())
            self._save(row, found, now, who, by_hand=True)
            self._log_downstream(row, now, who, message, verb)
            self.tell()
            return row

    def _save(self, row, found, now, who, *, by_hand=False):
        was = row.state
        row.take(found)
        if row.state != was or by_hand:
            row.since, row.who = now, who
        row.save(using=self.alias)
        if row.state != was and not by_hand:
            message = messages.downstream_changed(was, row.state, row.per_second, row.not_before)
            self._log_downstream(row, now, who, message, row.state)
            # Waiting Tasks may start now, or may no longer be claimed ahead.
            self.tell()

    def _log_downstream(self, row, now, who, message, detail):
        subject = f"downstream:{row.name}"
        self.log(
            Kind.DOWNSTREAM,
            message,
            subject=subject,
            time=now,
            who=who,
            detail=detail,
            level=logging.WARNING,
        )

    # Claiming

    def _guarded(self, types):
        """Return the Types whose downstream is not closed: their keys, by identifier."""
        names = self.rows(Downstream).exclude(state=State.CLOSED.value).values("name")
        rows = self.rows(Type).filter(identifier__in=list(types), downstream__in=names)
        return dict(rows.values_list("identifier", "pk"))

    def _guards(self, types):
        """Return a :class:`Bucket` for each Type whose downstream is not closed."""
        rows = self.rows(Downstream).exclude(state=State.CLOSED.value)
        by_name = {row.name: row for row in rows}
        if not by_name:
            return []
        calling = self.rows(Type).filter(identifier__in=list(types), downstream__in=by_name)
        now = self.now()
        return [
            Bucket.of_downstream(by_name[name], type, now, is_probed=self._is_probed(by_name[name]))
            for type, name in calling.values_list("identifier", "downstream")
        ]

    def _is_probed(self, row):
        """Return whether a daemon holds the Instance that probes this downstream, not paused."""
        if row.probe is None:
            return False
        held = self.rows(Task).filter(pk=row.probe, daemon__isnull=False)
        return held.exclude(instance__state=InstanceState.PAUSED.value).exists()

    def _locked_downstream(self, name):
        """Return the row, locked; None if another session has locked it or it does not exist."""
        rows = self.rows(Downstream).filter(name=name)
        return rows.select_for_update(skip_locked=True).first()

    def _let_go(self, bucket, tasks):
        """Take a token for each claimed Task, or record that the one Task is the probe."""
        if not tasks:
            return
        row = self.rows(Downstream).get(pk=bucket.key)
        at = bucket.now.timestamp()
        if bucket.probes:
            found = protection.start_probe(row.protection, tasks[0].instance, at)
        else:
            found = protection.spend_tokens(row.protection, len(tasks), at)
        was = row.state
        row.take(found)
        if row.state != was:
            row.since = bucket.now
        row.save(using=self.alias)
