"""Operators, and what daemons do as anybody: fail, redrive, request, remove; and the time."""

import pytest
from django.db.models import F
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from atp.exceptions import IllegalOrder, InvalidOption, UnknownDaemon
from atp.models import Instance, Task
from atp.states import Event
from atp.store.values import RELEASE, Changes
from atp.words.orders import Order, allowed

from ..world import ONE, TWO
from .base import HOUR, PICK, Actors, has_items


class Operators(Actors):
    @precondition(has_items)
    @rule(pick=PICK, event=st.sampled_from(["fail", "redrive", "redrive", *Event.values]))
    def act(self, pick, event):
        item = self.item(pick)
        reason = "CANCELLED" if event == "fail" else ""
        refused = self.world.as_anyone(Event(event), item.key, reason=reason)
        assert (refused == []) == item.by_anyone(event, reason)

    @precondition(lambda self: any(i.state == "FAILED" for i in self.model.items.values()))
    @rule(pick=PICK)
    def redrive(self, pick):
        failed = [item for item in self.model.items.values() if item.state == "FAILED"]
        item = failed[pick % len(failed)]
        assert self.world.as_anyone(Event.REDRIVE, item.key) == []
        assert item.by_anyone("redrive")

    @precondition(has_items)
    @rule(pick=PICK)
    def request(self, pick):
        item = self.item(pick)
        assert self.store.request(item.key, RELEASE, who="somebody") == item.ask(RELEASE)

    @precondition(has_items)
    @rule(picks=st.lists(PICK, min_size=1, max_size=4))
    def cancel(self, picks):
        keys = sorted({self.item(pick).key for pick in picks})
        became = {key: self.model.items[key].cancel() for key in keys}
        done = self.store.cancel(keys, who="somebody")
        for field in ("failed", "asked", "before"):
            assert getattr(done, field) == tuple(key for key in keys if became[key] == field)

    @precondition(has_items)
    @rule(
        pick=PICK,
        priority=st.sampled_from([None, None, 0, 1]),
        due=st.sampled_from([None, HOUR, -HOUR]),
    )
    def change(self, pick, priority, due):
        """What waits, and nothing else; never to a time at which it could not start any more."""
        item = self.item(pick)
        due = None if due is None else self.store.now() + due
        changes = Changes(priority=priority, due=due)
        is_too_late = due is not None and item.start_before is not None and due >= item.start_before
        if item.waits and is_too_late:
            with pytest.raises(InvalidOption):
                self.store.change([item.key], changes, who="somebody")
            return
        said = self.store.change([item.key], changes, who="somebody")
        assert said.keys() == ({item.key} if item.waits else set())
        if item.waits:
            item.priority = item.priority if priority is None else priority
            item.due = due or item.due

    @precondition(lambda self: bool(self.hosts))
    @rule(pick=PICK, order=st.sampled_from(Order))
    def command(self, pick, order):
        """It changes nothing but what the daemon is asked for."""
        name = self.name(pick)
        host, row = self.hosts[name], self.hosts[name].row
        if row is None or self.model.daemons[name] or order not in allowed(row.aim):
            with pytest.raises(UnknownDaemon if row is None else IllegalOrder):
                self.store.command(host.uuid, order, who="somebody")
            return
        row = self.store.command(host.uuid, order, who="somebody")
        assert self.store.outlook([ONE], daemon=host.uuid).request == row.request

    @precondition(has_items)
    @rule(picks=st.lists(PICK, max_size=3))
    def purge_some(self, picks):
        """Only what has ended goes."""
        keys = {self.item(pick).key for pick in picks}
        ended = [key for key in keys if not self.model.items[key].is_live]
        assert self.store.purge(instances=sorted(keys)) == len(ended)
        for key in ended:
            del self.model.items[key]

    def purge(self, pick):
        ended = [i.key for i in self.model.items.values() if i.type == TWO and not i.is_live]
        assert self.store.purge() == len(ended)
        for key in ended:
            del self.model.items[key]

    def miss(self, pick):
        now = self.store.now()
        late = [item for item in self.model.items.values() if item.is_late(now)]
        assert self.store.miss(who="tests") == len(late)
        for item in late:
            item.by_anyone("fail", "MISSED")

    def time_passes(self, pick):
        """Two hours, for what waits."""
        passed = 2 * HOUR
        for model in (Task, Instance):
            rows = model.objects.filter(start_before__isnull=False)
            rows.update(start_before=F("start_before") - passed)
        Task.objects.update(due_at=F("due_at") - passed)
        for item in self.model.items.values():
            if item.is_live:
                item.due -= passed
            if item.start_before is not None:
                item.start_before -= passed
