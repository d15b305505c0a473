"""Holders: daemons that claim, and record what became of it; or of what is not theirs."""

import logging
from datetime import timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from atp.exceptions import LeaseLost
from atp.models import Instance
from atp.states import Event
from atp.store.values import Message, Move, Note, ResponseData

from ..model import MOVES
from ..world import ONE, TWO
from .base import HOUR, PICK, Actors, has_held, has_items, has_live

# Events in the order of a life, so that a smaller example is a simpler one.
EVENTS = st.sampled_from(
    [
        *("start", "finish", "retry", "fail", "expire", "release", "pause", "resume", "defer"),
        *("start", "start", "finish", "expire", "redrive", "claim", "enqueue"),
    ]
)
# How far the attempt is off; and whether its start is recorded with the event.
OFF = st.sampled_from([0, 0, 0, 0, 0, -1, 1])
CHANGES = st.tuples(PICK, EVENTS, OFF, st.booleans())
# What comes next, by number among what may.
CHOICES = st.lists(PICK, min_size=1, max_size=6)
DELAYS = st.sampled_from([None, timedelta(0), HOUR])
LIMITS = st.sampled_from([1, 2, 3, 6])
_RESPONSE = ResponseData(content_type="application/json", data=b"1", size=1)


class Holders(Actors):
    @rule(pick=PICK, limit=LIMITS, types=st.sampled_from([(ONE, TWO), (ONE,), (TWO,)]))
    def claim_as_any(self, pick, limit, types):
        self.claim(self.name(pick), limit, types)

    @rule(pick=PICK, limit=LIMITS)
    def claim_as_alive(self, pick, limit):
        self.claim(self.alive(pick), limit, (ONE, TWO))

    def claim(self, name, limit, types):
        host = self.hosts[name]
        over = self.model.daemons.get(name)
        if over and self.store.lock_folder is not None:
            return  # it is dead: where the lease is a lock, nothing else ends it
        if over is not False:
            with pytest.raises(LeaseLost):
                host.claim(limit, types)
            return
        now = self.store.now()
        due = {type: self.model.due(type, now) for type in types}
        has_late = any(item.is_late(now) for item in self.model.items.values())
        claimed = host.claim(limit, types)
        self._check_claim(claimed, due, limit, has_late)
        for task in claimed:
            item = self.model.items[task.instance]
            item.claim(name)
            assert (task.attempt, task.retries, task.restarts, task.lost) == (
                item.attempt,
                item.retries,
                item.restarts,
                item.lost,
            )
        self._see_missed(now)

    def _check_claim(self, claimed, due, limit, has_late):
        """In order within a lane, as many as there are, and an even share of each Type."""
        of_type = {type: [t.instance for t in claimed if t.type == type] for type in due}
        for type, keys in of_type.items():
            assert keys == [item.key for item in due[type]][: len(keys)], "order (G8)"
        total = sum(len(items) for items in due.values())
        assert len(claimed) <= min(limit, total)
        if has_late:
            return  # what is too late may have been looked at instead
        assert len(claimed) == min(limit, total)
        ready = [type for type, items in due.items() if items]
        share = -(-limit // len(ready)) if ready else 0
        if any(len(of_type[type]) > share for type in ready):
            assert all(len(of_type[type]) >= min(share, len(due[type])) for type in ready)

    def _see_missed(self, now):
        """A claim may have failed what is too late, and nothing else."""
        late = {item.key: item for item in self.model.items.values() if item.is_late(now)}
        failed = Instance.objects.filter(pk__in=late, state="FAILED")
        for key in failed.values_list("pk", flat=True):
            late[key].by_anyone("fail", "MISSED")

    @precondition(has_live)
    @rule(pick=PICK, choices=CHOICES, delay=DELAYS)
    def live(self, pick, choices, delay):
        """What may happen next to one Instance, for a while: the course of things."""
        live = self.model.live()
        item = live[-1 - pick % len(live)]
        for choice in choices:
            if item.holder:
                self._go_on(item, choice, delay)
            elif item.is_live:
                self.claim(self.alive(choice), 6, (ONE, TWO))
            self.step_is_done()

    @precondition(has_live)
    @rule(pick=PICK, choices=CHOICES, delay=DELAYS)
    def live_on(self, pick, choices, delay):
        """The same, so that it comes about more often than what is out of the way."""
        self.live(pick, choices, delay)

    def _go_on(self, item, choice, delay):
        may = [(event, False) for state, event in MOVES if state == item.state]
        if item.state == "SCHEDULED":
            may += [("start", False)] * 3
            may += [(event, True) for state, event in MOVES if state == "RUNNING"]
        event, started = may[choice % len(may)]
        self._record(item.holder, [(item, event, 0, started)], delay)

    @precondition(has_held)
    @rule(pick=PICK, events=st.lists(st.tuples(EVENTS, OFF), min_size=1, max_size=3))
    def record_as_holder(self, pick, events):
        """Anything, of attempts that may be others."""
        held = [item for item in self.model.items.values() if item.holder]
        item = held[pick % len(held)]
        self._record(item.holder, [(item, event, off, False) for event, off in events], None)

    @precondition(has_items)
    @rule(who=PICK, changes=st.lists(CHANGES, min_size=1, max_size=6), delay=DELAYS)
    def record(self, who, changes, delay):
        """A batch as any daemon, also one that is gone, of anything, in whatever order."""
        chosen = [(self.item(pick), event, off, start) for pick, event, off, start in changes]
        self._record(self.name(who), chosen, delay)

    def _record(self, name, chosen, delay):
        self.is_timed = not self.is_timed  # what a daemon records, it has timed; others need not
        changes, expected = [], []
        for item, event, off, started in chosen:
            change = self._change(item, event, off, started, delay)
            details = {"started": started, "reason": change.reason, "delay": change.delay}
            changes.append(change)
            if not item.by_holder(name, change.attempt, event, **details):
                expected.append(change)
            elif change.response is not None:
                item.has_response = True
        assert self.hosts[name].record(*changes) == expected

    def _change(self, item, event, off, started, delay):
        return Move(
            event=Event(event),
            instance=item.key,
            attempt=max(0, item.attempt + off),
            started=next(self.times) if started else None,
            time=next(self.times) if self.is_timed else None,
            reason="ERROR" if event == "fail" else "",
            delay=delay if event in ("retry", "defer") else None,
            response=_RESPONSE if event == "finish" else None,
        )

    @precondition(has_items)
    @rule(pick=PICK, who=PICK, off=st.sampled_from([0, 0, -1]), held=st.booleans())
    def note(self, pick, who, off, held):
        item = self.item(pick)
        name = item.holder if held and item.holder else self.name(who)
        text = next(self.texts)
        said = Message(time=self.store.now(), level=logging.INFO, text=text)
        attempt = max(0, item.attempt + off)
        note = Note(instance=item.key, attempt=attempt, progress=0.5, messages=(said,))
        refused = self.store.note([note], daemon=self.hosts[name].uuid)
        accepted = item.holder is not None and item.is_held(name, attempt)
        assert refused == ([] if accepted else [note])
        if accepted:
            item.progress = 0.5
            item.said.append(text)
